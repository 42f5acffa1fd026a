"""TaylorGLO: a third-order Taylor polynomial in prediction and target (Gonzalez and Miikkulainen, 2021, equation 4)."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from evomal.checks import finite_vector
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses.loss import Description, ElementwiseLoss, SourceCode, WeightedTree

PARAMETERS = 8

_P, _X = "sub(f, 1)", "sub(y, 1)"  # p − θ1 and x − θ0: the weight of 1 is θ1 or θ0
_TREE = Expression.parse(
    f"mul({_P}, add(add(1, add({_P}, square({_P}))), add(add({_X}, mul({_X}, {_P})), square({_X}))))"
)
_OF_P, _OF_X = ("f", "prediction"), ("y", "target")
_EDGES = (
    *("p", *_OF_P, "sum"),
    *("of p alone", "constant", "of p", "linear", *_OF_P, "square", "p", *_OF_P),
    *("of x", "of x once", "target once", *_OF_X, "both", "x", *_OF_X, "p", *_OF_P, "target twice", "x", *_OF_X),
)
"""The name of the weight on each edge of the tree, in prefix order; `as_tree` gives some of them numbers."""


class TaylorLoss(ElementwiseLoss):
    """The negative of the polynomial about (θ0, θ1) in the target x and the prediction p.

    θ0 is subtracted from the target and θ1 from the prediction: with the two swapped, as in the public code, half of
    the terms would not depend on the model.

    Args:
        theta: The eight numbers of the polynomial; a tensor is kept as it is, so that gradients reach it.
        contract: The arguments of `Loss`.

    Raises:
        InputError: There are not eight finite numbers, or another argument breaks its rule.

    Example:
        >>> TaylorLoss([0, 0, 1, 2, 0, 0, 0, 0]).formula()
        '-f**2 - f'
    """

    has_formula = True
    learned_tensors = ("theta",)

    def __init__(self, theta: Tensor | Sequence[float], **contract: Any) -> None:
        super().__init__(**contract)
        self.theta = finite_vector("theta", theta)
        if len(self.theta) != PARAMETERS:
            raise InputError(f"theta must have {PARAMETERS} numbers but got {len(self.theta)}")

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        theta = self.theta.to(prediction.dtype).unbind()
        negative: Tensor = -_polynomial(theta, target, prediction)
        return negative

    def sympy(self) -> Any:
        """Returns the loss of one output as a SymPy expression in y and f."""
        import sympy

        from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL

        theta = [sympy.Float(number) for number in self.theta.tolist()]
        return -_polynomial(theta, TARGET_SYMBOL, PREDICTION_SYMBOL)

    def display_form(self) -> Any:
        from evomal.expression.symbolic import rounded

        return rounded(self.sympy().expand())

    def formula(self) -> str:
        return str(self.display_form())

    def describe(self) -> Description:
        numbers = tuple((f"θ{index}", value) for index, value in enumerate(self.theta.tolist()))
        return Description("A TaylorGLO polynomial", ", ".join(f"{value:g}" for _, value in numbers), numbers)

    def tree(self) -> WeightedTree:
        return WeightedTree(*as_tree(self.theta.tolist()))

    def source(self, xp: str) -> SourceCode:
        of_x, of_p, *numbers = self.theta.tolist()
        terms = ("p", "p**2 / 2", "p**3 / 6", "x * p", "x * p**2 / 2", "x**2 * p / 2")
        first, *rest = (f"{number} * {term}" for number, term in zip(numbers, terms, strict=True))
        polynomial = [f"    {first}", *(f"    + {term}" for term in rest)]
        return SourceCode("outputs", [f"x, p = y - {of_x}, f - {of_p}", "return -(", *polynomial, ")"])

    def extra_repr(self) -> str:
        return f"theta={[round(number, 4) for number in self.theta.tolist()]}, {super().extra_repr()}"

    def _file_fields(self) -> tuple[str, dict[str, Any]]:
        return "taylor", {"theta": self.theta.tolist()}


def as_tree(theta: Sequence[float]) -> tuple[Expression, list[float]]:
    """Returns the loss as an expression with weights, −(f−θ1)·[θ2 + …], for everything that works on expressions."""
    if len(theta) != PARAMETERS:
        raise InputError(f"theta must have {PARAMETERS} numbers but got {len(theta)}")
    weights = {
        "target": theta[0],
        "prediction": theta[1],
        "constant": theta[2],
        "linear": theta[3] / 2,
        "square": theta[4] / 6,
        "target once": theta[5],
        "both": theta[6] / 2,
        "target twice": theta[7] / 2,
    }
    return _TREE, [-1.0 if name == "sum" else weights.get(name, 1.0) for name in _EDGES]


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
