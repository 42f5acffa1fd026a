"""The base classes of losses. A `Loss` owns all its forms: formula, loss file, exported source, tree, SymPy."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.notation import latex_number
from evomal.extras import Displayed
from evomal.forest.codes import Link
from evomal.losses.contract import BatchLoss, compute_dtype, to_compute_dtype

Scalar = str | int | float | bool | None
Provenance = dict[str, Scalar | dict[str, Scalar]]
"""Where a loss comes from: task, model, method, seed, fitness, versions."""

_SYMBOLS = {
    "classification": "f: probability of a class, y: 1 for the target and 0 for the others, summed over the classes",
    "multilabel": "f: probability of a label, y: 1 where it applies and 0 where not",
    "regression": "f: output, y: target",
}


class WeightedTree(NamedTuple):
    """A loss as an expression tree."""

    expression: Expression
    weights: list[float] | None
    """One number per non-root node in prefix order; None for all ones."""
    activation: str = "identity"

    @property
    def edge_weights(self) -> list[float]:
        """The weights as numbers."""
        return [1.0] * self.expression.edges if self.weights is None else self.weights


class Description(NamedTuple):
    """What a person wants to know about a loss besides its formula."""

    subject: str
    """What the loss is, such as `An expression of 5 nodes`."""
    content: str
    """What defines it, as text."""
    numbers: tuple[tuple[str, float], ...] = ()
    """Its learned numbers with their names."""


Arguments = Literal["outputs", "terminals", "log_odds", "log_probabilities", "distribution"]
"""What `value` in an exported file takes: every output f with its target y; the terminals of every output with its
target y; the log-odds d of the target with the number of classes; the log-probability of every class with its share y
of the target and the number of classes; or the log-probabilities of all classes, from which `value` returns the cost of
each of them as the target."""


@dataclass(frozen=True)
class SourceCode:
    """The body of the function `value` in an exported file, as lines of Python."""

    applies_to: Arguments
    lines: list[str]
    extras: tuple[str, ...] = ()
    """Terminals of an expression besides f and y."""
    priors: tuple[float, ...] | None = None
    """Shares of the classes for those terminals."""


class Loss(BatchLoss, Displayed):
    """A loss as an ordinary module, `loss(output, target)`, that knows all its forms.

    Classification losses follow the contract of `torch.nn.CrossEntropyLoss`: logits `(N, C)`, `(N, C, d1, …)` or `(C,)`
    with class indices or class probabilities. A single logit is binary. To define a loss of your own, derive from one
    of the subclasses in this package.

    Args:
        kind: `classification`, `multilabel` or `regression`.
        weight: One factor per class (per label for multilabel).
        ignore_index: Target value of samples that do not contribute.
        reduction: `mean`, `sum` or `none`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> from evomal.losses import FocalLoss
        >>> loss = FocalLoss(gamma=0.0, reduction="sum")
        >>> float(loss(torch.zeros(3, 2), torch.tensor([0, 1, -100])))  # 2 · log 2
        1.3862943649291992
    """

    option_names: ClassVar[tuple[str, ...]] = ()
    """Arguments of the constructor besides those of the contract; each is kept as an attribute of that name."""
    is_learned: ClassVar[bool] = False
    """Whether the loss has learned numbers; it is then an `ElementwiseLoss`, a function of every output by itself."""
    has_formula: ClassVar[bool] = False
    """Whether there is a closed formula, so that `sympy` and `latex` return one."""
    prediction_latex: ClassVar[str] = "f"

    def __init__(self, **contract: Any) -> None:
        super().__init__(**contract)
        self.provenance: Provenance = {}

    @property
    def catalogue_name(self) -> str | None:
        """The name by which `named_loss` makes a loss of this class, or None."""
        return None

    @property
    def classes(self) -> int | None:
        """The number of classes that the loss was made for, by class weights or priors; None for any number."""
        return None if self.weight is None else len(self.weight)

    def formula(self) -> str:
        """Returns the simplified formula with rounded numbers, or the name of the class if there is none."""
        return type(self).__name__

    def symbols(self) -> str:
        """Returns the meaning of the symbols in the formula, and the units in which it was learned."""
        units = "" if self.units is None else f", learned in standardised units: {self.units}"
        return f"{self._symbols()}{units}"

    def describe(self) -> Description:
        """Returns what the loss is, what defines it, and its learned numbers."""
        return Description("A loss", type(self).__name__)

    def sympy(self) -> Any:
        """Returns the loss of one output as a SymPy expression, in standardised units if the loss has units.

        Raises:
            InputError: The loss has no closed formula.
        """
        raise InputError(f"{type(self).__name__} has no closed formula: export it as python, jax or onnx")

    def display_form(self) -> Any:
        """Returns the SymPy expression that reads like `formula()`, or None."""
        from evomal.expression.symbolic import rounded

        return rounded(self.sympy())

    def latex(self) -> str:
        """Returns the formula in LaTeX; if the loss has units, followed by the standardisation of raw values."""
        if self.units is None:
            return self._latex()
        mean, scale = (_latex_tuple(values) for values in (self.units.mean, self.units.scale))
        steps = r",\; ".join(
            rf"{name} \leftarrow \frac{{{name} - \mu}}{{\sigma}}" for name in ("y", self.prediction_latex)
        )
        return rf"{self._latex()} \quad \text{{with }} {steps},\; \mu = {mean},\; \sigma = {scale}"

    def tree(self) -> WeightedTree | None:
        """Returns the loss as an expression tree, or None if it is not one."""
        return None

    def cost(self, xp: Any, p: Any, y: int, classes: Any, options: Any = None) -> Any:
        """Returns what one output with the probability p and the target y costs, by a closed formula.

        Args:
            xp: A namespace with `abs` and `log` for the numbers used: torch, SymPy or others.
            p: The probability.
            y: 0 or 1.
            classes: The number of classes.
            options: An object with the options as attributes; None for those of the loss itself.

        Returns:
            The cost, or None if there is no such formula.
        """
        return None

    def output_cost(self, probability: Tensor, y: int, classes: int) -> Tensor:
        """Returns what single outputs with these probabilities and the target y, 0 or 1, cost."""
        found = self.cost(torch, probability, y, classes)
        if found is None:
            raise InputError(f"{type(self).__name__} has no value for a single output")
        result: Tensor = found
        return result

    def source(self, xp: str) -> SourceCode:
        """Returns the body of the exported function `value`, where `xp` is the name of torch or jax.numpy."""
        raise InputError(f"{type(self).__name__} cannot be exported as source")

    def document(self) -> dict[str, Any]:
        """Returns what a loss file says about the loss, provenance aside: losses with equal documents are equal.

        Raises:
            InputError: The class of the loss is not part of evomal, so that no file can describe it.
        """
        kind, fields = self._file_fields()
        options = {name: getattr(self, name) for name in self.option_names}
        options |= {} if self.weight is None else {"weight": self.weight.tolist()}
        options |= {"ignore_index": self.ignore_index, "reduction": self.reduction}
        units = {} if self.units is None else {"target_mean": self.units.mean, "target_scale": self.units.scale}
        return {"kind": kind, "task": self.kind, **fields, "options": options, **units}

    def extra_repr(self) -> str:
        """Returns the options, for `repr`."""
        options = ", ".join(f"{name}={getattr(self, name)!r}" for name in (*self.option_names, "kind", "reduction"))
        weighted = "" if self.weight is None else f", weight of {len(self.weight)} classes"
        return f"{options}{weighted}" if self.units is None else f"{options}{weighted}, units: {self.units}"

    def _symbols(self) -> str:
        return _SYMBOLS[self.kind]

    def _latex(self) -> str:
        import sympy

        return str(sympy.latex(self.sympy()))

    def _file_fields(self) -> tuple[str, dict[str, Any]]:
        """The kind of the loss file, and the fields that only this kind has."""
        raise InputError(f"only evomal's own losses can be saved but got {type(self).__name__}")


class HandMadeLoss(Loss):
    """A loss with a name in the catalogue; to be listed there, a class defines the three texts below."""

    has_formula = True
    name: ClassVar[str]
    definition: ClassVar[str]
    """The formula."""
    purpose: ClassVar[str]
    applies_to: ClassVar[Arguments]
    code: ClassVar[str | None] = None
    """The lines of `value` in an exported file, with `{xp}` for torch or jax.numpy and an option such as `{gamma}`."""

    @property
    def catalogue_name(self) -> str | None:
        """The name of the class; None for a class derived from it that has no name of its own."""
        return vars(type(self)).get("name")

    def formula(self) -> str:
        return super().formula() if self.catalogue_name is None else self.definition

    def describe(self) -> Description:
        return Description("A hand-made loss", f"{self.catalogue_name}: {self.purpose}")

    def source(self, xp: str) -> SourceCode:
        if self.code is None:
            return super().source(xp)
        options = {name: getattr(self, name) for name in self.option_names}
        return SourceCode(self.applies_to, self.code.format(xp=xp, **options).split("\n"))

    def _file_fields(self) -> tuple[str, dict[str, Any]]:
        if self.catalogue_name is None:
            return super()._file_fields()
        return "named", {"name": self.catalogue_name}


class ElementwiseLoss(Loss):
    """A loss M(f, y) of one output f and its target y, summed over the classes of a sample.

    For classification f = softmax(logits) and y is one-hot; with one logit, and for each label of a multilabel task,
    f = sigmoid(logit) and y is 0 or 1. Regression takes output and target as they are.

    If the targets are probabilities, the loss is the expected value over the classes, which is linear in the target
    like cross-entropy. The probabilities do not take the place of y, as a learned M need not have its minimum at f = y.
    """

    is_learned = True
    learned_tensors: ClassVar[tuple[str, ...]] = ()
    """Attributes that are part of the state dictionary although they are not buffers: they stay on the CPU, in double
    precision, wherever the module is moved."""

    @abstractmethod
    def value(self, prediction: Any, target: Tensor) -> Tensor:
        """M(f, y) elementwise, for tensors of one shape; the prediction is what `predicted` returns."""

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, tensor in self._unregistered():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        own = {prefix + name: tensor for name, tensor in self._unregistered()}
        others = {key: value for key, value in state_dict.items() if key not in own}
        super()._load_from_state_dict(others, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for key, tensor in own.items():
            if key not in state_dict:
                missing_keys += [key] if strict else []
            elif state_dict[key].shape != tensor.shape:
                shapes = f"{tuple(state_dict[key].shape)} from the checkpoint, {tuple(tensor.shape)} in the loss"
                error_msgs.append(f"size mismatch for {key}: {shapes}")
            else:
                with torch.no_grad():
                    tensor.copy_(state_dict[key])

    def _unregistered(self) -> list[tuple[str, Tensor]]:
        """The learned tensors that are not parameters; those torch saves and loads itself."""
        return [(name, vars(self)[name]) for name in self.learned_tensors if vars(self).get(name) is not None]

    def predicted(self, outputs: Tensor, link: Link) -> Any:
        """Returns f of the outputs, the prediction that `value` takes; the last dimension of outputs is the classes."""
        return Link.predictions(link, outputs)  # torch.compile of torch 2.11 cannot call a method of an enum's member

    def output_cost(self, probability: Tensor, y: int, classes: int) -> Tensor:
        return self.value(probability, torch.full_like(probability, y))

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        logits = logits.to(compute_dtype(logits))
        prediction = self.predicted(logits, Link.SOFTMAX)
        one_hot = torch.zeros_like(logits).scatter(1, target.unsqueeze(1), 1)
        losses = self.value(prediction, one_hot).sum(1)
        return losses if weight is None else losses * weight[target]

    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        logits, target = to_compute_dtype(logits, target)
        shares = target if weight is None else target * weight
        prediction = self.predicted(logits, Link.SOFTMAX)
        # Σ_c share_c · (M(f_c, 1) + Σ_{j≠c} M(f_j, 0)), with the terms of each output collected.
        return self._expected(prediction, shares, shares.sum(1, keepdim=True) - shares).sum(1)

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        is_soft = target.is_floating_point()
        logits, target = to_compute_dtype(logits, target)
        prediction = self.predicted(logits, Link.SIGMOID)
        return self._expected(prediction, target, 1 - target) if is_soft else self.value(prediction, target)

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return self.value(self.predicted(output, Link.IDENTITY), target)

    def _expected(self, prediction: Any, ones: Tensor, zeros: Tensor) -> Tensor:
        """ones · M(f, 1) + zeros · M(f, 0): equal bit by bit to M(f, y) where the shares are 0 and 1."""
        as_one = self.value(prediction, torch.ones_like(ones))
        as_zero = self.value(prediction, torch.zeros_like(ones))
        return ones * as_one + zeros * as_zero


def _latex_tuple(values: float | tuple[float, ...]) -> str:
    if isinstance(values, tuple):
        return rf"\left({', '.join(map(_latex_tuple, values))}\right)"
    return latex_number(values, 6)
