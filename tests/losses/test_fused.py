"""The kernels of losses of the target's probability against plain operations in double precision."""

import contextlib
import threading
import time

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import evomal.losses.kernels_cpu as cpu_kernels
from evomal.losses import AbsoluteCrossEntropyLoss, FocalLoss, SparseLabelSmoothingLoss
from evomal.losses.fused import (
    Coefficients,
    all_log_odds,
    can_fuse,
    fused_loss,
    is_fast_in_torch,
    target_log_odds,
)
from tests.processes import check_in_interpreter

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FORMULAS = {
    "cross-entropy": Coefficients(),
    "absolute": Coefficients(scale=1.5, shift=0.2),
    "focal": Coefficients(focus=1.5),
    "sparse": Coefficients(scale=0.91, opposite=0.09, offset=2.2),
    "focal sparse": Coefficients(scale=0.9, focus=0.5, opposite=0.1, offset=3.0),
}


def case(samples, classes, spread, dtype, device="cpu"):
    """Logits, among them one certain and one hopeless row, and targets, among them an ignored one."""
    rng = torch.Generator().manual_seed(classes)
    logits = (torch.randn(samples, classes, generator=rng, dtype=torch.float64) * spread).clamp(-6e4, 6e4)
    target = torch.randint(classes, (samples,), generator=rng)
    logits[0, target[0]], logits[1, target[1]] = 1e4, -1e4
    target[2] = -100
    return logits.to(device, dtype), target.to(device)


def by_plain_operations(logits, target, coefficients):
    """Unreduced losses in double precision."""
    kept = target != -100
    losses = coefficients.of_log_odds(target_log_odds(logits.double(), target.clamp(min=0)))
    return torch.where(kept, losses, 0)


def assert_agrees(logits, target, coefficients):
    exact = logits.double().requires_grad_()
    expected = by_plain_operations(exact, target, coefficients)
    factors = torch.linspace(-1, 2, len(target), dtype=torch.float64, device=logits.device)
    (expected_gradient,) = torch.autograd.grad(expected, exact, factors)
    logits = logits.clone().requires_grad_()
    options = {"ignore_index": -100, "coefficients": coefficients, "composed": None}
    value = fused_loss(logits, target, None, reduction="none", **options)
    (gradient,) = torch.autograd.grad(value, logits, factors.to(value.dtype))
    assert value.dtype == (torch.float64 if logits.dtype == torch.float64 else torch.float32)
    assert gradient.dtype == logits.dtype
    tight = 1e-12 if logits.dtype == torch.float64 else 2e-6
    torch.testing.assert_close(value.double(), expected, rtol=tight, atol=tight)
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}[logits.dtype]
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", [2, 3, 31, 32, 33, 65, 128, 129, 1000, 70_000])
def test_cpu_kernel(formula, dtype, classes):
    for spread in (1, 20, 1e4):
        assert_agrees(*case(9, classes, spread, dtype), FORMULAS[formula])


@pytest.mark.parametrize("samples", [63, 64, 65, 200])  # the kernel computes 64 rows side by side
@pytest.mark.parametrize("classes", [3, 130])
def test_cpu_kernel_for_any_number_of_rows(samples, classes):
    assert_agrees(*case(samples, classes, 3, torch.float32), FORMULAS["focal sparse"])


def test_the_losses_use_the_kernel(monkeypatch):
    def broken(*_):
        raise RuntimeError("kernel called")

    monkeypatch.setattr(cpu_kernels, "losses", broken)
    with pytest.raises(RuntimeError, match="kernel called"):
        FocalLoss()(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
    # Where there is no kernel, plain operations do.
    assert not can_fuse(torch.zeros(2, 3, device="meta"), torch.zeros(2, dtype=torch.long, device="meta"))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_reduction_of_the_kernel(reduction, weighted):
    logits, target = case(70, 5, 3, torch.float64)
    loss = FocalLoss(reduction=reduction, weight=torch.arange(1.0, 6.0) if weighted else None)
    logits.requires_grad_()
    weight = None if loss.weight is None else loss.weight.double()
    found, expected = loss(logits, target), loss.composed(logits, target, weight, target.shape)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    factors = torch.linspace(-1, 2, found.numel(), dtype=torch.float64).reshape(found.shape)
    gradients = [torch.autograd.grad(value, logits, factors)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        assert torch.equal(loss(logits, target), found)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("upstream", [torch.nan, torch.inf])
def test_an_ignored_sample_has_no_gradient_whatever_follows_the_loss(reduction, upstream):
    logits, target = case(5, 4, 1, torch.float32)
    logits.requires_grad_()
    value = FocalLoss(reduction=reduction)(logits, target)
    (gradient,) = torch.autograd.grad(value, logits, torch.full_like(value, upstream))
    assert torch.equal(gradient[2], torch.zeros(4))
    assert not gradient[3].isfinite().any()


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_what_exceeds_single_precision_is_infinite(reduction):
    logits, target = case(5, 4, 1, torch.float32)
    value = AbsoluteCrossEntropyLoss(3e38, 1.1, reduction=reduction)(logits, target)
    assert value.max() == torch.inf


CROSS_ENTROPIES = {
    "absolute": lambda **o: AbsoluteCrossEntropyLoss(1.5, 1.0, **o),
    "focal": lambda **o: FocalLoss(0.0, **o),
    "sparse": lambda **o: SparseLabelSmoothingLoss(0.0, **o),
}


@pytest.mark.parametrize(
    ("samples", "classes", "by_torch"),
    [(9, 3, True), (1024, 4, True), (1025, 4, False), (256, 16, True), (512, 2048, True), (513, 2048, False)],
)
@pytest.mark.parametrize("name", CROSS_ENTROPIES)
def test_cross_entropy_is_left_to_torch_where_that_is_faster(monkeypatch, name, samples, classes, by_torch):
    used = []
    kernel = cpu_kernels.losses
    monkeypatch.setattr(cpu_kernels, "losses", lambda *arguments: used.append(1) or kernel(*arguments))
    logits, target = case(samples, classes, 3, torch.float32)
    assert is_fast_in_torch(logits) == by_torch
    loss = CROSS_ENTROPIES[name](reduction="none")
    logits.requires_grad_()
    value = loss(logits, target)
    assert bool(used) != by_torch
    # On both sides of the rule the same loss, compared with plain operations in double precision.
    exact = logits.detach().double().requires_grad_()
    expected = by_plain_operations(exact, target, loss.coefficients(classes))
    torch.testing.assert_close(value.double(), expected, rtol=2e-6, atol=2e-6)
    gradients = [torch.autograd.grad(each.sum(), z)[0].double() for each, z in ((value, logits), (expected, exact))]
    torch.testing.assert_close(*gradients, rtol=2e-5, atol=2e-5)


def test_other_losses_are_never_left_to_torch():
    assert [name for name, formula in FORMULAS.items() if formula.is_cross_entropy] == ["cross-entropy"]
    assert SparseLabelSmoothingLoss(0.0).coefficients(5).is_cross_entropy
    assert not SparseLabelSmoothingLoss(0.1, simplified=True).coefficients(5).is_cross_entropy


def test_strided_logits():
    logits, target = case(9, 40, 3, torch.float32)
    assert_agrees(logits.t().contiguous().t(), target, FORMULAS["sparse"])
    assert_agrees(torch.cat((logits, logits), 1)[:, ::2], (target // 2).where(target >= 0, target), FORMULAS["sparse"])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_excluded_classes_and_nan(dtype):
    logits = torch.tensor([[0.0, -torch.inf, -torch.inf], [-torch.inf, 1.0, 2.0], [0.0, torch.nan, 1.0]], dtype=dtype)
    for classes in (3, 200):  # the kernel has two ways
        wide = torch.full((3, classes), -torch.inf, dtype=dtype)
        wide[:, :3] = logits
        wide.requires_grad_()
        target, options = torch.tensor([0, 1, 2]), {"ignore_index": -100, "composed": None}
        value = fused_loss(wide, target, None, reduction="none", coefficients=Coefficients(), **options)
        assert value[0] == 0
        assert value[1].item() == pytest.approx(1.3133, rel=1e-2)
        assert value[2].isnan()  # NaN is never swallowed
        (gradient,) = torch.autograd.grad(value[:2].sum(), wide)
        assert gradient[0, :3].tolist() == [0, 0, 0]
        assert gradient[1, :3].tolist() == pytest.approx([0, -0.7311, 0.7311], rel=1e-2)
        assert not gradient[:2, 3:].any()


def test_many_rows_are_shared_among_threads_without_changing_the_result():
    logits, target = case(300, 3000, 3, torch.float64)
    weight = torch.rand(3000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    threads = torch.get_num_threads()
    for reduction in ("none", "mean"):
        found = []
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            variable = logits.clone().requires_grad_()
            value = SparseLabelSmoothingLoss(weight=weight, reduction=reduction)(variable, target)
            found.append((value, *torch.autograd.grad(value.sum(), variable)))
        torch.set_num_threads(threads)
        assert all(torch.equal(value, found[0][0]) for value, _ in found)
        assert all(torch.equal(gradient, found[0][1]) for _, gradient in found)


def test_after_an_error_no_thread_takes_further_parts(monkeypatch):
    caller, done = threading.get_ident(), []

    def failing_here(rows, *_):
        if threading.get_ident() == caller:
            raise KeyboardInterrupt
        time.sleep(0.01)
        done.append(len(rows))

    monkeypatch.setattr(cpu_kernels, "_ELEMENTS_PER_PART", 10)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        cpu_kernels._over_rows(failing_here, (np.zeros((100, 10)), np.zeros(100)))
    time.sleep(0.1)
    assert len(done) <= 1


def test_forward_mode_differentiates_the_loss():
    logits, target = case(9, 5, 1, torch.float32)
    for loss in (FocalLoss(2.0), AbsoluteCrossEntropyLoss(phi1=1.3)):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(logits, torch.ones_like(logits) * torch.arange(5))
            tangent = forward_ad.unpack_dual(loss(dual, target)).tangent
        variable = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(variable, target), variable)
        torch.testing.assert_close(tangent, (gradient * torch.arange(5)).sum(), rtol=1e-4, atol=1e-5)


def test_class_weights_may_be_a_parameter():
    logits, target = case(9, 5, 1, torch.float32)
    for loss in (
        FocalLoss(2.0, weight=torch.arange(1.0, 6.0)),
        AbsoluteCrossEntropyLoss(weight=torch.arange(1.0, 6.0)),
    ):
        expected = loss(logits, target)
        weight = loss.weight
        del loss.weight
        loss.weight = torch.nn.Parameter(weight, requires_grad=False)
        torch.testing.assert_close(loss(logits, target), expected)


def test_a_target_out_of_bounds_is_found_in_every_thread_s_share():
    logits, target = case(300, 3000, 3, torch.float32)
    for place in (0, 299):
        wrong = target.clone()
        wrong[place] = 3000
        with pytest.raises(IndexError, match=r"Target 3000 is out of bounds\."):
            SparseLabelSmoothingLoss()(logits, wrong)


def test_all_classes_at_once():
    logits, _ = case(9, 12, 20, torch.float64)
    expected = torch.stack([target_log_odds(logits, torch.full((9,), k)) for k in range(12)], dim=1)
    torch.testing.assert_close(all_log_odds(logits), expected, rtol=1e-12, atol=1e-12)


TRITON_CHECK = """
import torch
import evomal.losses.fused as fused
import evomal.losses.kernels_gpu as gpu_kernels
from evomal.losses import FocalLoss
from tests.losses.test_fused import DTYPES, FORMULAS, assert_agrees, case, test_excluded_classes_and_nan

fused._backend = lambda device: gpu_kernels
for formula in FORMULAS.values():
    for dtype in DTYPES[1:]:
        for classes in (2, 7, 300):
            for spread in (1, 1e4):
                assert_agrees(*case(4, classes, spread, dtype), formula)
assert_agrees(*case(4, 9000, 3, torch.float32), FORMULAS["sparse"])
test_excluded_classes_and_nan(torch.float32)
assert FocalLoss(reduction="none")(torch.zeros(3, 5), torch.tensor([0, 9, -1])).isnan().tolist() == [False, True, True]
weighted = FocalLoss(weight=[0.5, 2.0, 1.0])
logits, target = torch.randn(5, 3), torch.tensor([0, 1, 2, -100, 1])
torch.testing.assert_close(weighted(logits, target), weighted.composed(logits, target, weighted.weight, target.shape))
"""


def test_triton_kernel_in_the_interpreter():
    check_in_interpreter(TRITON_CHECK)


def test_triton_kernels_are_launched_on_the_device_of_the_logits(monkeypatch):
    gpu_kernels = pytest.importorskip("evomal.losses.kernels_gpu", reason="Triton has no wheel for this platform")
    current, launched = [None], []

    @contextlib.contextmanager
    def on_device_of(tensor):
        current.append(tensor.device)
        yield
        current.pop()

    class Kernel:
        def __getitem__(self, grid):
            return lambda *arguments, **options: launched.append(current[-1])

    monkeypatch.setattr(gpu_kernels, "on_device_of", on_device_of)
    monkeypatch.setattr(gpu_kernels, "_losses_kernel", Kernel())
    monkeypatch.setattr(gpu_kernels, "_gradient_kernel", Kernel())
    logits, target = case(4, 3, 1, torch.float32)
    found = gpu_kernels.losses(logits, target, None, -100, Coefficients(), "mean")
    gpu_kernels.gradient(logits, found.kept, torch.tensor(1.0))
    assert launched == [logits.device] * 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("classes", [2, 33, 1000, 70_000])
def test_cuda_kernel(formula, dtype, classes):
    for spread in (1, 20, 1e4):
        assert_agrees(*case(9, classes, spread, dtype, "cuda"), FORMULAS[formula])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_double_precision_takes_plain_operations():
    logits, target = case(9, 30, 3, torch.float64, "cuda")
    assert not can_fuse(logits, target)
    coefficients = SparseLabelSmoothingLoss().coefficients(30)
    expected = by_plain_operations(logits, target, coefficients)
    torch.testing.assert_close(SparseLabelSmoothingLoss(reduction="none")(logits, target), expected, rtol=1e-12, atol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_a_target_out_of_bounds_costs_nan():
    losses = FocalLoss(reduction="none")(torch.zeros(3, 5, device="cuda"), torch.tensor([0, 9, -1], device="cuda"))
    assert losses.isnan().tolist() == [False, True, True]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernels_can_be_captured_in_a_cuda_graph():
    logits, target = case(64, 1000, 3, torch.float32, "cuda")
    logits.requires_grad_()
    loss = SparseLabelSmoothingLoss()
    (expected,) = torch.autograd.grad(loss(logits, target), logits)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (gradient,) = torch.autograd.grad(loss(logits, target), logits)
    gradient.zero_()
    graph.replay()
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_batch_of_ignored_samples_has_no_gradient(reduction):
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    value = FocalLoss(reduction=reduction, ignore_index=2)(logits, torch.full((3,), 2))
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.isnan().all() == (reduction == "mean")
    assert torch.equal(gradient, torch.zeros(3, 5))
