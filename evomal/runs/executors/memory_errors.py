"""Errors that tell of too little memory: Python's, those of torch's allocators, and those of CUDA and its libraries."""

import torch

# By torch on Linux and macOS, on Windows; by CUDA and Triton; by cuBLAS, cuDNN and the others.
_WORDS = ("can't allocate memory", "not enough memory", "out of memory", "STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine was too small at that moment, rather than the program wrong."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)
