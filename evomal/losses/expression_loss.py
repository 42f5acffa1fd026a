"""An expression as a loss: the meta-loss network of EvoMAL (section 3.3, figure 2)."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from evomal.checks import Kind, finite_number, finite_vector, one_of
from evomal.errors import InputError
from evomal.expression import OPERATORS, Expression
from evomal.expression.notation import PREDICTION_LATEX, to_code
from evomal.expression.operators import (
    BALANCED,
    CONSTANTS,
    EXTRA_TERMINALS,
    LOG_PROBABILITY,
    MARGIN,
    PREDICTION,
    PRIOR,
    PROGRESS,
    TARGET,
)
from evomal.forest.codes import Link
from evomal.forest.programs import ACTIVATIONS
from evomal.forest.terminals import Values, check_terminals, checked_priors, terminal_values, uses_priors
from evomal.losses.contract import Reduction, compute_dtype
from evomal.losses.expression_kernels import has_kernel, sample_losses
from evomal.losses.loss import Description, ElementwiseLoss, SourceCode, WeightedTree
from evomal.text import plural, short_repr, shorten

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
        priors: For the terminals `prior` and `blogp`: the share of each class in the training rows (two for a single
            logit), of each label for multilabel. None for those of the task that the loss is used on, and for equal
            shares where there is no task.

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
    learned_tensors = ("weights",)
    _shares: Tensor | None
    _progress_buffer: Tensor | None

    def __init__(
        self,
        expression: Expression | str,
        weights: Tensor | Sequence[float] | None = None,
        kind: Kind = "classification",
        activation: str = "identity",
        weight: Tensor | Sequence[float] | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        priors: Tensor | Sequence[float] | None = None,
    ) -> None:
        super().__init__(kind=kind, weight=weight, ignore_index=ignore_index, reduction=reduction)
        one_of("activation", activation, ACTIVATIONS)
        if not isinstance(expression, (Expression, str)):
            raise InputError(f"expression must be an Expression or its text but got {type(expression).__name__}")
        self.expression = Expression.parse(expression) if isinstance(expression, str) else expression.require_loss()
        check_terminals(self.expression, kind)
        self.activation = activation
        self.priors = None if priors is None else checked_priors(priors, kind)
        self._register_shares()
        moves = PROGRESS in self.expression.tokens
        # A tensor, as a captured graph would keep the number that it was captured with.
        self.register_buffer("_progress_buffer", torch.zeros(1) if moves else None, persistent=False)
        if weights is not None:
            self.expression.checked_weights(weights)  # type: ignore[arg-type]
            # In double precision on the CPU, as in a loss file: torch multiplies data on any device by single numbers.
            weights = finite_vector("weights", weights)
        self.weights = weights

    @property
    def progress(self) -> float:
        """The terminal `t`: the share of the training that is done, from 0 to 1.

        evomal's own trainings set it at every step. In a training loop of yours, set `loss.progress = step / steps`;
        it is 0 until then. Copies by `in_units` and `on_task` share it. A loss without `t` has no progress: 0.
        """
        return 0.0 if self._progress_buffer is None else float(self._progress_buffer)

    @progress.setter
    def progress(self, progress: float) -> None:
        progress = finite_number("progress", progress, at_least=0.0, at_most=1.0)
        if self._progress_buffer is not None:
            self._progress_buffer.fill_(progress)

    @property
    def is_moving(self) -> bool:
        """Whether the loss depends on the progress of the training."""
        return self._progress_buffer is not None

    def on_task(self, priors: Tensor | Sequence[float]) -> Self:
        """Returns the same loss for a task whose classes have these priors.

        Priors of its own are kept, unless the task has another number of classes.
        """
        is_own = self.priors is not None and len(self.priors) == len(priors)
        if is_own or not uses_priors(self.expression):
            return self
        twin = self._twin()
        twin.priors = checked_priors(priors, self.kind)
        twin._register_shares()
        return twin

    @property
    def classes(self) -> int | None:
        return super().classes if self.priors is None or self.kind != "classification" else len(self.priors)

    def _register_shares(self) -> None:
        """Keep the priors, if they are used, as a tensor that moves with the module."""
        used = self.priors if uses_priors(self.expression) else None
        # In single precision like other buffers of a module: not every device supports double.
        shares = None if used is None else torch.tensor(used, dtype=torch.float32)
        self.register_buffer("_shares", shares, persistent=False)

    def value(self, prediction: Tensor | Values, target: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](evaluate(self.expression, prediction, target, self.weights))

    def predicted(self, outputs: Tensor, link: Link) -> Tensor | Values:
        extras = self.expression.extras
        if not extras:
            return super().predicted(outputs, link)  # type: ignore[no-any-return]
        progress = 0.0 if self._progress_buffer is None else self._progress_buffer
        return terminal_values(outputs, link, extras, priors=self._priors_of(outputs, link), progress=progress)

    def _priors_of(self, outputs: Tensor, link: Link) -> Tensor:
        """The priors in a shape that broadcasts to the outputs; the rarest for outputs beyond the classes."""
        shares = self._shares
        if shares is None:
            return outputs.new_full((1,), 1 / outputs.shape[-1] if link is Link.SOFTMAX else 0.5)
        if self.kind == "multilabel":  # the labels are the second dimension
            return shares.reshape([len(shares)] + [1] * max(0, outputs.dim() - 2))
        if link is Link.SIGMOID:
            return shares[1:]
        if outputs.shape[-1] < len(shares):
            raise InputError(
                f"priors must have one entry for each of {plural(outputs.shape[-1], 'class')} but got {len(shares)}"
            )
        return torch.cat((shares, shares.min().expand(outputs.shape[-1] - len(shares))))

    def output_cost(self, probability: Tensor, y: int, classes: int) -> Tensor:
        """Returns the cost of single outputs with these probabilities, where all other classes are equally probable."""
        if not self.expression.extras:
            return super().output_cost(probability, y, classes)
        tiny = torch.finfo(probability.dtype).tiny
        log_p = probability.clamp(min=tiny).log()
        rest = ((1 - probability) / (classes - 1)).clamp(min=tiny).log()
        values = {PREDICTION: probability, LOG_PROBABILITY: log_p, BALANCED: log_p, MARGIN: log_p - rest}
        constants = {PRIOR: 1 / classes, PROGRESS: self.progress}
        values |= {token: torch.full_like(probability, number) for token, number in constants.items()}
        return self.value(values, torch.full_like(probability, y))

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
        # A kernel takes every bit as a sample of its own, which has the priors of a single label.
        has_labels = self.kind == "multilabel" and self._shares is not None
        if target.is_floating_point() or has_labels or not has_kernel(logits, target, self.weights):
            return of_bits(logits, target)
        return self._elements_by_kernel(logits, target, "multilabel", of_bits)

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        of_values = super().of_values
        if not has_kernel(output, target, self.weights):
            return of_values(output, target)
        return self._elements_by_kernel(output, target, "regression", of_values)

    def _by_kernel(self, output: Tensor, target: Tensor, kind: Kind, composed: Callable[[Tensor], Tensor]) -> Tensor:
        priors = None if self._shares is None else self.priors
        return sample_losses(
            self.expression, self.weights, output, target, kind=kind, activation=self.activation, composed=composed,
            priors=priors if priors is None or kind == "classification" else priors[1:], progress=self.progress,
        )  # fmt: skip

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

        form = self.expression.sympy(self._weight_list())
        return symbolic.softplus(form) if self.activation == "softplus" else form

    def display_form(self) -> Any:
        from evomal.expression import symbolic

        form = symbolic.shown_form(self.expression.tokens, self._weight_list())
        return symbolic.softplus(form) if form is not None and self.activation == "softplus" else form

    def formula(self) -> str:
        formula = self.expression.formula(self._weight_list())
        return f"softplus({formula})" if self.activation == "softplus" else formula

    def describe(self) -> Description:
        tree = self.expression
        nodes = (shorten(str(tree.subtree(position)), _LONGEST_NODE) for position in range(1, tree.size))
        numbers = tuple(zip(nodes, self.tree().edge_weights, strict=True))
        return Description(f"An expression of {plural(tree.size, 'node')}", str(tree), numbers)

    def tree(self) -> WeightedTree:
        return WeightedTree(self.expression, self._weight_list(), self.activation)

    def source(self, xp: str) -> SourceCode:
        lines = to_code(self.expression.tokens, self._weight_list(), xp)
        if self.activation == "softplus":
            lines[-1:] = [f"value = {lines[-1].removeprefix('return ')}", "return -logsigmoid(-value)  # softplus"]
        extras = self.expression.extras
        return SourceCode("terminals", lines, extras, self.priors) if extras else SourceCode("outputs", lines)

    def extra_repr(self) -> str:
        text = str(self.expression)
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}… ({self.expression.size} nodes)"
        return f"{shown}, {super().extra_repr()}"

    def _weight_list(self) -> list[float] | None:
        return None if self.weights is None else self.weights.tolist()

    def _latex(self) -> str:
        formula = self.expression.latex(self._weight_list())
        return rf"\log\left(1 + e^{{{formula}}}\right)" if self.activation == "softplus" else formula

    def _symbols(self) -> str:
        meanings = [f"{token}: {EXTRA_TERMINALS[token].meaning}" for token in self.expression.extras]
        return ", ".join([super()._symbols(), *meanings])

    def document(self) -> dict[str, Any]:
        found = super().document()
        if self.priors is not None:
            found["options"]["priors"] = list(self.priors)
        return found

    def _file_fields(self) -> tuple[str, dict[str, Any]]:
        return "expression", {"expression": str(self.expression), "weights": self.tree().edge_weights}


def evaluate(
    expression: Expression, prediction: Tensor | Values, target: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The root's value, every node's being multiplied by its edge's weight on the way to its parent.

    The prediction is f, or all terminals by their tokens.
    """
    terminals = {PREDICTION: prediction} if isinstance(prediction, Tensor) else prediction
    prediction = terminals[PREDICTION]
    edge_weights = () if weights is None else weights.to(prediction.dtype).unbind()

    def visit(position: int, token: str, arguments: Sequence[Tensor]) -> Tensor:
        if token in OPERATORS:
            value: Tensor = OPERATORS[token].value(torch, *arguments)
        elif token in CONSTANTS:
            value = torch.full_like(prediction, CONSTANTS[token])
        else:
            value = target if token == TARGET else terminals[token]
        return value * edge_weights[position - 1] if edge_weights and position else value

    return expression.fold(visit)


def starting_weights(expression: Expression, *, generator: np.random.Generator) -> list[float]:
    """Returns weights to start from, φ ~ N(1, 0.001²): near the formula as it is written; the noise breaks symmetries.

    Args:
        expression: The tree.
        generator: The source of randomness.

    Returns:
        One weight per edge in prefix order.

    Raises:
        InputError: The generator is not one of NumPy.

    Example:
        >>> weights = starting_weights(Expression.parse("mul(y, f)"), generator=np.random.default_rng(0))
        >>> [round(weight, 4) for weight in weights]
        [1.0001, 0.9999]
    """
    if not isinstance(generator, np.random.Generator):
        raise InputError(f"generator must be a numpy.random.Generator but got {short_repr(generator)}")
    return [float(weight) for weight in generator.normal(1.0, 1e-3, expression.edges)]
