"""TaylorGLO: a third-order Taylor polynomial in prediction and target (Gonzalez and Miikkulainen, 2021, equation 4)."""

from collections.abc import Sequence
from typing import Any

import sympy
from torch import Tensor

from evomal.errors import InputError
from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL
from evomal.losses.elementwise import ElementwiseLoss
from evomal.losses.options import finite_vector

PARAMETERS = 8


class TaylorLoss(ElementwiseLoss):
    """The negative of the polynomial about (θ0, θ1) in the target x and the prediction p.

    θ0 is subtracted from the target and θ1 from the prediction: with the two swapped, as in the public code, half of
    the terms would not depend on the model.
    """

    def __init__(self, theta: Tensor | Sequence[float], **contract: Any) -> None:
        super().__init__(**contract)
        if len(theta) != PARAMETERS:
            raise InputError(f"theta must have {PARAMETERS} numbers but got {len(theta)}")
        self.theta = finite_vector("theta", theta)

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        theta = self.theta.to(prediction.dtype).unbind()
        negative: Tensor = -_polynomial(theta, target, prediction)
        return negative

    def sympy(self) -> Any:
        """The loss of one output as a SymPy expression in y and f."""
        theta = [sympy.Float(number) for number in self.theta.tolist()]
        return -_polynomial(theta, TARGET_SYMBOL, PREDICTION_SYMBOL)

    def extra_repr(self) -> str:
        return f"theta={[round(number, 4) for number in self.theta.tolist()]}, {super().extra_repr()}"


def _polynomial(theta: Sequence[Any], target: Any, prediction: Any) -> Any:
    x, p = target - theta[0], prediction - theta[1]
    return (
        theta[2] * p
        + theta[3] * p**2 / 2
        + theta[4] * p**3 / 6
        + theta[5] * x * p
        + theta[6] * x * p**2 / 2
        + theta[7] * x**2 * p / 2
    )
