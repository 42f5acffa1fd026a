"""Losses as ordinary modules: learned and hand-made ones under one contract."""

from evomal.losses.catalogue import CATALOGUE, named_loss
from evomal.losses.classification import (
    AbsoluteCrossEntropyLoss,
    CrossEntropyLoss,
    FocalLoss,
    FocalSparseLabelSmoothingLoss,
    LabelSmoothingLoss,
    SparseLabelSmoothingLoss,
)
from evomal.losses.expression_loss import ExpressionLoss, starting_weights
from evomal.losses.files import load_loss, save_loss
from evomal.losses.loss import Loss
from evomal.losses.neural import NeuralLoss, starting_layers
from evomal.losses.regression import AbsoluteErrorLoss, HuberLoss, SquaredErrorLoss
from evomal.losses.taylor import TaylorLoss

__all__ = [
    "CATALOGUE",
    "AbsoluteCrossEntropyLoss",
    "AbsoluteErrorLoss",
    "CrossEntropyLoss",
    "ExpressionLoss",
    "FocalLoss",
    "FocalSparseLabelSmoothingLoss",
    "HuberLoss",
    "LabelSmoothingLoss",
    "Loss",
    "NeuralLoss",
    "SparseLabelSmoothingLoss",
    "SquaredErrorLoss",
    "TaylorLoss",
    "load_loss",
    "named_loss",
    "save_loss",
    "starting_layers",
    "starting_weights",
]
