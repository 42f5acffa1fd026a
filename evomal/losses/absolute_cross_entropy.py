"""Absolute cross-entropy: φ0·|log(φ1·p)| (EvoMAL, appendix A.1)."""

import math
from typing import Any

import sympy

from evomal.losses.coefficients import Coefficients
from evomal.losses.options import checked
from evomal.losses.target_losses import PROBABILITY_SYMBOL, TargetLoss


class AbsoluteCrossEntropyLoss(TargetLoss):
    """Cross-entropy at φ1 = 1; with 1 < φ1 < 2 it pushes p back down once φ1·p exceeds 1, as label smoothing does.

    φ0 scales the loss, like a learning rate.
    """

    option_names = ("phi0", "phi1")

    def __init__(self, phi0: float = 1.0, phi1: float = 1.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.phi0 = checked("phi0", phi0, above=0)
        self.phi1 = checked("phi1", phi1, above=0)

    def coefficients(self, classes: int) -> Coefficients:
        return Coefficients(scale=self.phi0, shift=math.log(self.phi1))

    def sympy(self) -> Any:
        return sympy.Float(self.phi0) * sympy.Abs(sympy.log(sympy.Float(self.phi1) * PROBABILITY_SYMBOL))
