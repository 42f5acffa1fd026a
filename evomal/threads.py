"""The threads that torch and compiled kernels compute with, and the name of the hardware."""

import contextlib
import functools
import os
import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from evomal.text import plural


def processors() -> int:
    """The number of processors that this process may use."""
    # macOS and Windows cannot restrict a process to some of them.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kernel_threads() -> ThreadPoolExecutor:
    """A pool with as many threads as torch uses now; kernels release the interpreter lock.

    The threads are not numba's own, which are not safe for callers that use threads, or conflict with OpenMP after a
    fork.
    """
    return _pool(torch.get_num_threads())


@functools.lru_cache(maxsize=1)  # a pool that is dropped ends its threads
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="evomal")


if hasattr(os, "register_at_fork"):  # not on Windows
    # A forked child has the pool but not its threads, and would wait for them forever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


_FEWEST_MULTIPLY_ADDS = 2**26
"""The fewest multiply-adds of a training step for which several threads are used: some milliseconds of one core for a
stack of small models. On two idle cores such stacks take 0.6 of the time of one thread. Smaller steps gain less, and
on cores that other programs use, the threads wait for each other, which takes several times as long as one thread."""


def suitable_threads(multiply_adds: int, *, device: str, most: int) -> int:
    """Returns the number of threads for training steps of this many multiply-adds: one, or `most`.

    One suffices if a device other than the CPU computes: the host only starts its kernels.
    """
    return most if device == "cpu" and multiply_adds >= _FEWEST_MULTIPLY_ADDS else 1


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
    if count != torch.get_num_threads():  # torch also changes other settings of MKL
        torch.set_num_threads(count)


def hardware(device: torch.device | str | None = None) -> str:
    """Returns the name of the device, or of the CPU and the GPU, with torch's version."""
    cpu = f"{_processor()}, {plural(torch.get_num_threads(), 'thread')}"
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    kind = None if device is None else torch.device(device).type
    names = {"cpu": cpu, "cuda": gpu}.get(kind, kind) if kind else ", ".join(filter(None, (cpu, gpu)))
    return f"{names}, torch {torch.__version__}"


def _processor() -> str:
    """The name of the processor, or its architecture if the system does not name it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
