"""The log-odds of the target, d = log p − log(1 − p): all that a loss of the target's probability needs of the logits.

With s = logsumexp of the other logits, d = z_target − s. Then log p = logsigmoid(d) and log(1 − p) = logsigmoid(−d) are
exact however close p is to 0 or 1 (1 − p is never formed by subtraction), and the derivative is as plain:
∂d/∂z_target = 1, ∂d/∂z_j = −exp(z_j − s). Forward reads the logits once, backward reads them once and writes their
gradient; only s, one number a sample, is kept between the two.
"""

import functools
import importlib
import importlib.util
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor

from evomal.losses.contract import compute_dtype
from evomal.losses.eager import is_eager


def target_log_odds(logits: Tensor, target: Tensor) -> Tensor:
    """(samples,) log-odds of each row's target class among at least two classes."""
    if not is_eager(logits) or logits.device.type not in _BACKENDS:
        return composed_target_log_odds(logits, target)
    return cast(Tensor, _TargetLogOdds.apply(logits, target))  # type: ignore[no-untyped-call]


def composed_target_log_odds(logits: Tensor, target: Tensor) -> Tensor:
    """The same by plain operations, for transforms, compilers and exporters; the tests' oracle for the fast path."""
    logits, column = logits.to(compute_dtype(logits)), target.unsqueeze(1)
    others = logits.scatter(1, column, -torch.inf).logsumexp(1)
    return logits.gather(1, column).squeeze(1) - others


def all_log_odds(logits: Tensor) -> Tensor:
    """(samples, classes) log-odds of every class."""
    logits = logits.to(compute_dtype(logits))
    top = logits.argmax(1, keepdim=True)
    log_p = logits.log_softmax(1)
    # Every class but the most probable has p ≤ 1/2, where 1 − p loses nothing; the top one takes the exact form.
    is_top = torch.zeros_like(log_p, dtype=torch.bool).scatter(1, top, True)
    small = log_p.masked_fill(is_top, -1.0)
    return torch.where(
        is_top, composed_target_log_odds(logits, top.squeeze(1)).unsqueeze(1), small - torch.log1p(-small.exp())
    )


class _TargetLogOdds(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        result, others = _backend(logits.device.type).log_odds(logits, target)
        ctx.save_for_backward(logits, target, others)
        return cast(Tensor, result)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, target, others = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: someone will differentiate this backward pass
            value = composed_target_log_odds(logits, target)
            return torch.autograd.grad(value, logits, gradients, create_graph=True)[0], None
        return _backend(logits.device.type).gradient(logits, target, others, *gradients), None


_BACKENDS = {"cpu": "evomal.losses.log_odds_cpu"}
if importlib.util.find_spec("triton"):
    _BACKENDS["cuda"] = "evomal.losses.log_odds_gpu"


@functools.cache
def _backend(device: str) -> ModuleType:
    # Imported on first use: neither compiler should be loaded for the other's device.
    return importlib.import_module(_BACKENDS[device])
