"""The contract of hand-made losses that look at the target's probability p alone."""

from abc import abstractmethod
from typing import Any

import sympy
from torch import Tensor

from evomal.losses.contract import Loss, to_compute_dtype
from evomal.losses.log_odds import all_log_odds, target_log_odds
from evomal.losses.row_blocks import by_blocks

PROBABILITY_SYMBOL = sympy.Symbol("p", positive=True)
CLASSES_SYMBOL = sympy.Symbol("C", positive=True, integer=True)


class TargetLoss(Loss):
    """A loss ℓ(p) of the target's softmax probability, written as a function of its log-odds d = log(p / (1 − p)).

    log p = logsigmoid(d) and log(1 − p) = logsigmoid(−d) are exact for any d. Class probabilities q cost Σ q_c ℓ(p_c),
    and a binary output is a problem of two classes with the log-odds ± its logit.
    """

    kinds = ("classification", "multilabel")

    @abstractmethod
    def of_log_odds(self, log_odds: Tensor, classes: int) -> Tensor:
        """ℓ elementwise."""

    @abstractmethod
    def sympy(self) -> Any:
        """ℓ as a SymPy expression in p and the number of classes C."""

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        losses = self.of_log_odds(target_log_odds(logits, target), logits.shape[1])
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
