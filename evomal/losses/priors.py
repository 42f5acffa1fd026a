"""Losses for classes of unequal size: they take the share of each class in the training data, its prior."""

import copy
import math
from collections.abc import Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.checks import finite_number
from evomal.errors import InputError
from evomal.forest.terminals import checked_priors
from evomal.losses.classification import CrossEntropyLoss
from evomal.losses.classification_base import ClassificationLoss, DistributionLoss
from evomal.losses.loss import SourceCode
from evomal.text import plural

Priors = Tensor | Sequence[float]


class PriorLoss(ClassificationLoss):
    """A loss that depends on the priors of the classes.

    On a task, a loss without priors takes those of the task's training part; elsewhere all classes have equal priors.
    """

    kinds = ("classification",)
    priors: tuple[float, ...] | None = None
    _takes_more_outputs = False
    _has_task_priors = False  # which are replaced by those of another task, unlike priors that were given

    def with_priors(self, priors: Priors | None) -> Self:
        """Returns the same loss with these priors.

        Args:
            priors: The share of each class: numbers above 0 that add up to 1; None for equal shares.

        Returns:
            A copy of the loss.

        Raises:
            InputError: The priors break their rule.

        Example:
            >>> from evomal.losses import ClassWeightedCrossEntropyLoss
            >>> ClassWeightedCrossEntropyLoss().with_priors([0.25, 0.75]).priors
            (0.25, 0.75)
        """
        twin = copy.deepcopy(self)
        twin._take_priors(priors)
        twin._has_task_priors = False
        return twin

    def on_task(self, priors: Priors) -> Self:
        """Returns the same loss for a task whose classes have these priors; priors that it was given are kept.

        A model may have more outputs than the task has classes. Those outputs are never a target; the loss treats them
        as classes that are as rare as the rarest one.
        """
        is_given = self.priors is not None and not self._has_task_priors
        twin = self.with_priors(self.priors if is_given else priors)
        twin._takes_more_outputs, twin._has_task_priors = True, not is_given
        return twin

    @property
    def classes(self) -> int | None:
        return super().classes if self.priors is None else len(self.priors)

    def _take_priors(self, priors: Priors | None) -> None:
        """Keep the priors, and the tensors that follow from them."""
        self.priors = None if priors is None else checked_priors(priors, "classification")

    def _classification(self, output: Tensor, target: Tensor) -> Tensor:
        outputs = output.shape[:2][-1] if output.dim() else 0  # (C,), (N, C) or (N, C, d1, …)
        if self._takes_more_outputs and self.priors is not None and outputs > len(self.priors):
            # Not by new priors, which would cost a copy from the host to the device in every step.
            twin, more = copy.copy(self), (0, outputs - len(self.priors))
            # The new classes are as rare as the rarest one; a weight for them is never used.
            values = {name: 1.0 if name == "weight" else min(self.priors) for name in self._buffers}
            twin._buffers = {
                name: None if buffer is None else F.pad(buffer, more, value=values[name])
                for name, buffer in self._buffers.items()
            }
            twin._takes_more_outputs = False
            return twin._classification(output, target)
        return super()._classification(output, target)

    def _symbols(self) -> str:
        return "p: probability of the target, pi: its class's share of the training data, C: number of classes"


class ClassWeightedCrossEntropyLoss(PriorLoss, CrossEntropyLoss):
    """Cross-entropy −w·log p with the balanced class weights w = 1/(C·π) of the priors π (King and Zeng, 2001).

    Every class then contributes equally, however rare it is. A mean divides by the sum of the weights, as in
    `torch.nn.CrossEntropyLoss(weight=…)`.

    Args:
        priors: The share π of each class: numbers above 0 that add up to 1. None for those of the task that the loss
            is used on, and for equal shares, with which it is cross-entropy, where there is no task.
        contract: The arguments of `Loss` except `weight`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> ClassWeightedCrossEntropyLoss([0.25, 0.75]).weight
        tensor([2.0000, 0.6667])
    """

    name, definition = "class-weighted-ce", "-w log p, w = 1/(C pi)"
    purpose = "cross-entropy in which rare classes count as much as others"
    option_names = ("priors",)

    def __init__(self, priors: Priors | None = None, **contract: Any) -> None:
        if contract.get("weight") is not None:
            raise InputError("class-weighted-ce makes its weights from priors, so it takes no weight")
        super().__init__(**contract)
        self._take_priors(priors)

    def _take_priors(self, priors: Priors | None) -> None:
        super()._take_priors(priors)
        found = None if self.priors is None else [1 / (len(self.priors) * share) for share in self.priors]
        self.weight = None if found is None else torch.tensor(found, dtype=torch.float32)

    def sympy(self) -> Any:
        """Returns the loss as a SymPy expression in the target's probability p and the weight w of its class."""
        import sympy

        form = super().sympy()
        return form if self.priors is None else form * sympy.Symbol("w", positive=True)

    def document(self) -> dict[str, Any]:
        found = super().document()
        found["options"].pop("weight", None)  # it follows from the priors
        return found


class BalancedSoftmaxLoss(PriorLoss, DistributionLoss):
    """−log(π^τ·p / Σ_i π_i^τ·p_i): cross-entropy of the logits plus τ·log π, for the priors π of the classes.

    With τ = 1 it is balanced softmax (Ren et al., 2020), with any τ the logit-adjusted loss (Menon et al., 2021).
    Trained on classes of unequal size, the unadjusted logits are those of a classifier for classes of equal size.

    Args:
        tau: The strength τ of the adjustment; at least 0. With 0 it is cross-entropy.
        priors: The share π of each class: numbers above 0 that add up to 1. None for those of the task that the loss
            is used on, and for equal shares, with which it is cross-entropy, where there is no task.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> loss = BalancedSoftmaxLoss(priors=[0.25, 0.75])
        >>> float(loss(torch.zeros(1, 2), torch.tensor([0])))  # -log 0.25
        1.3862943649291992
    """

    name, definition = "balanced-softmax", "-log(pi^t p / sum_i pi_i^t p_i)"
    purpose = "cross-entropy corrected for the sizes of the classes"
    option_names = ("tau", "priors")
    _shares: Tensor | None

    def __init__(self, tau: float = 1.0, priors: Priors | None = None, **contract: Any) -> None:
        super().__init__(**contract)
        self.tau = finite_number("tau", tau, at_least=0)
        self.register_buffer("_shares", None, persistent=False)
        self._take_priors(priors)

    def _take_priors(self, priors: Priors | None) -> None:
        super()._take_priors(priors)
        # In single precision like other buffers of a module: not every device supports double.
        self._shares = None if self.priors is None else torch.tensor(self.priors, dtype=torch.float32)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        if self._shares is None:
            return super().log_probabilities(logits)
        if (classes := logits.shape[1]) != len(self._shares):
            raise InputError(
                f"priors must have one entry for each of {plural(classes, 'class')} but got {len(self._shares)}"
            )
        return super().log_probabilities(logits + self.tau * self._shares.to(logits.dtype).log())

    def of_targets(self, log_p: Tensor, of_all: Tensor) -> Tensor:
        return -log_p

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        # With priors, what one output costs depends on the others.
        return -y * xp.log(p) if self.priors is None else None

    def sympy(self) -> Any:
        """Returns the loss as a SymPy expression in p, the prior pi of its class, and the sum Z of all pi_i^τ·p_i."""
        import sympy

        from evomal.expression.symbolic import PROBABILITY_SYMBOL, exact_number

        form = -sympy.log(PROBABILITY_SYMBOL)
        if self.priors is None:
            return form
        prior, total = sympy.symbols("pi Z", positive=True)
        return form - exact_number(self.tau) * sympy.log(prior) + sympy.log(total)

    def source(self, xp: str) -> SourceCode:
        if self._shares is None:
            return SourceCode("distribution", ["return -log_p"])
        numbers = [self.tau * math.log(share) for share in self._shares.tolist()]
        offsets = f"log_p.new_tensor({numbers})" if xp == "torch" else f"{xp}.asarray({numbers}, log_p.dtype)"
        return SourceCode(
            "distribution",
            [
                f"adjusted = log_p + {offsets}",
                f"adjusted = adjusted - {xp}.amax(adjusted, -1)[..., None]",
                f"return {xp}.log({xp}.exp(adjusted).sum(-1))[..., None] - adjusted",
            ],
        )

    def _symbols(self) -> str:
        return f"{super()._symbols()}, Z: sum of pi_i^t p_i"
