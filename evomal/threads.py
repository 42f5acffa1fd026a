"""The threads that torch and compiled kernels compute with."""

import contextlib
import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch


@functools.cache
def kernel_threads() -> ThreadPoolExecutor:
    """As many of Python's threads as torch uses: kernels release the interpreter lock.

    Not numba's own: they are not safe for callers with threads of their own, or conflict with OpenMP after a fork.
    """
    return ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="evomal")


# A forked child has the pool but not its threads, and would wait for them for ever.
os.register_at_fork(after_in_child=kernel_threads.cache_clear)


@contextlib.contextmanager
def thread_count(count: int | None) -> Iterator[None]:
    """So many threads for torch and for compiled kernels, or as many as there are: undone after."""
    if count is None:
        yield
        return
    before = torch.get_num_threads()
    try:
        _set(count)
        yield
    finally:
        _set(before)


def _set(count: int) -> None:
    torch.set_num_threads(count)
    kernel_threads.cache_clear()
