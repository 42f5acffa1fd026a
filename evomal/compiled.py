"""CPU kernels compiled once by numba and kept on disk, in a cache that may be damaged, full or missing."""

import hashlib
import math
import os
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import caching
from numba.extending import intrinsic, overload

from evomal import compiled_ahead
from evomal.text import one_line


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` without the interpreter lock, cached beside the module or in the user's cache folder.

    A damaged entry of the cache is compiled again. Where nothing can be read or written (a read-only container, a full
    disk), the kernel is compiled anew in each process, and a warning says so once.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(nogil=True, **options)(function)
        try:
            compiled._cache = _KernelCache(function)
        except (RuntimeError, OSError, ValueError) as error:  # no folder can be written, or its name is not UTF-8
            _warn("is compiled anew in each process, since it cannot be stored", error)
        return compiled

    return decorate


def inner(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A kernel that only kernels call: without wrappers for Python and C, which take a fifth of the time to compile."""
    return kernel(no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


def is_missing(kernel: Any, signature: tuple[Any, ...]) -> bool:
    """Whether there is a cache that does not hold the kernel for arguments of these types."""
    cache = getattr(kernel, "_cache", None)
    return isinstance(cache, _KernelCache) and not cache.holds(signature, kernel.targetctx)


_FunctionCache: Any = caching.FunctionCache  # numba's modules are typed in part only
_IndexDataCacheFile: Any = caching.IndexDataCacheFile


class _KernelCache(_FunctionCache):  # type: ignore[misc]
    """numba's cache, except that an entry that cannot be read or written never stops the work."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        source = self._impl.locator.get_source_stamp()
        self._cache_file = _CheckedFile(
            self._cache_path, self._impl.filename_base, source, _sources(Path(function.__code__.co_filename).parent)
        )

    def holds(self, signature: Any, context: Any) -> bool:
        """Whether an entry for the signature is listed; it is not read."""
        try:
            return self._index_key(signature, context.codegen()) in self._cache_file._load_index()
        except Exception:  # a damaged pickle may raise anything
            return False

    def load_overload(self, signature: Any, context: Any) -> Any:
        found = self._loaded(signature, context)
        if found is None and compiled_ahead.has_compiled((self._py_func, signature)):
            found = self._loaded(signature, context)
        return found

    def _loaded(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except Exception as error:  # a damaged pickle may raise anything
            _warn(f"is compiled again, since the one stored in {self._cache_path} cannot be used", error)
            self._try(self.flush)
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        self._try(lambda: super(_KernelCache, self).save_overload(signature, compiled))

    def _try(self, write: Callable[[], None]) -> None:
        """Write to the cache; if that fails, do without it in this process."""
        try:
            write()
        except Exception as error:  # such as a full disk, or an index that was damaged since it was read
            self.disable()
            _warn(f"is compiled anew in each process, since it cannot be stored in {self._cache_path}", error)


class _CheckedFile(_IndexDataCacheFile):  # type: ignore[misc]
    """Entries that end with a checksum: damaged machine code could compute wrong numbers or end the process."""

    def __init__(self, folder: str, name: str, source: Any, others: bytes) -> None:
        super().__init__(folder, name, source)
        self._version = f"{numba.__version__} {hashlib.sha256(others).hexdigest()}"

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        # Two processes that begin with an empty cache may give one file name to the code of two signatures.
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def _dump(self, content: Any) -> bytes:
        pickled = super()._dump(content)
        return bytes(pickled + hashlib.sha256(pickled).digest())  # what follows a pickle is not read

    def _load_index(self) -> Any:
        _require_own(self._index_path)
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        path = self._data_path(name)
        _require_own(path)
        content = Path(path).read_bytes()
        size = hashlib.sha256().digest_size
        if hashlib.sha256(content[:-size]).digest() != content[-size:]:
            raise ValueError(f"{name} does not match its checksum")
        return super()._load_data(name)


def _sources(folder: Path) -> bytes:
    """The sources, besides its own file, of what may be compiled into a kernel: this file and `numba_*.py`."""
    return b"".join(path.read_bytes() for path in (Path(__file__), *sorted(folder.glob("numba_*.py"))))


def _require_own(path: str) -> None:
    """Raise unless it is a regular file of this user: reading a cache runs code that the owner of the file chose."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{os.path.basename(path)} is not a regular file")
    # Root and the owner of this module can run code here anyway.
    if hasattr(os, "getuid") and found.st_uid not in (os.getuid(), 0, os.stat(__file__).st_uid):
        raise PermissionError(f"{os.path.basename(path)} belongs to another user")


_said: set[str] = set()


def _warn(what: str, error: Exception) -> None:
    """Warn of a problem with the cache, once in a process rather than for each kernel."""
    if what not in _said:
        _said.add(what)
        warnings.warn(f"a CPU kernel {what}: {one_line(error)}", RuntimeWarning, stacklevel=2)


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
