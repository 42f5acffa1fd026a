"""One formula for every loss of the target's probability."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Coefficients:
    """scale·(1 − p)^focus·|log p + shift| + opposite·p^focus·(offset − log(1 − p)).

    Cross-entropy, absolute cross-entropy, focal loss and the sparse smoothings are choices of these five numbers, so
    that one kernel a device serves them all.
    """

    scale: float = 1.0
    shift: float = 0.0
    focus: float = 0.0
    opposite: float = 0.0
    offset: float = 0.0

    @property
    def numbers(self) -> tuple[float, ...]:
        """The five in order, as kernels take them."""
        return self.scale, self.shift, self.focus, self.opposite, self.offset

    def of_log_odds(self, log_odds: Tensor) -> Tensor:
        """The formula elementwise in d = log(p / (1 − p)), by plain differentiable operations.

        log p = logsigmoid(d) and log(1 − p) = logsigmoid(−d) are exact however close p is to 0 or 1. Powers are taken
        as exponentials of logarithms: their own derivative is infinite or NaN where p or 1 − p underflows.
        """
        log_p, log_rest = F.logsigmoid(log_odds), F.logsigmoid(-log_odds)
        loss = self.scale * (log_p + self.shift).abs()
        if self.focus:
            loss = loss * (self.focus * log_rest).exp()
        if self.opposite:
            against = self.opposite * (self.offset - log_rest)
            loss = loss + (against * (self.focus * log_p).exp() if self.focus else against)
        return loss


@dataclass(frozen=True)
class TargetLosses:
    """What a kernel finds for each sample."""

    losses: Tensor
    """ℓ times the weight of the target's class, 0 where the sample is ignored."""
    slopes: Tensor
    """The derivative of that by the log-odds."""
    tops: Tensor
    """The largest of the logits but the target's."""
    logs: Tensor
    """Logarithm of the sum of their exponentials relative to it."""
    shares: Tensor
    """The weight of the target's class, 0 where the sample is ignored."""
