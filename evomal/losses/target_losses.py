"""The contract of hand-made losses that look at the target's probability p alone."""

from abc import abstractmethod
from typing import Any

import sympy
from torch import Tensor

from evomal.losses.coefficients import Coefficients, all_log_odds, target_log_odds
from evomal.losses.contract import Loss, compute_dtype, to_compute_dtype
from evomal.losses.elementwise import by_blocks
from evomal.losses.fused import can_fuse, fused_loss

PROBABILITY_SYMBOL = sympy.Symbol("p", positive=True)
CLASSES_SYMBOL = sympy.Symbol("C", positive=True, integer=True)


class TargetLoss(Loss):
    """A loss ℓ(p) of the target's softmax probability, given by the coefficients of one formula.

    Class probabilities q cost Σ q_c ℓ(p_c), and a binary output is a problem of two classes with the log-odds ± its
    logit.
    """

    kinds = ("classification", "multilabel")

    @abstractmethod
    def coefficients(self, classes: int) -> Coefficients:
        """ℓ for so many classes."""

    @abstractmethod
    def sympy(self) -> Any:
        """ℓ as a SymPy expression in p and the number of classes C."""

    def fused(self, logits: Tensor, target: Tensor) -> Tensor | None:
        if not can_fuse(logits, target):
            return None
        return fused_loss(
            logits,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            coefficients=self.coefficients(logits.shape[1]),
            composed=lambda z: self.composed(
                z, target, None if self.weight is None else self.weight.to(compute_dtype(z)), target.shape
            ),
        )

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        losses = self.coefficients(logits.shape[1]).of_log_odds(target_log_odds(logits, target))
        return losses if weight is None else losses * weight[target]

    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        of_log_odds = self.coefficients(logits.shape[1]).of_log_odds

        def of_rows(rows: Tensor, shares: Tensor) -> Tensor:
            rows, shares = to_compute_dtype(rows, shares)
            losses = of_log_odds(all_log_odds(rows)) * shares
            return losses.sum(1) if weight is None else losses @ weight

        return by_blocks(of_rows, logits, target)

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        of_log_odds = self.coefficients(2).of_log_odds

        def of_rows(rows: Tensor, shares: Tensor) -> Tensor:
            log_odds, shares = to_compute_dtype(rows, shares)
            return shares * of_log_odds(log_odds) + (1 - shares) * of_log_odds(-log_odds)

        return by_blocks(of_rows, logits.reshape(-1, 1), target.reshape(-1, 1)).reshape(logits.shape)
