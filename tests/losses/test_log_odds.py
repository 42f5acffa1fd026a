"""The fast paths of the target's log-odds against plain operations in double precision."""

import os
import subprocess
import sys

import pytest
import torch

from evomal.losses.log_odds import all_log_odds, composed_target_log_odds, target_log_odds

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def case(samples, classes, scale, dtype, seed=0):
    rng = torch.Generator().manual_seed(seed)
    logits = (torch.randn(samples, classes, generator=rng, dtype=torch.float64) * scale).clamp(-6e4, 6e4).to(dtype)
    target = torch.randint(classes, (samples,), generator=rng)
    factors = torch.randn(samples, generator=rng, dtype=torch.float64)
    return logits, target, factors


def assert_agrees(function, logits, target, factors):
    exact = logits.double().requires_grad_()
    expected = composed_target_log_odds(exact, target)
    (expected_gradient,) = torch.autograd.grad(expected, exact, factors)
    logits = logits.clone().requires_grad_()
    value = function(logits, target)
    (gradient,) = torch.autograd.grad(value, logits, factors.to(value.dtype))
    assert value.dtype == (torch.float64 if logits.dtype == torch.float64 else torch.float32)
    assert gradient.dtype == logits.dtype
    precise = logits.dtype == torch.float64
    torch.testing.assert_close(
        value.double(), expected, rtol=1e-13 if precise else 1e-6, atol=1e-13 if precise else 1e-5
    )
    tolerance = {torch.float64: 1e-13, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}[logits.dtype]
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", [2, 3, 31, 32, 33, 65, 1000, 70_000])
@pytest.mark.parametrize("scale", [1, 20, 1e4])
def test_cpu_kernel(dtype, classes, scale):
    assert_agrees(target_log_odds, *case(9, classes, scale, dtype))


def test_it_is_the_kernel_that_was_tested(monkeypatch):
    import evomal.losses.log_odds_cpu as kernels

    def broken(*_):
        raise RuntimeError("kernel called")

    monkeypatch.setattr(kernels, "log_odds", broken)
    with pytest.raises(RuntimeError, match="kernel called"):
        target_log_odds(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))


def test_strided_logits():
    logits, target, factors = case(9, 40, 3, torch.float32)
    assert_agrees(target_log_odds, logits.t().contiguous().t(), target, factors)
    assert_agrees(target_log_odds, torch.cat((logits, logits), 1)[:, ::2], target // 2, factors)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_excluded_classes_and_nan(dtype):
    logits = torch.tensor([[0.0, -torch.inf, -torch.inf], [-torch.inf, 1.0, 2.0], [0.0, torch.nan, 1.0]], dtype=dtype)
    target = torch.tensor([0, 1, 2])
    logits.requires_grad_()
    value = target_log_odds(logits, target)
    assert value[0] == torch.inf
    assert value[1] == -1
    assert value[2].isnan()  # NaN is never swallowed
    (gradient,) = torch.autograd.grad(value[:2].sum(), logits)
    assert gradient[0].tolist() == [1, 0, 0]
    assert gradient[1].tolist() == [0, 1, -1]


def test_all_classes_at_once():
    logits, _, _ = case(9, 12, 20, torch.float64)
    expected = torch.stack([composed_target_log_odds(logits, torch.full((9,), k)) for k in range(12)], dim=1)
    torch.testing.assert_close(all_log_odds(logits), expected, rtol=1e-12, atol=1e-12)


TRITON_CHECK = """
import torch
import evomal.losses.log_odds_gpu as gpu
from tests.losses.test_log_odds import DTYPES, assert_agrees, case

class ThroughTriton(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        result, others = gpu.log_odds(logits, target)
        ctx.save_for_backward(logits, target, others)
        return result
    @staticmethod
    def backward(ctx, gradient):
        return gpu.gradient(*ctx.saved_tensors, gradient), None

for dtype in DTYPES:
    for classes in (2, 7, 64, 300, 9000):
        for scale in (1, 1e4):
            assert_agrees(ThroughTriton.apply, *case(3, classes, scale, dtype))
excluded = torch.tensor([[0, -torch.inf, -torch.inf], [-torch.inf, 1, 2], [0, torch.nan, 1]], requires_grad=True)
value = ThroughTriton.apply(excluded, torch.tensor([0, 1, 2]))
assert value[0] == torch.inf and value[1] == -1 and value[2].isnan(), value
(gradient,) = torch.autograd.grad(value[:2].sum(), excluded)
assert gradient[:2].tolist() == [[1, 0, 0], [0, 1, -1]], gradient
print("checked")
"""


def test_triton_kernel_in_the_interpreter():
    pytest.importorskip("triton", reason="Triton has no wheel for this platform")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", TRITON_CHECK], capture_output=True, text=True, env=environment)
    assert done.stdout == "checked\n", done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", [2, 33, 1000, 70_000])
@pytest.mark.parametrize("scale", [1, 20, 1e4])
def test_cuda_kernel(dtype, classes, scale):
    assert_agrees(target_log_odds, *(tensor.cuda() for tensor in case(9, classes, scale, dtype)))
