"""The threads that compiled kernels share, made when first needed."""

import functools
import os
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
