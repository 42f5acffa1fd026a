"""How losses of the target's probability p are computed: one formula with five coefficients, fused or in blocks.

The fused kernels go from logits to the reduced loss in one pass: forward reads the logits once and keeps a few numbers
per sample; backward reads them once and writes their gradient.
"""

import functools
import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from evomal.extras import has_numba, has_triton
from evomal.losses.contract import compute_dtype, is_eager

_BACKENDS = {
    **({"cpu": "evomal.losses.kernels_cpu"} if has_numba() else {}),
    **({"cuda": "evomal.losses.kernels_gpu"} if has_triton() else {}),
}

# 1 MiB of float32: in the second-level cache of current processors, and enough work beside a dozen operations that are
# called for it (a quarter of this takes half as long again); a GPU wants more work per launch.
_BLOCK_ELEMENTS = {"cpu": 1 << 18}
_DEVICE_BLOCK_ELEMENTS = 1 << 22

RowFunction = Callable[[Tensor, Tensor], Tensor]
Number = float | Tensor
"""A number of a formula; a tensor where it follows from a number of classes that a graph does not fix."""


def class_number(classes: Any, like: Tensor) -> Any:
    """Returns the number of classes, as a tensor if it is not known while a graph with dynamic shapes is made."""
    if type(classes) is int:
        return classes
    # Traces have tensors for numbers, and `torch.export` has symbols, of which it cannot take logarithms.
    if isinstance(classes, Tensor):
        return classes.to(like)
    return torch.scalar_tensor(classes, dtype=like.dtype, device=like.device)


def log_of(number: Any) -> Any:
    """Returns the logarithm of a number or a tensor."""
    return number.log() if isinstance(number, Tensor) else math.log(number)


def target_log_odds(logits: Tensor, target: Tensor) -> Tensor:
    """Returns (samples,) log-odds of the target class of each row, for at least two classes."""
    logits, column = logits.to(compute_dtype(logits)), target.unsqueeze(1)
    # A common offset does not change the odds, but a large one would cost digits.
    logits = logits - logits.detach().amax(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)
    others = logits.scatter(1, column, -torch.inf).logsumexp(1)
    return logits.gather(1, column).squeeze(1) - others


def all_log_odds(logits: Tensor) -> Tensor:
    """Returns (samples, classes) log-odds of every class."""
    logits = logits.to(compute_dtype(logits))
    top = logits.argmax(1, keepdim=True)
    # Every class but the most probable has p ≤ 1/2, where 1 − p loses nothing; the top one takes the exact form.
    is_top = torch.zeros_like(logits, dtype=torch.bool).scatter(1, top, True)
    small = logits.log_softmax(1).masked_fill(is_top, -1.0)
    return torch.where(is_top, target_log_odds(logits, top.squeeze(1)).unsqueeze(1), small - torch.log1p(-small.exp()))


class Coefficients(NamedTuple):
    """scale·(1 − p)^focus·|log p + shift| + opposite·p^focus·(offset − log(1 − p)).

    Cross-entropy, absolute cross-entropy, focal loss and the sparse smoothings are choices of these five numbers, so
    that one kernel per device serves them all.
    """

    scale: Number = 1.0
    shift: float = 0.0
    focus: float = 0.0
    opposite: Number = 0.0
    offset: Number = 0.0

    @property
    def is_cross_entropy(self) -> bool:
        """Whether it is −scale·log p."""
        return not (self.shift or self.focus or isinstance(self.opposite, Tensor) or self.opposite)

    def of_log_odds(self, log_odds: Tensor) -> Tensor:
        """Returns the formula elementwise in d = log(p / (1 − p)), by plain differentiable operations.

        log p = logsigmoid(d) and log(1 − p) = logsigmoid(−d) are exact for p close to 0 and 1. Powers are computed
        as exponentials of logarithms, since their own derivative is infinite or NaN where p or 1 − p underflows.
        """
        log_p, log_rest = F.logsigmoid(log_odds), F.logsigmoid(-log_odds)
        loss = self.scale * (log_p + self.shift).abs()
        if self.focus:
            loss = loss * (self.focus * log_rest).exp()
        if isinstance(self.opposite, Tensor) or self.opposite:
            against = self.opposite * (self.offset - log_rest)
            loss = loss + (against * (self.focus * log_p).exp() if self.focus else against)
        return loss


@dataclass
class TargetLosses:
    """The losses of a batch, and what their gradient needs."""

    losses: Tensor
    """ℓ times the weight of the target's class, 0 where the sample is ignored, reduced."""
    kept: Any
    """Numbers of each sample, in the form that the backend's `gradient` takes."""


def can_fuse(logits: Tensor, target: Tensor) -> bool:
    """Returns whether there is a kernel for (samples, classes) and (samples,) int64: plain tensors on CPU or CUDA."""
    device = logits.device
    return (
        device.type in _BACKENDS
        and device == target.device
        and logits.shape[1] > 1
        # Triton takes the coefficients in single precision, which is not enough for a double result.
        and not (logits.dtype == torch.float64 and device.type == "cuda")
        and is_eager(logits)
        and not _has_tangent(logits)
    )


def _has_tangent(logits: Tensor) -> bool:
    """Returns whether forward mode differentiates by the logits, which the kernels cannot."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(logits).tangent is not None  # type: ignore[no-untyped-call]


# Up to so many logits, what is cross-entropy or label smoothing is left to torch's own loss, which has no Python in it.
# Measured on a CPU with AVX-512 and torch 2.13, 32 to 2 048 rows of 2 to 10 000 classes, forward and backward, and on
# an H200 with torch 2.11, where a call of the kernels takes the host several times as long as one of torch's.
# As in torch, a NaN among the logits of a row that is ignored then gets NaN as its gradient; the kernels give it 0.
_FAST_IN_TORCH = {"cpu": 1 << 20, "cuda": 1 << 26}
"""On a CPU the kernels have 0.6 to 1.0 of torch's speed up to 2^18 logits; then, up to here, 1.2 to 1.4 with one
thread, but 0.5 with two; beyond that 1.2 to 4. On CUDA they have 0.3 to 0.4 of it up to 2^25, and 1.5 at 2^27."""
_CLASSES_OF_A_VECTOR = 16
_FAST_IN_TORCH_WITH_FEWER = 1 << 12
"""Rows of fewer classes than a vector register holds torch computes number by number on a CPU."""
_SMOOTHED_BY_TORCH = {"cpu": 1 << 19, "cuda": math.inf}
"""By blocks label smoothing has 0.7 of torch's speed up to here on a CPU, and 0.2 to 0.75 on CUDA whatever the size."""


def is_fast_in_torch(logits: Tensor) -> bool:
    """Returns whether torch's own cross-entropy of these logits takes no longer than that of the kernels."""
    device = logits.device.type
    if device == "cpu" and logits.shape[1] < _CLASSES_OF_A_VECTOR:
        return logits.numel() <= _FAST_IN_TORCH_WITH_FEWER
    return logits.numel() <= _FAST_IN_TORCH.get(device, 0)


def is_smoothed_fast_in_torch(logits: Tensor) -> bool:
    """Returns whether torch's own label smoothing of these logits takes no longer than that by blocks."""
    return logits.numel() <= _SMOOTHED_BY_TORCH.get(logits.device.type, _DEVICE_BLOCK_ELEMENTS)


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
    """Returns the reduced loss; `composed` computes it by plain operations, for second derivatives."""
    arguments = logits, target, weight, ignore_index, coefficients, reduction
    if logits.requires_grad and torch.is_grad_enabled():
        return cast(Tensor, _Fused.apply(logits, arguments, composed))  # type: ignore[no-untyped-call]
    return cast(Tensor, _backend(logits.device.type).losses(*arguments).losses)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, arguments: tuple[Any, ...], composed: Callable[[Tensor], Tensor]) -> Tensor:
        found: TargetLosses = _backend(logits.device.type).losses(*arguments)
        ctx.save_for_backward(logits)
        ctx.rest = found.kept, composed  # neither inputs nor outputs, so an attribute does
        return found.losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (logits,), (gradient,), (kept, composed) = ctx.saved_tensors, gradients, ctx.rest
        if torch.is_grad_enabled():  # create_graph: this backward pass will be differentiated
            return torch.autograd.grad(composed(logits), logits, gradient, create_graph=True)[0], None, None
        return _backend(logits.device.type).gradient(logits, kept, gradient), None, None


@functools.cache
def _backend(device: str) -> ModuleType:
    # Imported on first use, so that only the compiler of the device in use is loaded.
    return importlib.import_module(_BACKENDS[device])


def is_one_block(rows: Tensor) -> bool:
    """Returns whether the rows are so few that torch's operations are at least as fast as anything made of blocks."""
    return rows.numel() <= _BLOCK_ELEMENTS.get(rows.device.type, _DEVICE_BLOCK_ELEMENTS)


def blocks(rows: Tensor) -> Iterator[slice]:
    """Yields slices that cover all rows, each small enough to fit the cache."""
    elements = _BLOCK_ELEMENTS.get(rows.device.type, _DEVICE_BLOCK_ELEMENTS)
    step = max(1, elements // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        yield slice(start, start + step)


def by_blocks(function: RowFunction, logits: Tensor, target: Tensor, gradient: RowFunction | None = None) -> Tensor:
    """Returns `function(logits, target)`, whose row i depends only on row i of its arguments, in little memory.

    The backward pass computes each block again instead of keeping its intermediate results. `gradient` returns the
    gradient of the sum of the rows by the logits, where that is cheaper than differentiating the function.
    """
    if not is_eager(logits) or is_one_block(logits):
        return function(logits, target)
    return cast(Tensor, _ByBlocks.apply(function, logits, target, gradient))  # type: ignore[no-untyped-call]


class _ByBlocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: RowFunction, logits: Tensor, target: Tensor, gradient: RowFunction | None
    ) -> Tensor:
        ctx.function, ctx.gradient = function, gradient
        ctx.save_for_backward(logits, target)
        results = [function(logits[block], target[block]) for block in blocks(logits)]
        return torch.cat(results) if results else function(logits, target)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor | None, Tensor | None, None]:
        (gradient,) = gradients
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[1:3]
        places = [place for place, want in enumerate(wanted) if want]
        results: list[Any] = [None, None]
        if torch.is_grad_enabled():  # create_graph: this backward pass will be differentiated
            chosen = [tensors[place] for place in places]
            found = torch.autograd.grad(ctx.function(*tensors), chosen, gradient, create_graph=True)
            for place, result in zip(places, found, strict=True):
                results[place] = result
            return None, results[0], results[1], None
        for place in places:
            results[place] = torch.empty_like(tensors[place])
        for block in blocks(tensors[0]):
            if ctx.gradient is not None and not wanted[1]:
                found = ctx.gradient(tensors[0][block], tensors[1][block])
                torch.mul(found, gradient[block].unsqueeze(1), out=results[0][block])
                continue
            pieces = [tensor[block].detach().requires_grad_(want) for tensor, want in zip(tensors, wanted, strict=True)]
            with torch.enable_grad():
                value = ctx.function(*pieces)
            found = torch.autograd.grad(value, [pieces[place] for place in places], gradient[block])
            for place, piece in zip(places, found, strict=True):
                results[place][block] = piece
        return None, results[0], results[1], None
