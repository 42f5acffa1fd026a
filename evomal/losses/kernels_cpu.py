"""Losses of the target's probability on the CPU, by numba: every row is processed while it is in the cache."""

import itertools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.compiled import VECTORISABLE, exp_nonpositive, inner, kernel
from evomal.losses.contract import compute_dtype
from evomal.losses.fused import Coefficients, TargetLosses, blocks
from evomal.threads import kernel_threads

_LANES = 32  # sums kept side by side, so that a reduction runs in vector registers
_VECTOR = 8  # numbers of a vector register
_NO_WEIGHTS = {dtype: torch.empty(0, dtype=dtype).numpy() for dtype in (torch.float32, torch.float64)}
_ELEMENTS_PER_THREAD = 1 << 17  # a tenth of a millisecond of work, several times what handing it over costs


@inner(fastmath=VECTORISABLE)
def _add(numbers: Any, start: int, stop: int, lanes: Any) -> None:
    """Add numbers[start:stop] to the lanes."""
    whole = (stop - start) // _LANES * _LANES
    for j in range(start, start + whole, _LANES):
        for lane in range(_LANES):
            lanes[lane] += numbers[j + lane]
    for j in range(start + whole, stop):
        lanes[0] += numbers[j]


@inner(fastmath=VECTORISABLE)
def _others(row: Any, k: int, room: Any, lanes: Any) -> tuple[float, float]:
    """The largest of a row without its element k, and the sum of exponentials of the differences to it.

    The room is as long as a row filled up to whole vectors, which leaves vector loops no remainder.
    """
    lowest = np.finfo(row.dtype).min
    for j in range(len(row)):
        room[j] = row[j]
    for j in range(len(row), len(room)):
        room[j] = lowest
    room[k] = lowest
    for lane in range(_VECTOR):
        lanes[lane] = lowest
    for j in range(0, len(room), _VECTOR):
        for lane in range(_VECTOR):
            # A NaN is lost here; it reaches the loss through its exponential.
            lanes[lane] = room[j + lane] if room[j + lane] > lanes[lane] else lanes[lane]
    top = lanes[0]
    for lane in range(1, _VECTOR):
        top = lanes[lane] if lanes[lane] > top else top
    for j in range(len(room)):
        room[j] = exp_nonpositive(room[j] - top)
    room[k] = 0
    if len(row) <= _LANES:  # lanes would take longer than a short row
        total = 0.0
        for j in range(len(row)):
            total += room[j]
        return float(top), total
    lanes[:] = 0
    _add(room, 0, k, lanes)
    _add(room, k + 1, len(row), lanes)
    return float(top), float(lanes.sum())


@kernel()
def _losses(
    logits: Any, target: Any, losses: Any, slopes: Any, tops: Any, logs: Any, shares: Any,
    weight: Any, ignore_index: int, scale: float, shift: float, focus: float, opposite: float, offset: float,
) -> int:  # fmt: skip
    """Fill in what `TargetLosses` holds; the first row whose target is out of bounds, or −1."""
    lanes = np.empty(_LANES, logits.dtype)
    room = np.empty(-(-logits.shape[1] // _VECTOR) * _VECTOR, logits.dtype)
    for i in range(len(target)):
        k = target[i]
        losses[i] = slopes[i] = tops[i] = logs[i] = shares[i] = 0
        if k == ignore_index:
            continue
        if not 0 <= k < logits.shape[1]:
            return i
        shares[i] = weight[k] if len(weight) else 1.0
        top, total = _others(logits[i], k, room, lanes)
        log_total = -np.inf if total == 0 else math.log(total)
        tops[i], logs[i] = top, log_total
        d = (float(logits[i, k]) - top) - log_total
        e = math.exp(-abs(d))
        log_p, log_rest = min(d, 0.0) - math.log1p(e), min(-d, 0.0) - math.log1p(e)
        p, rest = (1 / (1 + e), e / (1 + e)) if d > 0 else (e / (1 + e), 1 / (1 + e))
        if d != d:
            log_p = log_rest = p = rest = d
        # The formula of `Coefficients`, and its derivative with (log p)' = 1 − p and (log(1 − p))' = −p.
        focus_factor = math.exp(focus * log_rest) if focus else 1.0
        loss = scale * focus_factor * abs(log_p + shift)
        bend = focus * p * abs(log_p + shift) if focus and p > 0 else 0.0
        slope = scale * focus_factor * (np.sign(log_p + shift) * rest - bend)
        if opposite:
            opposite_factor = math.exp(focus * log_p) if focus else 1.0
            loss += opposite * opposite_factor * (offset - log_rest)
            slope += (
                opposite * opposite_factor * (p + (focus * rest * (offset - log_rest) if focus and rest > 0 else 0.0))
            )
        losses[i], slopes[i] = shares[i] * loss, shares[i] * slope
    return -1


@kernel(fastmath=VECTORISABLE)
def _gradient(logits: Any, target: Any, tops: Any, logs: Any, factors: Any, result: Any) -> None:
    """Fill in factors · ∂d/∂logits: 1 for the target, minus its share among the others for the rest."""
    lowest = np.finfo(logits.dtype).min
    for i in range(len(target)):
        if factors[i] == 0 or not 0 <= target[i] < logits.shape[1]:  # ignored samples, whose target may be anything
            result[i, :] = 0
            continue
        # Where every other class is excluded by −inf: −inf − −inf would be NaN, exp(−inf − lowest) is the right 0.
        top, log_total, factor = tops[i], max(logs[i], lowest), -factors[i]
        for j in range(logits.shape[1]):
            # Subtracted in two steps: together they would lose the digits of a small logarithm beside large logits.
            result[i, j] = factor * exp_nonpositive((logits[i, j] - top) - log_total)
        result[i, target[i]] = -factor


def losses(
    logits: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, coefficients: Coefficients
) -> TargetLosses:
    """The losses of a batch of class indices, weighted, and what their gradient needs."""
    dtype = compute_dtype(logits)
    results = torch.empty(5, len(target), dtype=dtype)
    weights = _NO_WEIGHTS[dtype] if weight is None else weight.detach().to(dtype).numpy()
    constants = (weights, ignore_index, *coefficients.numbers)
    # Arrays from here to the gradient: making them of tensors takes as long as a small batch.
    indices, found = _array(target), results.numpy()
    if logits.dtype == dtype:
        bad = [_over_rows(_losses, (_array(logits), indices, *found), constants)]
    else:
        bad = [
            _over_rows(_losses, (_array(logits[block].to(dtype)), indices[block], *found[:, block]), constants)
            for block in blocks(logits)
        ]
    if max(bad, default=-1) >= 0:
        outside = (target != ignore_index) & ((target < 0) | (target >= logits.shape[1]))
        raise IndexError(f"Target {target[outside][0].item()} is out of bounds.")
    return TargetLosses(results[0], results[1], results[4], (indices, found[2], found[3]))


def gradient(logits: Tensor, kept: tuple[Any, Any, Any], factors: Tensor) -> Tensor:
    """The gradient of Σ factors · log-odds with respect to the logits."""
    result = torch.empty_like(logits, memory_format=torch.contiguous_format)
    per_row = (*kept, _array(factors))
    if logits.dtype == factors.dtype:
        _over_rows(_gradient, (_array(logits), *per_row, result.numpy()))
    else:
        for block in blocks(logits):
            rows = logits[block].to(factors.dtype, memory_format=torch.contiguous_format)
            _over_rows(_gradient, (rows.numpy(), *(array[block] for array in per_row), rows.numpy()))
            result[block] = rows
    return result


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def _over_rows(function: Any, arrays: tuple[Any, ...], constants: tuple[Any, ...] = ()) -> Any:
    """Call the kernel on all rows, by several threads if there is enough work; return its largest result."""
    rows, elements = len(arrays[0]), arrays[0].size
    threads = min(torch.get_num_threads(), rows, elements // _ELEMENTS_PER_THREAD)
    if threads < 2:
        return function(*arrays, *constants)
    bounds = [rows * thread // threads for thread in range(threads + 1)]
    shares = [[array[start:stop] for array in arrays] for start, stop in itertools.pairwise(bounds)]
    running = [kernel_threads().submit(function, *share, *constants) for share in shares]
    return max((run.result() for run in running), key=lambda value: -1 if value is None else value)
