"""Log-odds d = log p − log(1 − p) of softmax probabilities, without ever forming 1 − p by subtraction.

With s = logsumexp of the other logits, d = z − s: exact where 1 − p underflows, which log(1 − exp(log p)) is not (in
float32 that is −∞ from a gap of about 18 on). The derivative is as plain: ∂d/∂z = 1, ∂d/∂z_j = −exp(z_j − s).
"""

import torch
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
