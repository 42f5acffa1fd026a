"""An expression as a loss: the meta-loss network of EvoMAL (section 3.3, figure 2)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.checks import finite_vector, one_of
from evomal.errors import InputError
from evomal.expression import OPERATORS, Expression, symbolic
from evomal.expression.operators import CONSTANTS, TARGET
from evomal.losses.contract import Kind, Reduction
from evomal.losses.elementwise import ElementwiseLoss, softplus

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"identity": lambda value: value, "softplus": softplus}
"""Output activations φ of the root's value; softplus keeps the loss positive."""
_LONGEST_SHOWN = 120  # characters of the expression in the text of a module


class ExpressionLoss(ElementwiseLoss):
    """A symbolic loss with a weight on every edge of its tree.

    `weights` has one number per non-root node in prefix order; None means all ones, the formula as it is written.
    A tensor is kept as it is given, so one that requires a gradient is trained through, and an `nn.Parameter` becomes a
    parameter of the module.
    """

    option_names = ("activation",)

    def __init__(
        self,
        expression: Expression | str,
        weights: Tensor | Sequence[float] | None = None,
        kind: Kind = "classification",
        activation: str = "identity",
        weight: Tensor | Sequence[float] | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(kind=kind, weight=weight, ignore_index=ignore_index, reduction=reduction)
        one_of("activation", activation, ACTIVATIONS)
        if not isinstance(expression, (Expression, str)):
            raise InputError(f"expression must be an Expression or its text but got {type(expression).__name__}")
        self.expression = Expression.parse(expression) if isinstance(expression, str) else expression.require_loss()
        self.activation = activation
        if weights is not None:
            # Double precision on the CPU, as in a loss file: as factors of one element they follow the data's dtype.
            self.expression.checked_weights(weights)  # type: ignore[arg-type]
            weights = finite_vector("weights", weights)
        self.weights = weights

    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](evaluate(self.expression, prediction, target, self.weights))

    def sympy(self) -> Any:
        """The loss of one output as a SymPy expression in y and f, weights and activation included."""
        form = self.expression.sympy(None if self.weights is None else self.weights.tolist())
        return symbolic.softplus(form) if self.activation == "softplus" else form

    def extra_repr(self) -> str:
        text = str(self.expression)
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}… ({self.expression.size} nodes)"
        return f"{shown}, {super().extra_repr()}"


def evaluate(expression: Expression, prediction: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """The root's value, every node's being multiplied by its edge's weight on the way to its parent."""
    edge_weights = () if weights is None else weights.to(prediction.dtype).unbind()

    def visit(position: int, token: str, arguments: Sequence[Tensor]) -> Tensor:
        if token in OPERATORS:
            value: Tensor = OPERATORS[token].value(torch, *arguments)
        elif token in CONSTANTS:
            value = torch.full_like(prediction, CONSTANTS[token])
        else:
            value = target if token == TARGET else prediction
        return value * edge_weights[position - 1] if edge_weights and position else value

    return expression.fold(visit)


def starting_weights(expression: Expression, *, generator: np.random.Generator) -> list[float]:
    """φ ~ N(1, standard deviation 1e-3): near the formula as it is written, the noise breaking symmetries."""
    return [float(weight) for weight in generator.normal(1.0, 1e-3, expression.edges)]
