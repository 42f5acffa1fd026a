"""Sparse label smoothing: the effect of label smoothing from the target's probability alone (EvoMAL, appendix A.7)."""

import math
from typing import Any

import sympy

from evomal.errors import InputError
from evomal.losses.coefficients import Coefficients
from evomal.losses.options import checked
from evomal.losses.target_losses import CLASSES_SYMBOL, PROBABILITY_SYMBOL, TargetLoss


class SparseLabelSmoothingLoss(TargetLoss):
    """−[(1 − ξ + ξ/C)·log p + (ξ(C − 1)/C)·log((1 − p)/(C − 1))], least at p = 1 − ξ + ξ/C.

    Both terms are subtracted; the public code adds the second. `simplified` takes the form of the paper's footnote,
    −[log p + ξ·log(1 − p)], which does not depend on C.
    """

    option_names = ("smoothing", "simplified")

    def __init__(self, smoothing: float = 0.1, *, simplified: bool = False, **contract: Any) -> None:
        super().__init__(**contract)
        self.smoothing = checked("smoothing", smoothing, at_least=0, below=1)
        if not isinstance(simplified, bool):
            raise InputError(f"simplified must be true or false but got {simplified!r}")
        self.simplified = simplified

    def coefficients(self, classes: int) -> Coefficients:
        if self.simplified:
            return Coefficients(opposite=self.smoothing)
        share = 1 - self.smoothing + self.smoothing / classes
        return Coefficients(scale=share, opposite=1 - share, offset=math.log(classes - 1))

    def sympy(self) -> Any:
        p, c, smoothing = PROBABILITY_SYMBOL, CLASSES_SYMBOL, sympy.Float(self.smoothing)
        if self.simplified:
            return -(sympy.log(p) + smoothing * sympy.log(1 - p))
        target_term = (1 - smoothing + smoothing / c) * sympy.log(p)
        return -(target_term + smoothing * (c - 1) / c * sympy.log((1 - p) / (c - 1)))
