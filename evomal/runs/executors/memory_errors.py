"""Errors that tell of too little memory: those of Python, of CUDA, and of torch's own allocator."""

import torch

_OF_THE_ALLOCATOR = ("can't allocate memory", "not enough memory")  # torch's plain RuntimeError, by system


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine was too small at that moment, rather than the program wrong."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OF_THE_ALLOCATOR)
