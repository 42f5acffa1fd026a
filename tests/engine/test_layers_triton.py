"""The kernel for the forward-mode derivative of batch norm, in Triton's interpreter, beside torch's derivative."""

import pytest

from tests.processes import check_in_interpreter

pytest.importorskip("triton", reason="Triton has no wheel for this platform")

INTERPRETED = """
import torch
import torch.nn.functional as F
from torch.func import jvp
from evomal.engine.layers_triton import batch_norm_along

torch.manual_seed(0)
for channels, dtype, layout in (
    (5, torch.float64, torch.channels_last), (130, torch.float32, torch.channels_last),
    (5, torch.float64, torch.contiguous_format),
):
    x, dx = torch.randn(2, 3, channels, 4, 2, dtype=dtype).unbind()
    x, dx = x.contiguous(memory_format=layout), dx.contiguous(memory_format=layout)
    weight, dweight, dbias = torch.randn(3, channels, dtype=dtype).unbind()
    weight[0] = 0
    norm = lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, True)
    expected = jvp(norm, (x, weight, dbias), (dx, dweight, dbias))[1]
    _, mean, inverse = torch.native_batch_norm(x, weight, dbias, None, None, True, 0.0, 1e-5)
    _, products, sums = torch.ops.aten.native_batch_norm_backward(
        dx, x, weight, None, None, mean, inverse, True, 1e-5, [False, True, True]
    )
    arguments = (dx, x, weight, dweight, dbias, mean, inverse, products, sums)
    found = batch_norm_along(*arguments)
    torch.testing.assert_close(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last)
    one = torch.ones((), dtype=dtype)
    again = jvp(lambda one: one * batch_norm_along(*arguments), (one,), (one,))[0]
    assert torch.equal(again, found)  # also inside of torch.func
"""


def test_it_is_torch_s_derivative():
    check_in_interpreter(INTERPRETED)
