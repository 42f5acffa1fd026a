"""CPU kernels compiled once by numba and kept on disk."""

from collections.abc import Callable
from typing import Any

import numba


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
