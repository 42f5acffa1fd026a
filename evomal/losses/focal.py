"""Focal loss: cross-entropy that cares less for what is already right (Lin et al., 2017)."""

from typing import Any

import sympy

from evomal.losses.coefficients import Coefficients
from evomal.losses.options import checked
from evomal.losses.target_losses import PROBABILITY_SYMBOL, TargetLoss


class FocalLoss(TargetLoss):
    """−(1 − p)^γ · log p; γ = 0 is cross-entropy."""

    option_names = ("gamma",)

    def __init__(self, gamma: float = 2.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.gamma = checked("gamma", gamma, at_least=0)

    def coefficients(self, classes: int) -> Coefficients:
        return Coefficients(focus=self.gamma)

    def sympy(self) -> Any:
        return -((1 - PROBABILITY_SYMBOL) ** sympy.nsimplify(self.gamma)) * sympy.log(PROBABILITY_SYMBOL)
