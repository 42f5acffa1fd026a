"""Arithmetic by name, and the caller's flags as they were."""

import pytest
import torch

from evomal.engine.precision import autocast, check_precision, matmul_precision
from evomal.errors import InputError

CPU = torch.device("cpu")


def test_names_are_checked():
    with pytest.raises(InputError, match=r"one of float32, tf32, bfloat16 but got 'half'"):
        check_precision("half", CPU)
    with pytest.raises(InputError, match="tf32 is a mode of CUDA devices, but the device is cpu"):
        check_precision("tf32", CPU)


def test_bfloat16_is_for_the_forward_pass_only():
    layer = torch.nn.Linear(3, 2)
    with autocast("bfloat16", CPU):
        assert layer(torch.ones(1, 3)).dtype == torch.bfloat16
    with autocast("float32", CPU):
        assert layer(torch.ones(1, 3)).dtype == torch.float32
    assert layer.weight.dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_float32_means_float32_on_cuda(precision):
    device = torch.device("cuda")
    cudnn = torch.backends.cudnn
    before = torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision
    generator = torch.Generator(device).manual_seed(0)
    a = torch.randn(256, 256, device=device, generator=generator)
    kernel = torch.randn(32, 32, 3, 3, device=device, generator=generator)
    images = torch.randn(8, 32, 16, 16, device=device, generator=generator)
    exact = a.double() @ a.double(), torch.nn.functional.conv2d(images.double(), kernel.double())
    with matmul_precision(precision, device):
        found = a @ a, torch.nn.functional.conv2d(images, kernel)
    errors = [((x - y).norm() / y.norm()).item() for x, y in zip(found, exact, strict=True)]
    assert all(error < 1e-6 for error in errors) == (precision == "float32")
    assert (torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision) == before
