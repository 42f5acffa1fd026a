"""CPU kernels compiled once by numba and kept on disk."""

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` without the interpreter lock, cached beside the module or in the user's cache folder.

    Where neither can be written (a read-only container), the kernel is compiled anew in each process.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:
            return numba.njit(nogil=True, **options)(function)

    return decorate


# Not "reassoc": it would cancel the rounding inside the exponential. Not "nnan": NaN must get through.
VECTORISABLE = {"nsz", "contract"}

_F, _I = np.float32, np.int32
_ZERO, _ONE, _HALF, _LARGEST = _F(0.0), _F(1.0), _F(0.5), np.finfo(np.float32).max

_LOWEST = _F(-88.0)  # from here on 2^n has the bits of 0.0: the result is an exact zero without a branch
_LOG2_E, _LN2_HIGH, _LN2_LOW = _F(1.44269504), _F(0.693359375), _F(-2.12194440e-4)
_P0, _P1, _P2 = _F(1.9875691500e-4), _F(1.3981999507e-3), _F(8.3334519073e-3)
_P3, _P4, _P5 = _F(4.1665795894e-2), _F(1.6666665459e-1), _F(5.0000001201e-1)
_ROUNDER = _F(12582912.0)  # 1.5 · 2^23: adding and subtracting it rounds to the nearest integer

_ONE_BITS, _ROOT_HALF_BITS, _MANTISSA_BITS = _I(0x3F800000), _I(0x3F3504F3), _I(0x007FFFFF)
_L0, _L1, _L2 = _F(7.0376836292e-2), _F(-1.1514610310e-1), _F(1.1676998740e-1)
_L3, _L4, _L5 = _F(-1.2420140846e-1), _F(1.4249322787e-1), _F(-1.6668057665e-1)
_L6, _L7, _L8 = _F(2.0000714765e-1), _F(-2.4999993993e-1), _F(3.3333331174e-1)

_SMALL_TANH = _F(0.625)
_T0, _T1, _T2 = _F(-5.70498872745e-3), _F(2.06390887954e-2), _F(-5.37397155531e-2)
_T3, _T4 = _F(1.33314422036e-1), _F(-3.33332819422e-1)


@intrinsic
def _float_of_bits(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def _bits_of_float(typing_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


def exp_nonpositive(x: Any) -> Any:
    """exp(x) for x ≤ 0."""
    raise AssertionError("compiled code only")


def log_positive(x: Any) -> Any:
    """log(x) for normal x > 0."""
    raise AssertionError("compiled code only")


def tanh(x: Any) -> Any:
    """tanh(x)."""
    raise AssertionError("compiled code only")


@overload(exp_nonpositive, jit_options={"fastmath": VECTORISABLE})
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


@overload(log_positive, jit_options={"fastmath": VECTORISABLE})
def _log_positive_of_type(x: Any) -> Any:
    def from_library(x: Any) -> Any:
        return math.log(x)

    def vectorised(x: Any) -> Any:
        # x = m · 2^n with m between √½ and √2, where log m = log(1 + r) is a short polynomial.
        bits: Any = numba.int32(_bits_of_float(x) + (_ONE_BITS - _ROOT_HALF_BITS))  # type: ignore[call-arg]
        n = numba.float32((bits >> numba.int32(23)) - numba.int32(127))
        m: Any = _float_of_bits(numba.int32((bits & _MANTISSA_BITS) + _ROOT_HALF_BITS))
        r = m - _ONE
        square = r * r
        polynomial = ((((_L0 * r + _L1) * r + _L2) * r + _L3) * r + _L4) * r + _L5
        polynomial = ((polynomial * r + _L6) * r + _L7) * r + _L8
        result = n * _LN2_HIGH + (r + (n * _LN2_LOW - _HALF * square + polynomial * r * square))
        return result if x <= _LARGEST else x

    return vectorised if x == types.float32 else from_library


@overload(tanh, jit_options={"fastmath": VECTORISABLE, "error_model": "numpy"})
def _tanh_of_type(x: Any) -> Any:
    def from_library(x: Any) -> Any:
        return math.tanh(x)

    def vectorised(x: Any) -> Any:
        size = abs(x)
        square = x * x
        # Near zero the quotient below would lose its digits.
        near = ((((_T0 * square + _T1) * square + _T2) * square + _T3) * square + _T4) * square * x + x
        e = exp_nonpositive(-(size + size))
        far = (_ONE - e) / (_ONE + e)
        far = -far if x < _ZERO else far
        return far if size > _SMALL_TANH else near

    return vectorised if x == types.float32 else from_library
