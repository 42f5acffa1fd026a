"""Losses of the target's probability on the CPU, by numba: every row is processed while it is in the cache."""

import math
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba.extending import intrinsic
from torch import Tensor

from evomal.compiled import VECTORISABLE, exp_nonpositive, inner, kernel, log_positive
from evomal.losses.contract import compute_dtype
from evomal.losses.fused import Coefficients, TargetLosses, blocks
from evomal.threads import kernel_threads

_NO_WEIGHTS = {dtype: torch.empty(0, dtype=dtype).numpy() for dtype in (torch.float32, torch.float64)}
_ELEMENTS_PER_PART = 1 << 17  # some 50 microseconds of work for a thread, several times what handing it over costs

_ROWS = 64  # rows whose numbers are computed side by side, in vector registers
_FEW_CLASSES = 128  # up to here rows are transposed, since a row of its own would leave vectors half empty
_VECTOR = 8  # rows of more classes are filled up to multiples of this, which leaves vector loops no remainder


@intrinsic
def _larger(typing_context: Any, one: Any, other: Any) -> Any:
    """The larger of two floats, as an operation of which LLVM makes vectors; NaN if one of them is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = arguments[0].type
        largest = builder.module.declare_intrinsic("llvm.maximum", [number], ir.FunctionType(number, [number, number]))
        return builder.call(largest, arguments, fastmath=("nsz",))

    return one(one, one), generate


@inner()
def _largest(numbers: Any) -> Any:
    top = numbers[0]
    for j in range(1, len(numbers)):
        top = _larger(top, numbers[j])  # type: ignore[call-arg]
    return top


@inner(fastmath={"reassoc", "nsz"})  # in any order, which a sum in vector registers needs
def _sum(numbers: Any) -> Any:
    total = numbers[0]
    for j in range(1, len(numbers)):
        total += numbers[j]
    return total


@inner(fastmath=VECTORISABLE)
def _others_of_few(logits: Any, columns: Any, room: Any, tops: Any, totals: Any) -> None:
    """Fill in for each row its largest element without that of its column, and the sum of exponentials relative to it.

    The room has the rows of the logits as columns.
    """
    lowest = np.finfo(logits.dtype).min
    for i in range(len(logits)):
        for j in range(logits.shape[1]):
            room[j, i] = logits[i, j]
        room[columns[i], i] = -np.inf
    tops[:] = lowest
    totals[:] = 0
    for j in range(logits.shape[1]):
        for i in range(len(logits)):
            # A NaN is lost here; it reaches the loss through its exponential.
            tops[i] = room[j, i] if room[j, i] > tops[i] else tops[i]
    for j in range(logits.shape[1]):
        for i in range(len(logits)):
            totals[i] += exp_nonpositive(room[j, i] - tops[i])


@inner(fastmath=VECTORISABLE)
def _others_of_many(logits: Any, columns: Any, room: Any, tops: Any, totals: Any) -> None:
    """The same for rows of many classes, one after the other; the room is a row filled up to whole vectors."""
    lowest = np.finfo(logits.dtype).min
    classes = logits.shape[1]
    for i in range(len(logits)):
        for j in range(classes):
            room[j] = logits[i, j]
        for j in range(classes, len(room)):
            room[j] = lowest
        room[columns[i]] = lowest
        top = _largest(room)
        top = top if top > lowest else lowest
        for j in range(len(room)):
            room[j] = exp_nonpositive(room[j] - top)
        room[columns[i]] = 0
        tops[i], totals[i] = top, _sum(room[:classes])


@inner(fastmath=VECTORISABLE, error_model="numpy")
def _formula(
    log_odds: Any, losses: Any, slopes: Any, scale: Any, shift: Any, focus: Any, opposite: Any, offset: Any
) -> None:
    """Fill in the formula of `Coefficients`, and its derivative with (log p)' = 1 − p and (log(1 − p))' = −p."""
    zero, one = log_odds.dtype.type(0), log_odds.dtype.type(1)
    for i in range(len(log_odds)):
        d = log_odds[i]
        e = exp_nonpositive(-abs(d))
        # log1p(e) for 0 ≤ e ≤ 1: log(1 + e) alone loses the digits of a small e.
        one_plus = one + e
        log1p = e if one_plus == one else log_positive(one_plus) * (e / (one_plus - one))
        log_p, log_rest = (d if d < zero else zero) - log1p, (zero if d < zero else -d) - log1p
        p, rest = (e if d < zero else one) / one_plus, (one if d < zero else e) / one_plus
        shifted = log_p + shift
        size = abs(shifted)
        sign = one if shifted > zero else (-one if shifted < zero else shifted)
        if focus:
            factor = scale * exp_nonpositive(focus * log_rest)
            losses[i] = factor * size
            slopes[i] = factor * (sign * rest - (focus * p * size if p > zero else zero))
        else:
            losses[i] = scale * size
            slopes[i] = scale * sign * rest
        if opposite:
            against = offset - log_rest
            factor = opposite * (exp_nonpositive(focus * log_p) if focus else one)
            losses[i] += factor * against
            slopes[i] += factor * (p + (focus * rest * against if focus and rest > zero else zero))


@kernel(fastmath=VECTORISABLE)
def _losses(
    logits: Any, target: Any, losses: Any, slopes: Any, tops: Any, totals: Any,
    weight: Any, ignore_index: int, scale: float, shift: float, focus: float, opposite: float, offset: float,
) -> float:  # fmt: skip
    """Fill in what `TargetLosses` holds; the sum of the shares, or NaN if a target is out of bounds."""
    number, classes, sum_of_shares = logits.dtype.type, logits.shape[1], 0.0
    few = classes <= _FEW_CLASSES
    room = np.empty((classes, _ROWS) if few else (1, -(-classes // _VECTOR) * _VECTOR), logits.dtype)
    columns, log_odds, shares = np.empty(_ROWS, np.int64), np.empty(_ROWS, logits.dtype), np.empty(_ROWS, logits.dtype)
    for start in range(0, len(target), _ROWS):
        stop = min(start + _ROWS, len(target))
        for i in range(start, stop):
            k = target[i]
            if k == ignore_index:
                columns[i - start] = 0
                continue
            if not 0 <= k < classes:
                return np.nan
            columns[i - start], shares[i - start] = k, weight[k] if len(weight) else 1.0
            sum_of_shares += shares[i - start]
        if few:
            _others_of_few(logits[start:stop], columns, room, tops[start:stop], totals[start:stop])
        else:
            _others_of_many(logits[start:stop], columns, room[0], tops[start:stop], totals[start:stop])
        for i in range(start, stop):
            log_total = log_positive(totals[i]) if totals[i] != 0 else -number(np.inf)
            log_odds[i - start] = (logits[i, columns[i - start]] - tops[i]) - log_total
        _formula(
            log_odds[: stop - start], losses[start:stop], slopes[start:stop],
            number(scale), number(shift), number(focus), number(opposite), number(offset),
        )  # fmt: skip
        for i in range(start, stop):
            # Selected, not multiplied by 0: a NaN in an ignored row must not get through.
            losses[i] = 0 if target[i] == ignore_index else shares[i - start] * losses[i]
            slopes[i] = 0 if target[i] == ignore_index else shares[i - start] * slopes[i]
    return sum_of_shares


@kernel(error_model="numpy")
def _reduce(losses: Any, divisor: float, result: Any) -> None:
    """Fill in Σ losses / divisor, in double precision and by one thread, whatever number of threads there is."""
    total = 0.0
    for loss in losses:
        total += loss
    result[()] = total / divisor


@kernel(fastmath=VECTORISABLE, error_model="numpy")
def _gradient(
    logits: Any, target: Any, slopes: Any, tops: Any, totals: Any, result: Any, scale: float
) -> None:  # fmt: skip
    """Fill in scale · slopes · ∂d/∂logits: 1 for the target, minus its share among the others for the rest."""
    for i in range(len(target)):
        # An ignored sample, whose target may be anything, has no gradient even where the scale is NaN.
        if slopes[i] == 0 or not 0 <= target[i] < logits.shape[1]:
            result[i, :] = 0
            continue
        top, of_target = tops[i], logits.dtype.type(scale * slopes[i])
        # The sum is 0 where every other class is excluded by −inf.
        factor = -of_target / totals[i] if totals[i] != 0 else totals[i]
        for j in range(logits.shape[1]):
            result[i, j] = factor * exp_nonpositive(logits[i, j] - top)
        result[i, target[i]] = of_target


# Between the kernels there are numbers and arrays: every operation on tensors takes longer than a small batch.


def losses(
    logits: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, coefficients: Coefficients, reduction: str
) -> TargetLosses:
    """The reduced loss of a batch of class indices, and what its gradient needs."""
    dtype = compute_dtype(logits)
    weights = _NO_WEIGHTS[dtype] if weight is None else weight.detach().to(dtype).numpy()
    constants = (weights, ignore_index, *coefficients)
    indices = _array(target)
    found, slopes, tops, totals = np.empty((4, len(indices)), weights.dtype)
    per_row = (indices, found, slopes, tops, totals)
    if logits.dtype is dtype:
        shares = sum(_over_rows(_losses, (_array(logits), *per_row), constants))
    else:
        shares = 0.0
        for block in blocks(logits):
            rows = _array(logits[block].to(dtype))
            shares += sum(_over_rows(_losses, (rows, *(array[block] for array in per_row)), constants))
    if math.isnan(shares):
        outside = (target != ignore_index) & ((target < 0) | (target >= logits.shape[1]))
        raise IndexError(f"Target {target[outside][0].item()} is out of bounds.")
    divisor = shares if reduction == "mean" else 1.0
    result = found if reduction == "none" else np.empty((), found.dtype)
    if reduction != "none":
        _reduce(found, divisor, result)
    return TargetLosses(torch.from_numpy(result), (indices, slopes, tops, totals, divisor))


def gradient(logits: Tensor, kept: tuple[Any, ...], by_loss: Tensor) -> Tensor:
    """The gradient with respect to the logits, from that with respect to the reduced loss."""
    indices, slopes, tops, totals, divisor = kept
    if by_loss.dim() == 0:
        scale = by_loss.item() / divisor if divisor else math.nan
    else:
        scale, tensor = 1.0, torch.from_numpy(slopes)
        slopes = _array((tensor * by_loss).masked_fill_(tensor == 0, 0))
    result = torch.empty_like(logits, memory_format=torch.contiguous_format)
    per_row = (indices, slopes, tops, totals)
    if logits.dtype is by_loss.dtype:
        _over_rows(_gradient, (_array(logits), *per_row, result.numpy()), (scale,))
    else:
        for block in blocks(logits):
            rows = _array(logits[block].to(by_loss.dtype))
            _over_rows(_gradient, (rows, *(array[block] for array in per_row), rows), (scale,))
            result[block] = torch.from_numpy(rows)
    return result


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def _over_rows(function: Any, arrays: tuple[Any, ...], constants: tuple[Any, ...] = ()) -> list[Any]:
    """Call the kernel on all rows, in parts if they are many, by several threads; return its results."""
    rows, elements = len(arrays[1]), arrays[0].size
    # The same parts for any number of threads: sums over all rows are then added in the same order.
    parts = max(1, min(rows, elements // _ELEMENTS_PER_PART))
    if parts == 1:
        return [function(*arrays, *constants)]
    results: list[Any] = [None] * parts
    left = iter(range(parts))  # threads can share it: under the interpreter lock each number is taken once

    def work() -> None:
        for part in left:
            start, stop = rows * part // parts, rows * (part + 1) // parts
            results[part] = function(*(array[start:stop] for array in arrays), *constants)

    threads = min(parts, torch.get_num_threads())
    running = [kernel_threads().submit(work) for _ in range(threads - 1)]
    try:
        # This thread takes parts as well, as the others may begin late: torch's own threads keep the processors busy
        # for a while after their work.
        work()
    finally:
        for _ in left:  # after an error the other threads find nothing left to do
            pass
    for run in running:
        if not run.cancel():
            run.result()
    return results
