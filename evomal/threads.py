"""The threads that torch and compiled kernels compute with."""

import contextlib
import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch


@functools.cache
def kernel_threads() -> ThreadPoolExecutor:
    """A pool with as many threads as torch uses; kernels release the interpreter lock.

    The threads are not numba's own, which are not safe for callers that use threads, or conflict with OpenMP after a
    fork.
    """
    return ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="evomal")


# A forked child has the pool but not its threads, and would wait for them forever.
os.register_at_fork(after_in_child=kernel_threads.cache_clear)


@contextlib.contextmanager
def thread_count(count: int | None) -> Iterator[None]:
    """A context in which torch and compiled kernels use that many threads; None changes nothing."""
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
