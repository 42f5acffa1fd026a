"""The target's log-odds on the CPU, by numba: a row is read while it lies in the cache, nothing is written but results.

The exponential in float32 is Cephes' (Moshier): the argument reduced by multiples of log 2, then a polynomial. It holds
no branch and no call, so the compiler turns the loop into vector instructions, ten times as fast as the library's.
"""

import functools
import itertools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload
from torch import Tensor

from evomal.compiled import kernel
from evomal.losses.contract import compute_dtype
from evomal.losses.row_blocks import blocks

_LANES = 32  # maxima or sums kept side by side, so that a reduction runs in vector registers
# Not "reassoc": it would cancel the rounding inside the exponential. Not "nnan": NaN must get through.
_VECTORISABLE = {"nsz", "contract"}

_ELEMENTS_A_THREAD = 1 << 17  # a tenth of a millisecond of work, several times what handing it over costs

_F = np.float32
_LOWEST = _F(-88.0)  # from here on 2^n has the bits of 0.0: the result is an exact zero without a branch
_LOG2_E, _LN2_HIGH, _LN2_LOW = _F(1.44269504), _F(0.693359375), _F(-2.12194440e-4)
_P0, _P1, _P2 = _F(1.9875691500e-4), _F(1.3981999507e-3), _F(8.3334519073e-3)
_P3, _P4, _P5 = _F(4.1665795894e-2), _F(1.6666665459e-1), _F(5.0000001201e-1)
_ROUNDER = _F(12582912.0)  # 1.5 · 2^23: adding and subtracting it rounds to the nearest integer
_ZERO, _ONE = _F(0.0), _F(1.0)


@intrinsic
def _float_of_bits(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


def _exp_nonpositive(x: Any) -> Any:
    """exp(x) for x ≤ 0."""
    raise AssertionError("compiled code only")


@overload(_exp_nonpositive, jit_options={"fastmath": _VECTORISABLE})
def _exp_nonpositive_of_type(x: Any) -> Any:
    def from_library(x: Any) -> Any:
        return math.exp(x)

    def vectorised(x: Any) -> Any:
        x = _LOWEST if x < _LOWEST else x
        x = _ZERO if x > _ZERO else x
        n = (x * _LOG2_E + _ROUNDER) - _ROUNDER
        r = x - n * _LN2_HIGH - n * _LN2_LOW
        polynomial = ((((_P0 * r + _P1) * r + _P2) * r + _P3) * r + _P4) * r + _P5
        mantissa = polynomial * (r * r) + r + _ONE
        power: Any = _float_of_bits((numba.int32(n) + numba.int32(127)) << numba.int32(23))  # type: ignore[call-arg]
        return mantissa * power

    return vectorised if x == types.float32 else from_library


@kernel(fastmath=_VECTORISABLE)
def _largest(row: Any, start: int, stop: int, lanes: Any) -> None:
    """Raise the lanes to the largest values of row[start:stop]."""
    whole = (stop - start) // _LANES * _LANES
    for j in range(start, start + whole, _LANES):
        for lane in range(_LANES):
            value = row[j + lane]
            # A NaN may get lost here; it reaches the loss through its exponential.
            lanes[lane] = lanes[lane] if lanes[lane] > value else value
    for j in range(start + whole, stop):
        lanes[0] = lanes[0] if lanes[0] > row[j] else row[j]


@kernel(fastmath=_VECTORISABLE)
def _add_exponentials(row: Any, start: int, stop: int, top: Any, lanes: Any) -> None:
    """Add exp(row[start:stop] − top) to the lanes."""
    whole = (stop - start) // _LANES * _LANES
    for j in range(start, start + whole, _LANES):
        for lane in range(_LANES):
            lanes[lane] += _exp_nonpositive(row[j + lane] - top)
    for j in range(start + whole, stop):
        lanes[0] += _exp_nonpositive(row[j] - top)


@kernel(fastmath=_VECTORISABLE)
def _log_odds(logits: Any, target: Any, others: Any, result: Any) -> None:
    """Fill `others` with the logsumexp of each row without its target, and `result` with the log-odds."""
    classes = logits.shape[1]
    lowest = np.finfo(logits.dtype).min
    lanes = np.empty(_LANES, logits.dtype)
    for i in range(logits.shape[0]):
        row, k = logits[i], target[i]
        lanes[:] = lowest
        _largest(row, 0, k, lanes)
        _largest(row, k + 1, classes, lanes)
        top = lanes.max()
        lanes[:] = 0
        _add_exponentials(row, 0, k, top, lanes)
        _add_exponentials(row, k + 1, classes, top, lanes)
        total = lanes.sum()
        others[i] = -np.inf if total == 0 else top + math.log(total)
        result[i] = row[k] - others[i]


@kernel(fastmath=_VECTORISABLE)
def _gradient(logits: Any, target: Any, others: Any, factors: Any, result: Any) -> None:
    """Fill `result` with the gradient of Σ factors · log-odds."""
    lowest = np.finfo(logits.dtype).min
    for i in range(logits.shape[0]):
        # Where every other class is excluded by −inf: −inf − −inf would be NaN, exp(−inf − lowest) is the right 0.
        shift, factor = max(others[i], lowest), -factors[i]
        for j in range(logits.shape[1]):
            result[i, j] = factor * _exp_nonpositive(logits[i, j] - shift)
        result[i, target[i]] = -factor


def log_odds(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(samples,) log-odds of the targets, and the logsumexp of the other logits."""
    others = logits.new_empty(logits.shape[0], dtype=compute_dtype(logits))
    result = torch.empty_like(others)
    if logits.dtype == others.dtype:
        _over_rows(_log_odds, logits, target, others, result)
    else:
        for block in blocks(logits):
            _over_rows(_log_odds, logits[block].to(others.dtype), target[block], others[block], result[block])
    return result, others


def gradient(logits: Tensor, target: Tensor, others: Tensor, factors: Tensor) -> Tensor:
    """The gradient of Σ factors · log-odds with respect to the logits."""
    result = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if logits.dtype == others.dtype:
        _over_rows(_gradient, logits, target, others, factors, result)
    else:
        for block in blocks(logits):
            rows = logits[block].to(others.dtype, memory_format=torch.contiguous_format)
            _over_rows(_gradient, rows, target[block], others[block], factors[block], rows)
            result[block] = rows
    return result


def _over_rows(function: Any, *tensors: Tensor) -> None:
    """Call the kernel on all rows, shared among as many threads as torch may use where that pays."""
    arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
    rows, elements = len(arrays[0]), arrays[0].size
    threads = min(torch.get_num_threads(), rows, elements // _ELEMENTS_A_THREAD)
    if threads < 2:
        function(*arrays)
        return
    bounds = [rows * thread // threads for thread in range(threads + 1)]
    shares = [[array[start:stop] for array in arrays] for start, stop in itertools.pairwise(bounds)]
    for done in [_threads().submit(function, *share) for share in shares]:
        done.result()


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="evomal")


# A forked child has the pool but not its threads, and would wait for them for ever.
os.register_at_fork(after_in_child=_threads.cache_clear)
