"""The arithmetic of a training: precision of matrix products, autocast, deterministic kernels."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Literal, get_args

import torch

from evomal.checks import one_of
from evomal.errors import InputError

Precision = Literal["float32", "tf32", "bfloat16"]


def check_precision(precision: str, device: torch.device) -> None:
    """Raise unless the precision is known and supported by the device."""
    one_of("precision", precision, get_args(Precision))
    if precision == "tf32" and device.type != "cuda":
        raise InputError(f"precision tf32 is a mode of CUDA devices, but the device is {device}")


@contextlib.contextmanager
def matmul_precision(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute matrix products and convolutions of float32 tensors in that precision inside the block.

    By default torch lets convolutions use TF32; here float32 means float32.
    """
    if device.type != "cuda":
        yield
        return
    # Torch's stubs know these only in part.
    cudnn: Any = torch.backends.cudnn
    flags = (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)
    before = [flag.fp32_precision for flag in flags]
    try:
        for flag in flags:
            flag.fp32_precision = "tf32" if precision == "tf32" else "ieee"
        yield
    finally:
        for flag, value in zip(flags, before, strict=True):
            flag.fp32_precision = value


def autocast(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Returns the context of a forward pass, which casts to bfloat16 for that precision only.

    Weights stay float32. Casts are not cached, as a captured step must repeat them.
    """
    if precision != "bfloat16":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@contextlib.contextmanager
def deterministic_kernels(wanted: bool, device: torch.device) -> Iterator[None]:
    """Use kernels that give the same bits every time inside the block, if wanted.

    CPU kernels always do. An operation without a deterministic kernel raises.
    """
    if not wanted or device.type != "cuda":
        yield
        return
    if _WORKSPACE not in os.environ:
        # cuBLAS reads it once, when it is first used.
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            raise InputError(f"deterministic needs {_WORKSPACE}=:4096:8 in the environment before CUDA is first used")
        os.environ[_WORKSPACE] = ":4096:8"
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
