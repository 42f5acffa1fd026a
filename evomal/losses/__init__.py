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
from evomal.losses.priors import BalancedSoftmaxLoss, ClassWeightedCrossEntropyLoss
from evomal.losses.regression import (
    AbsoluteErrorLoss,
    CauchyLoss,
    HuberLoss,
    LogCoshLoss,
    QuantileLoss,
    SquaredErrorLoss,
    TukeyLoss,
    WelschLoss,
)
from evomal.losses.robust import (
    GeneralizedCrossEntropyLoss,
    NormalizedCrossEntropyLoss,
    PolyLoss,
    SymmetricCrossEntropyLoss,
)
from evomal.losses.taylor import TaylorLoss

__all__ = [
    "CATALOGUE",
    "AbsoluteCrossEntropyLoss",
    "AbsoluteErrorLoss",
    "BalancedSoftmaxLoss",
    "CauchyLoss",
    "ClassWeightedCrossEntropyLoss",
    "CrossEntropyLoss",
    "ExpressionLoss",
    "FocalLoss",
    "FocalSparseLabelSmoothingLoss",
    "GeneralizedCrossEntropyLoss",
    "HuberLoss",
    "LabelSmoothingLoss",
    "LogCoshLoss",
    "Loss",
    "NeuralLoss",
    "NormalizedCrossEntropyLoss",
    "PolyLoss",
    "QuantileLoss",
    "SparseLabelSmoothingLoss",
    "SquaredErrorLoss",
    "SymmetricCrossEntropyLoss",
    "TaylorLoss",
    "TukeyLoss",
    "WelschLoss",
    "load_loss",
    "named_loss",
    "save_loss",
    "starting_layers",
    "starting_weights",
]
