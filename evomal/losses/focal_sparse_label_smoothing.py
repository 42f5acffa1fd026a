"""Focal loss joined with sparse label smoothing (EvoMAL, appendix B)."""

import math
from typing import Any

import sympy
from torch import Tensor

from evomal.losses.options import checked
from evomal.losses.softplus import softplus
from evomal.losses.target_losses import CLASSES_SYMBOL, PROBABILITY_SYMBOL, TargetLoss


class FocalSparseLabelSmoothingLoss(TargetLoss):
    """−[(1 − p)^γ (1 − ξ + ξ/C)·log p + p^γ (ξ(C − 1)/C)·log((1 − p)/(C − 1))]."""

    option_names = ("gamma", "smoothing")

    def __init__(self, gamma: float = 2.0, smoothing: float = 0.1, **contract: Any) -> None:
        super().__init__(**contract)
        self.gamma = checked("gamma", gamma, at_least=0)
        self.smoothing = checked("smoothing", smoothing, at_least=0, below=1)

    def of_log_odds(self, log_odds: Tensor, classes: int) -> Tensor:
        share = 1 - self.smoothing + self.smoothing / classes
        minus_log_p, minus_log_rest = softplus(-log_odds), softplus(log_odds)
        right = share * (-self.gamma * minus_log_rest).exp() * minus_log_p
        smoothed = (1 - share) * (-self.gamma * minus_log_p).exp() * (minus_log_rest + math.log(classes - 1))
        return right + smoothed

    def sympy(self) -> Any:
        p, c = PROBABILITY_SYMBOL, CLASSES_SYMBOL
        gamma, smoothing = sympy.nsimplify(self.gamma), sympy.Float(self.smoothing)
        target_term = (1 - p) ** gamma * (1 - smoothing + smoothing / c) * sympy.log(p)
        return -(target_term + p**gamma * smoothing * (c - 1) / c * sympy.log((1 - p) / (c - 1)))
