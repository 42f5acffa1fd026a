"""A loss of the target's probability from logits to reduced value in one pass, and back in one.

Forward reads the logits once and keeps a few numbers a sample; backward reads them once and writes their gradient.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor

from evomal.losses.coefficients import Coefficients, TargetLosses
from evomal.losses.contract import is_eager

_BACKENDS = {"cpu": "evomal.losses.kernels_cpu"}
if importlib.util.find_spec("triton"):
    _BACKENDS["cuda"] = "evomal.losses.kernels_gpu"


def can_fuse(logits: Tensor, target: Tensor) -> bool:
    """Whether there is a kernel for these: (samples, classes) and (samples,) int64, plain tensors, CPU or CUDA."""
    return (
        logits.dim() == 2
        and target.dim() == 1
        and logits.shape[0] == target.shape[0]
        and logits.shape[1] > 1
        and target.dtype == torch.int64
        and logits.device == target.device
        and logits.device.type in _BACKENDS
        # Triton takes the coefficients in single precision, which is not enough for a double result.
        and not (logits.is_cuda and logits.dtype == torch.float64)
        and is_eager(logits)
    )


def fused_loss(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    *,
    ignore_index: int,
    reduction: str,
    coefficients: Coefficients,
    composed: Callable[[Tensor], Tensor],
) -> Tensor:
    """The reduced loss; `composed` computes the same from the logits by plain operations, for a second derivative."""
    arguments = (logits, target, weight, ignore_index, reduction, coefficients, composed)
    return cast(Tensor, _Fused.apply(*arguments))  # type: ignore[no-untyped-call]


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ignore_index: int,
        reduction: str,
        coefficients: Coefficients,
        composed: Callable[[Tensor], Tensor],
    ) -> Tensor:
        found: TargetLosses = _backend(logits.device.type).losses(logits, target, weight, ignore_index, coefficients)
        divisor = found.shares.sum() if reduction == "mean" else None
        ctx.composed = composed
        ctx.save_for_backward(logits, target, found.slopes, found.tops, found.logs, divisor)
        if reduction == "none":
            return found.losses
        return found.losses.sum() if divisor is None else found.losses.sum() / divisor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, slopes, tops, logs, divisor = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: someone will differentiate this backward pass
            return torch.autograd.grad(ctx.composed(logits), logits, gradients, create_graph=True)[0], *[None] * 6
        (gradient,) = gradients
        factors = slopes * (gradient if divisor is None else gradient / divisor)
        # An ignored sample gets no gradient even where the mean of nothing makes the rest NaN.
        factors = factors.masked_fill_(slopes == 0, 0)
        return _backend(logits.device.type).gradient(logits, target, tops, logs, factors), *[None] * 6


@functools.cache
def _backend(device: str) -> ModuleType:
    # Imported on first use: neither compiler should be loaded for the other's device.
    return importlib.import_module(_BACKENDS[device])
