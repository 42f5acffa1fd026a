"""Losses of the target's probability p alone: one formula with five coefficients, in terms of log-odds."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.losses.contract import compute_dtype


def target_log_odds(logits: Tensor, target: Tensor) -> Tensor:
    """(samples,) log-odds of each row's target class among at least two classes."""
    logits, column = logits.to(compute_dtype(logits)), target.unsqueeze(1)
    # Odds do not change under a common offset, but the digits of d beside it do.
    logits = logits - logits.detach().amax(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)
    others = logits.scatter(1, column, -torch.inf).logsumexp(1)
    return logits.gather(1, column).squeeze(1) - others


def all_log_odds(logits: Tensor) -> Tensor:
    """(samples, classes) log-odds of every class."""
    logits = logits.to(compute_dtype(logits))
    top = logits.argmax(1, keepdim=True)
    # Every class but the most probable has p ≤ 1/2, where 1 − p loses nothing; the top one takes the exact form.
    is_top = torch.zeros_like(logits, dtype=torch.bool).scatter(1, top, True)
    small = logits.log_softmax(1).masked_fill(is_top, -1.0)
    return torch.where(is_top, target_log_odds(logits, top.squeeze(1)).unsqueeze(1), small - torch.log1p(-small.exp()))


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
