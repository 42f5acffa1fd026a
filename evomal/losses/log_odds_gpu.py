"""The target's log-odds on a GPU, by Triton: one program a row forward, one a tile of a row backward."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from evomal.losses.contract import compute_dtype

_LARGEST_TILE = 8192


@triton.jit  # type: ignore[untyped-decorator]
def _log_odds_kernel(logits, target, others, result, classes, row_stride, TILE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    chosen = tl.load(target + row)
    dtype = others.dtype.element_ty
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
    rest = base + tl.log(tl.sum(total * tl.exp(top - base), axis=0))
    tl.store(others + row, rest)
    tl.store(result + row, tl.load(logits + row * row_stride + chosen).to(dtype) - rest)


@triton.jit  # type: ignore[untyped-decorator]
def _gradient_kernel(logits, target, others, factors, result, classes, row_stride, TILE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < classes
    chosen, rest, factor = tl.load(target + row), tl.load(others + row), tl.load(factors + row)
    rest = tl.where(rest == float("-inf"), 0.0, rest)
    value = tl.load(logits + row * row_stride + column, mask=inside, other=float("-inf")).to(rest.dtype)
    share = tl.where(column == chosen, factor, -factor * tl.exp(value - rest))
    tl.store(result + row * classes + column, share.to(result.dtype.element_ty), mask=inside)


def log_odds(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(samples,) log-odds of the targets, and the logsumexp of the other logits."""
    samples, classes = logits.shape
    others = logits.new_empty(samples, dtype=compute_dtype(logits))
    result = torch.empty_like(others)
    if samples:
        rows, tile = _rows(logits), _tile(classes)
        _log_odds_kernel[(samples,)](
            rows, target, others, result, classes, rows.stride(0), TILE=tile, num_warps=_warps(tile)
        )
    return result, others


def gradient(logits: Tensor, target: Tensor, others: Tensor, factors: Tensor) -> Tensor:
    """The gradient of Σ factors · log-odds with respect to the logits."""
    samples, classes = logits.shape
    result = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if samples:
        rows, tile = _rows(logits), _tile(classes)
        grid = (samples, triton.cdiv(classes, tile))
        _gradient_kernel[grid](
            rows,
            target,
            others,
            factors.contiguous(),
            result,
            classes,
            rows.stride(0),
            TILE=tile,
            num_warps=_warps(tile),
        )
    return result


def _rows(logits: Tensor) -> Tensor:
    return logits if logits.stride(1) == 1 else logits.contiguous()


def _tile(classes: int) -> int:
    return min(_LARGEST_TILE, int(triton.next_power_of_2(classes)))


def _warps(tile: int) -> int:
    return max(1, min(16, tile // 256))
