"""The base classes of hand-made classification losses: a formula for one target, applied to all forms of targets."""

from abc import abstractmethod
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.checks import Kind
from evomal.losses.contract import compute_dtype, to_compute_dtype
from evomal.losses.fused import (
    Coefficients,
    all_log_odds,
    by_blocks,
    can_fuse,
    class_number,
    fused_loss,
    is_fast_in_torch,
    target_log_odds,
)
from evomal.losses.loss import HandMadeLoss


class ClassificationLoss(HandMadeLoss):
    """A hand-made loss for classification and multilabel tasks; `cost` is its formula for one output."""

    kinds: ClassVar[tuple[Kind, ...]] = ("classification", "multilabel")

    @abstractmethod
    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any: ...

    def by_torch(self, logits: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
        """Returns the reduced cross-entropy by torch's own kernels, with the weights and the reduction of this loss."""
        weight, dtype = self.own_weight, compute_dtype(logits)
        if weight is not None:
            weight = weight.to(dtype)
        if logits.dtype != dtype:  # a conversion that changes nothing still takes as long as all these checks
            logits = logits.to(dtype)
        return F.cross_entropy(
            logits, target, weight=weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=smoothing,
        )  # fmt: skip

    def sympy(self) -> Any:
        """Returns the loss as a SymPy expression in the target's probability p and the number of classes C."""
        from evomal.expression.symbolic import PROBABILITY_SYMBOL

        return self._sympy(PROBABILITY_SYMBOL, 1)

    def _sympy(self, p: Any, y: Any) -> Any:
        import sympy

        from evomal.expression.symbolic import CLASSES_SYMBOL, exact_number

        options = {name: getattr(self, name) for name in self.option_names}
        numbers = {name: exact_number(value) if isinstance(value, float) else value for name, value in options.items()}
        functions = SimpleNamespace(abs=sympy.Abs, log=sympy.log)
        return self.cost(functions, p, y, CLASSES_SYMBOL, SimpleNamespace(**numbers))

    def _symbols(self) -> str:
        in_p = "p: probability of the target, C: number of classes"
        return in_p if self.kind == "classification" else super()._symbols()


class TargetLoss(ClassificationLoss):
    """A loss ℓ(p) of the target's softmax probability.

    Class probabilities q cost Σ q_c ℓ(p_c). A binary output is a problem of two classes whose log-odds are its logit
    and the negative of it.
    """

    applies_to = "log_odds"

    @abstractmethod
    def of_log_odds(self, log_odds: Tensor, classes: int) -> Tensor:
        """ℓ elementwise in d = log(p / (1 − p)): log p = logsigmoid(d) and 1 − p = sigmoid(−d) lose no digits."""

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        def of_rows(rows: Tensor, indices: Tensor) -> Tensor:
            return self.of_log_odds(target_log_odds(rows, indices), rows.shape[1])

        losses = by_blocks(of_rows, logits, target)
        return losses if weight is None else losses * weight[target]

    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        def of_rows(rows: Tensor, shares: Tensor) -> Tensor:
            rows, shares = to_compute_dtype(rows, shares)
            losses = self.of_log_odds(all_log_odds(rows), rows.shape[1]) * shares
            return losses.sum(1) if weight is None else losses @ weight

        return by_blocks(of_rows, logits, target)

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        def of_rows(rows: Tensor, shares: Tensor) -> Tensor:
            log_odds, shares = to_compute_dtype(rows, shares)
            return shares * self.of_log_odds(log_odds, 2) + (1 - shares) * self.of_log_odds(-log_odds, 2)

        return by_blocks(of_rows, logits.reshape(-1, 1), target.reshape(-1, 1)).reshape(logits.shape)


class FusedTargetLoss(TargetLoss):
    """A loss ℓ(p) of the target's probability that is given by the coefficients of one formula, with its kernels."""

    @abstractmethod
    def coefficients(self, classes: Any) -> Coefficients:
        """ℓ for this number of classes, a whole number or a tensor."""

    def of_log_odds(self, log_odds: Tensor, classes: int) -> Tensor:
        return self.coefficients(class_number(classes, log_odds)).of_log_odds(log_odds)

    def fused(self, logits: Tensor, target: Tensor) -> Tensor | None:
        if not can_fuse(logits, target):
            return None
        coefficients = self.coefficients(logits.shape[1])
        if coefficients.is_cross_entropy and is_fast_in_torch(logits):
            value = self.by_torch(logits, target)
            return value if coefficients.scale == 1 else coefficients.scale * value
        return fused_loss(
            logits,
            target,
            self.own_weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            coefficients=coefficients,
            composed=lambda z: self.composed(
                z, target, None if self.weight is None else self.weight.to(compute_dtype(z)), target.shape
            ),
        )

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        # Without blocks: this serves where the kernels cannot, for second derivatives above all.
        losses = self.of_log_odds(target_log_odds(logits, target), logits.shape[1])
        return losses if weight is None else losses * weight[target]


class DistributionLoss(ClassificationLoss):
    """A loss that depends on the probabilities of all classes, and not on the target's alone.

    Class probabilities q cost Σ q_c times the loss of the class c as the target. A binary output is a problem of two
    classes.
    """

    applies_to = "distribution"

    @abstractmethod
    def of_targets(self, log_p: Tensor, of_all: Tensor) -> Tensor:
        """Returns the losses of targets with these log-probabilities, several per row, from those of all classes."""

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Returns the log-probabilities that `of_targets` takes."""
        return logits.log_softmax(1)

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        def of_rows(rows: Tensor, indices: Tensor) -> Tensor:
            of_all = self.log_probabilities(rows.to(compute_dtype(rows)))
            return self.of_targets(of_all.gather(1, indices.unsqueeze(1)), of_all).squeeze(1)

        losses = by_blocks(of_rows, logits, target)
        return losses if weight is None else losses * weight[target]

    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        def of_rows(rows: Tensor, shares: Tensor) -> Tensor:
            rows, shares = to_compute_dtype(rows, shares)
            of_all = self.log_probabilities(rows)
            losses = self.of_targets(of_all, of_all) * shares
            return losses.sum(1) if weight is None else losses @ weight

        return by_blocks(of_rows, logits, target)

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        def of_rows(rows: Tensor, shares: Tensor) -> Tensor:
            rows, shares = to_compute_dtype(rows, shares)
            of_all = self.log_probabilities(torch.cat((torch.zeros_like(rows), rows), 1))
            losses = self.of_targets(of_all, of_all)
            return shares * losses[:, 1:] + (1 - shares) * losses[:, :1]

        return by_blocks(of_rows, logits.reshape(-1, 1), target.reshape(-1, 1)).reshape(logits.shape)
