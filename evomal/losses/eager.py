"""Whether a tensor holds plain values that Python may look at."""

import torch
from torch import Tensor


def is_eager(tensor: Tensor) -> bool:
    """False under `torch.compile`, export and `torch.func` transforms, where only composable operations will do."""
    if torch.compiler.is_compiling():
        return False
    # No public name tells that a transform is active; torch.autograd.Function asks the same question.
    return not torch._C._are_functorch_transforms_active() and not tensor.is_meta
