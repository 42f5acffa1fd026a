"""The memory that this process may use; whether an error says that memory was short, or that a GPU failed."""

import os
from typing import Any

import torch

from evomal.errors import DeviceError, UserCodeError

# By torch on Linux and macOS, on Windows; by CUDA and Triton; by cuBLAS, cuDNN and others.
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "STATUS_ALLOC_FAILED")
_OUTSIDE_ALLOCATOR = 3 * 2**28  # bytes of one process on a GPU beside torch's allocator: context, kernels, libraries

_processes = 1
_before_sharing: dict[int, int] = {}  # bytes of each GPU before `limit_memory`: all, or what the user has set


def share_gpu(processes: int) -> None:
    """Tell engines of this process, whose worker calls it when it begins, how many such processes use the GPU."""
    global _processes
    _processes = processes


def limit_memory(device: torch.device) -> None:
    """Let torch take no more than this process's share of a GPU, or of the part that the user has set.

    At its limit, torch returns what it has kept for later; without one, it would do so only when the GPU is full, and
    then the processes beside it fail first.
    """
    if device.type == "cuda" and _processes > 1:
        given = _before_sharing.setdefault(_index(device), usable_bytes(device))
        share = max(given // _processes - _OUTSIDE_ALLOCATOR, given // (2 * _processes))
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(share / total, _index(device))


def usable_bytes(device: torch.device) -> int:
    """Returns the bytes of a GPU that this process may use: all, or what `limit_memory` or the user has set."""
    total = torch.cuda.get_device_properties(device).total_memory
    return int(total * torch.cuda.get_per_process_memory_fraction(_index(device)))


def machine_bytes() -> int:
    """Returns the bytes of the machine's memory for this process; 0 where the system does not say."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return total // _processes


def _index(device: torch.device) -> int:
    """Returns the number of a GPU, without which torch's allocator does not know it."""
    index: Any = device.index
    return torch.cuda.current_device() if index is None else index


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether the error says that memory was short: Python's, or one of torch, CUDA and its libraries."""
    error = _cause_of(error)
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def device_error(error: BaseException) -> DeviceError | None:
    """Returns an error that says how a GPU failed, if that is what the error is about.

    CUDA then refuses all later work of the process, whatever it is: no candidate or loss can be blamed for that.
    """
    error = _cause_of(error)
    if isinstance(error, DeviceError):
        return error
    if not isinstance(error, torch.AcceleratorError) or is_out_of_memory(error):
        return None
    return DeviceError(f"the GPU failed: {str(error).strip().partition(chr(10))[0]}")


def _cause_of(error: BaseException) -> BaseException:
    """Returns the error of the user's code or of torch that an error reports."""
    return error.__cause__ if isinstance(error, UserCodeError) and error.__cause__ is not None else error
