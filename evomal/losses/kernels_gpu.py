"""Losses of the target's probability on a GPU, by Triton: one program per row, and one per tile of a row backward."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evomal.forest.triton_backend import on_device_of
from evomal.losses.contract import compute_dtype
from evomal.losses.fused import Coefficients, TargetLosses

_LARGEST_TILE = 8192


@triton.jit  # type: ignore[untyped-decorator]
def _losses_kernel(  # type: ignore[no-untyped-def]
    logits, target, weight, losses, slopes, tops, logs, shares, classes, row_stride, ignore_index,
    scale, shift, focus, opposite, offset, WEIGHTED: tl.constexpr, TILE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Fill in what `TargetLosses` holds for one row."""
    row = tl.program_id(0).to(tl.int64)
    chosen = tl.load(target + row)
    ignored = chosen == ignore_index
    within = (chosen >= 0) & (chosen < classes)
    chosen = tl.where(within, chosen, 0)
    dtype = tops.dtype.element_ty
    # Online logsumexp of all columns but the target's: each lane keeps its own maximum and sum until the end.
    top = tl.full([TILE], float("-inf"), dtype)
    total = tl.zeros([TILE], dtype)
    for start in range(0, classes, TILE):
        column = start + tl.arange(0, TILE)
        kept = (column < classes) & (column != chosen)
        value = tl.load(logits + row * row_stride + column, mask=kept, other=float("-inf")).to(dtype)
        higher = tl.maximum(top, value)
        # Where a lane has seen nothing but −inf its maximum is replaced, as −inf − −inf would be NaN.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.exp(value - base)
        top = higher
    highest = tl.max(top, axis=0)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    log_total = tl.log(tl.sum(total * tl.exp(top - base), axis=0))
    d = (tl.load(logits + row * row_stride + chosen).to(dtype) - base) - log_total
    e = tl.exp(-tl.abs(d))
    # log1p(e) for 0 ≤ e ≤ 1: Triton has none, and log(1 + e) alone loses the digits of a small e.
    one_plus = 1.0 + e
    log1p = tl.where(one_plus == 1.0, e, tl.log(one_plus) * (e / tl.where(one_plus == 1.0, 1.0, one_plus - 1.0)))
    log_p = tl.where(d > 0, 0.0, d) - log1p
    log_rest = tl.where(d > 0, -d, 0.0) - log1p
    p = tl.where(d > 0, 1.0, e) / one_plus
    rest = tl.where(d > 0, e, 1.0) / one_plus
    # The formula of `Coefficients`, and its derivative with (log p)' = 1 − p and (log(1 − p))' = −p.
    shifted = log_p + shift
    sign = tl.where(shifted > 0, 1.0, tl.where(shifted < 0, -1.0, 0.0))
    focus_factor = tl.where(focus == 0, 1.0, tl.exp(focus * log_rest))
    opposite_factor = tl.where(focus == 0, 1.0, tl.exp(focus * log_p))
    against = tl.where(opposite == 0, 0.0, offset - log_rest)
    loss = scale * focus_factor * tl.abs(shifted) + opposite * opposite_factor * against
    slope = scale * focus_factor * (sign * rest - tl.where((focus == 0) | (p == 0), 0.0, focus * p * tl.abs(shifted)))
    slope += opposite * opposite_factor * (p + tl.where((focus == 0) | (rest == 0), 0.0, focus * rest * against))
    share = tl.where(ignored, 0.0, 1.0).to(dtype)
    if WEIGHTED:
        share *= tl.load(weight + chosen).to(dtype)
    # A kernel cannot raise: a target out of bounds costs NaN.
    loss = tl.where(within, loss, float("nan"))
    slope = tl.where(within, slope, float("nan"))
    # Selected, not multiplied by 0: a NaN in an ignored row must not get through.
    tl.store(losses + row, tl.where(ignored, 0.0, share * loss))
    tl.store(slopes + row, tl.where(ignored, 0.0, share * slope))
    tl.store(tops + row, base)
    tl.store(logs + row, log_total)
    tl.store(shares + row, share)


@triton.jit  # type: ignore[untyped-decorator]
def _gradient_kernel(logits, target, tops, logs, factors, result, classes, row_stride, TILE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Fill in factors · ∂(log-odds)/∂logits for one tile of a row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < classes
    chosen, top, factor = tl.load(target + row), tl.load(tops + row), tl.load(factors + row)
    log_total = tl.load(logs + row)
    log_total = tl.where(log_total == float("-inf"), 0.0, log_total)
    value = tl.load(logits + row * row_stride + column, mask=inside, other=float("-inf")).to(top.dtype)
    # Subtracted in two steps: together they would lose the digits of a small logarithm beside large logits.
    share = tl.where(column == chosen, factor, -factor * tl.exp((value - top) - log_total))
    share = tl.where(factor == 0, 0.0, share)
    tl.store(result + row * classes + column, share.to(result.dtype.element_ty), mask=inside)


def losses(
    logits: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, coefficients: Coefficients, reduction: str
) -> TargetLosses:
    """The reduced loss of a batch of class indices, and what its gradient needs."""
    samples, classes = logits.shape
    losses, slopes, tops, logs, shares = torch.empty(
        5, samples, dtype=compute_dtype(logits), device=logits.device
    ).unbind()
    target = target.contiguous()
    if samples:
        rows, tile = _rows(logits), _tile(classes)
        with on_device_of(logits):
            _losses_kernel[(samples,)](
                rows, target, rows if weight is None else weight.contiguous(), losses, slopes, tops, logs, shares,
                classes, rows.stride(0), ignore_index, *coefficients,
                WEIGHTED=weight is not None, TILE=tile, num_warps=_warps(tile),
            )  # fmt: skip
    divisor = shares.sum() if reduction == "mean" else None
    kept = (target, slopes, tops, logs, divisor)
    if reduction == "none":
        return TargetLosses(losses, kept)
    return TargetLosses(losses.sum() if divisor is None else losses.sum() / divisor, kept)


def gradient(logits: Tensor, kept: tuple[Any, ...], by_loss: Tensor) -> Tensor:
    """The gradient with respect to the logits, from that with respect to the reduced loss."""
    target, slopes, tops, logs, divisor = kept
    factors = slopes * (by_loss if divisor is None else by_loss / divisor)
    # An ignored sample has no gradient even where the mean of nothing makes the rest NaN.
    factors = factors.masked_fill_(slopes == 0, 0)
    samples, classes = logits.shape
    result = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if samples:
        rows, tile = _rows(logits), _tile(classes)
        with on_device_of(logits):
            _gradient_kernel[(samples, triton.cdiv(classes, tile))](
                rows, target, tops, logs, factors.contiguous(), result,
                classes, rows.stride(0), TILE=tile, num_warps=_warps(tile),
            )  # fmt: skip
    return result


def _rows(logits: Tensor) -> Tensor:
    return logits if logits.stride(1) == 1 else logits.contiguous()


def _tile(classes: int) -> int:
    return min(_LARGEST_TILE, int(triton.next_power_of_2(classes)))


def _warps(tile: int) -> int:
    return max(1, min(16, tile // 256))
