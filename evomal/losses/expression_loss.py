"""An expression as a loss: the meta-loss network of EvoMAL (section 3.3, figure 2)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.checks import finite_vector, one_of
from evomal.errors import InputError
from evomal.expression import OPERATORS, Expression
from evomal.expression.notation import PREDICTION_LATEX, to_code
from evomal.expression.operators import CONSTANTS, TARGET
from evomal.forest.programs import ACTIVATIONS
from evomal.losses.contract import Kind, Reduction, compute_dtype
from evomal.losses.expression_kernels import has_kernel, sample_losses
from evomal.losses.loss import Description, ElementwiseLoss, Source, WeightedTree
from evomal.text import short_repr, shorten

_LONGEST_SHOWN = 120  # characters of the expression in the text of a module
_LONGEST_NODE = 60  # characters of the name of a weight


class ExpressionLoss(ElementwiseLoss):
    """A symbolic loss with a weight on every edge of its tree.

    For large batches in single precision compiled kernels compute loss and gradient in little memory, whatever the size
    of the tree; numba compiles them when they are first needed on a machine.

    Args:
        expression: The tree, or its text; it must use both y and f.
        weights: One number per non-root node in prefix order; None for all ones. A tensor is kept as it is, so that
            gradients reach it, and an `nn.Parameter` becomes a parameter of the module.
        kind: `classification`, `multilabel` or `regression`.
        activation: `identity`, or `softplus` to keep the loss positive.
        weight: One factor per class (per label for multilabel).
        ignore_index: Target value of samples that do not contribute.
        reduction: `mean`, `sum` or `none`.

    Raises:
        InputError: The expression is not a loss, the number of weights is wrong, or another argument breaks its rule.

    Example:
        >>> loss = ExpressionLoss("square(sub(y, f))", [2.0, 1.0, 1.0], kind="regression")
        >>> float(loss(torch.tensor([3.0]), torch.tensor([1.0])))
        16.0
        >>> loss.formula()
        '4*(f - y)**2'
    """

    option_names = ("activation",)
    has_formula = True
    prediction_latex = PREDICTION_LATEX

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

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        of_classes = super().of_classes
        logits = logits.to(compute_dtype(logits))
        if not has_kernel(logits, target, self.weights):
            return of_classes(logits, target, weight)
        losses = self._by_kernel(logits, target, "classification", lambda rows: of_classes(rows, target, None))
        return losses if weight is None else losses * weight[target]

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        of_bits = super().of_bits
        logits = logits.to(compute_dtype(logits))
        if target.is_floating_point() or not has_kernel(logits, target, self.weights):
            return of_bits(logits, target)
        return self._elements_by_kernel(logits, target, "multilabel", of_bits)

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        of_values = super().of_values
        if not has_kernel(output, target, self.weights):
            return of_values(output, target)
        return self._elements_by_kernel(output, target, "regression", of_values)

    def _by_kernel(self, output: Tensor, target: Tensor, kind: Kind, composed: Callable[[Tensor], Tensor]) -> Tensor:
        return sample_losses(
            self.expression, self.weights, output, target, kind=kind, activation=self.activation, composed=composed
        )

    def _elements_by_kernel(
        self, output: Tensor, target: Tensor, kind: Kind, composed: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Losses that are not summed over the outputs: each is a sample with one output."""
        column, values = output.reshape(-1, 1), target.reshape(-1, 1)
        losses = self._by_kernel(column, values, kind, lambda rows: composed(rows, values).squeeze(1))
        return losses.reshape(output.shape)

    def sympy(self) -> Any:
        """Returns the loss of one output as a SymPy expression in y and f, weights and activation included."""
        from evomal.expression import symbolic

        form = self.expression.sympy(self._numbers())
        return symbolic.softplus(form) if self.activation == "softplus" else form

    def display_form(self) -> Any:
        from evomal.expression import symbolic

        form = symbolic.shown_form(self.expression.tokens, self._numbers())
        return symbolic.softplus(form) if form is not None and self.activation == "softplus" else form

    def formula(self) -> str:
        formula = self.expression.formula(self._numbers())
        return f"softplus({formula})" if self.activation == "softplus" else formula

    def describe(self) -> Description:
        tree = self.expression
        nodes = (shorten(str(tree.subtree(position)), _LONGEST_NODE) for position in range(1, tree.size))
        numbers = tuple(zip(nodes, self.tree().edge_weights, strict=True))
        return Description(f"An expression of {tree.size} nodes", str(tree), numbers)

    def tree(self) -> WeightedTree:
        return WeightedTree(self.expression, self._numbers(), self.activation)

    def source(self, xp: str) -> Source:
        lines = to_code(self.expression.tokens, self._numbers(), xp)
        if self.activation == "softplus":
            lines[-1:] = [f"value = {lines[-1].removeprefix('return ')}", "return -logsigmoid(-value)  # softplus"]
        return Source("outputs", lines)

    def extra_repr(self) -> str:
        text = str(self.expression)
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}… ({self.expression.size} nodes)"
        return f"{shown}, {super().extra_repr()}"

    def _numbers(self) -> list[float] | None:
        return None if self.weights is None else self.weights.tolist()

    def _latex(self) -> str:
        formula = self.expression.latex(self._numbers())
        return rf"\log\left(1 + e^{{{formula}}}\right)" if self.activation == "softplus" else formula

    def _file_fields(self) -> tuple[str, dict[str, Any]]:
        return "expression", {"expression": str(self.expression), "weights": self.tree().edge_weights}


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
    if not isinstance(generator, np.random.Generator):
        raise InputError(f"generator must be a generator of NumPy but got {short_repr(generator)}")
    return [float(weight) for weight in generator.normal(1.0, 1e-3, expression.edges)]
