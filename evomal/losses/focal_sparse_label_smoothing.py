"""Focal loss joined with sparse label smoothing (EvoMAL, appendix A.13)."""

import math
from typing import Any

import sympy

from evomal.losses.coefficients import Coefficients
from evomal.losses.options import checked
from evomal.losses.target_losses import CLASSES_SYMBOL, PROBABILITY_SYMBOL, TargetLoss


class FocalSparseLabelSmoothingLoss(TargetLoss):
    """−[(1 − p)^γ (1 − ξ + ξ/C)·log p + p^γ (ξ(C − 1)/C)·log((1 − p)/(C − 1))]."""

    option_names = ("gamma", "smoothing")

    def __init__(self, gamma: float = 2.0, smoothing: float = 0.1, **contract: Any) -> None:
        super().__init__(**contract)
        self.gamma = checked("gamma", gamma, at_least=0)
        self.smoothing = checked("smoothing", smoothing, at_least=0, below=1)

    def coefficients(self, classes: int) -> Coefficients:
        share = 1 - self.smoothing + self.smoothing / classes
        return Coefficients(scale=share, focus=self.gamma, opposite=1 - share, offset=math.log(classes - 1))

    def sympy(self) -> Any:
        p, c = PROBABILITY_SYMBOL, CLASSES_SYMBOL
        gamma, smoothing = sympy.nsimplify(self.gamma), sympy.Float(self.smoothing)
        target_term = (1 - p) ** gamma * (1 - smoothing + smoothing / c) * sympy.log(p)
        return -(target_term + p**gamma * smoothing * (c - 1) / c * sympy.log((1 - p) / (c - 1)))
