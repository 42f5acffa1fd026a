"""One expression loss by kernels against the same by torch operations."""

import pytest
import torch
from torch import nn

from evomal.expression import Expression
from evomal.losses import ExpressionLoss, expression_kernels
from evomal.losses.expression_kernels import has_kernel

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))]
TREE = "add(abs(log(mul(y, f))), square(sub(f, min(y, tanh(f)))))"
WEIGHTS = [0.9, 1.1, 1.2, 0.8, 1.0, 0.7, 1.3, 1.0, 0.6, 1.4, 0.9, 1.1]
SAMPLES, CLASSES = 70, 1000


@pytest.fixture
def by_operations(monkeypatch):
    """Computes a function's result by torch operations."""

    def compute(function):
        with monkeypatch.context() as patch:
            patch.setattr(expression_kernels, "_FEWEST_ELEMENTS", 1 << 60)
            return function()

    return compute


@pytest.fixture
def kernel_calls(monkeypatch):
    """The numbers of samples that kernels were called with."""
    calls = []
    kernel = expression_kernels._computed

    def counted(forest, packed, output, target, *, keep):
        calls.append(len(output))
        return kernel(forest, packed, output, target, keep=keep)

    monkeypatch.setattr(expression_kernels, "_computed", counted)
    return calls


def loss_and_gradient(loss, output, target):
    variable = output.detach().clone().requires_grad_()
    value = loss(variable, target)
    factors = torch.linspace(0.5, 2, value.numel(), device=value.device).reshape(value.shape)
    (gradient,) = torch.autograd.grad((value * factors).sum(), variable)
    return value.detach(), gradient


def drawn(*shape, seed=0, device="cpu"):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def indices(*shape, most=CLASSES, device="cpu"):
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(1)).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (SAMPLES, CLASSES)),
        ({"activation": "softplus", "weights": WEIGHTS}, (SAMPLES, CLASSES)),
        ({"weight": torch.linspace(0.1, 2, CLASSES)}, (SAMPLES, CLASSES)),
        ({"ignore_index": 7, "weights": WEIGHTS}, (SAMPLES, CLASSES)),
        ({"ignore_index": 7, "weight": torch.linspace(0.1, 2, CLASSES)}, (35, CLASSES, 2)),
    ],
)
def test_classes(options, shape, reduction, device, by_operations, kernel_calls):
    loss = ExpressionLoss(TREE, reduction=reduction, **options).to(device)
    output, target = drawn(*shape, device=device), indices(shape[0], *shape[2:], device=device)
    target.view(-1)[::5] = 7
    expected = by_operations(lambda: loss_and_gradient(loss, output, target))
    assert kernel_calls == []
    torch.testing.assert_close(loss_and_gradient(loss, output, target), expected, rtol=2e-4, atol=2e-6)
    assert kernel_calls == [SAMPLES]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("kind", "shape", "target"),
    [
        ("regression", (70_000,), drawn(70_000, seed=2)),
        ("regression", (35_000, 2), drawn(35_000, 2, seed=2)),
        ("multilabel", (700, 100), indices(700, 100, most=2)),
        ("classification", (70_000, 1), indices(70_000, most=2)),
    ],
)
def test_elements(kind, shape, target, device, by_operations, kernel_calls):
    loss = ExpressionLoss(TREE, WEIGHTS, kind=kind, reduction="none")
    output, target = drawn(*shape, device=device), target.to(device)
    expected = by_operations(lambda: loss_and_gradient(loss, output, target))
    torch.testing.assert_close(loss_and_gradient(loss, output, target), expected, rtol=2e-4, atol=2e-6)
    assert kernel_calls == [70_000]


def test_half_precision_and_autocast(by_operations, kernel_calls):
    loss = ExpressionLoss(TREE)
    output, target = drawn(SAMPLES, CLASSES).bfloat16(), indices(SAMPLES)
    for enabled in (False, True):
        with torch.autocast("cpu", enabled=enabled):
            expected = by_operations(lambda: loss_and_gradient(loss, output, target))
            found = loss_and_gradient(loss, output, target)
        assert found[0].dtype == expected[0].dtype
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-5)
    assert kernel_calls == [SAMPLES] * 2


def test_second_derivatives(by_operations, kernel_calls):
    loss, direction, target = ExpressionLoss(TREE), drawn(SAMPLES, CLASSES, seed=3), indices(SAMPLES)

    def second():
        variable = drawn(SAMPLES, CLASSES).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(variable, target), variable, create_graph=True)
        return gradient.detach(), torch.autograd.grad((gradient * direction).sum(), variable)[0]

    expected = by_operations(second)
    torch.testing.assert_close(second(), expected, rtol=2e-4, atol=2e-6)
    assert kernel_calls == [SAMPLES]


def test_a_second_backward_pass_and_a_pass_without_gradients():
    loss, target, variable = ExpressionLoss(TREE), indices(SAMPLES), drawn(SAMPLES, CLASSES).requires_grad_()
    value = loss(variable, target)
    first, second = (torch.autograd.grad(value, variable, 3 * torch.ones(()), retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    with torch.no_grad():
        assert torch.equal(loss(variable, target), value)


def test_probabilities_weights_and_forward_mode_are_left_to_operations(kernel_calls):
    output = drawn(SAMPLES, CLASSES).requires_grad_()
    ExpressionLoss(TREE)(output, output.detach().softmax(1)).backward()
    tree = Expression.parse("mul(y, log(f))")
    weights = nn.Parameter(torch.ones(tree.edges))
    ExpressionLoss(tree, weights)(output, indices(SAMPLES)).backward()
    assert weights.grad is not None
    ExpressionLoss(tree)(output.double(), indices(SAMPLES)).backward()
    target = indices(SAMPLES)
    torch.func.jvp(lambda z: ExpressionLoss(tree)(z, target), (output.detach(),), (drawn(SAMPLES, CLASSES),))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(output.detach(), drawn(SAMPLES, CLASSES))
        tangent = torch.autograd.forward_ad.unpack_dual(ExpressionLoss(tree)(dual, target)).tangent
    assert tangent is not None
    assert kernel_calls == []


def test_compiled_without_graph_breaks(kernel_calls):
    torch._dynamo.reset()
    loss, output, target = ExpressionLoss(TREE), drawn(SAMPLES, CLASSES), indices(SAMPLES)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found = loss_and_gradient(compiled, output, target)
    assert kernel_calls == []
    torch.testing.assert_close(found, loss_and_gradient(loss, output, target), rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize(("elements", "kernel"), [(1, False), ((1 << 16) - 1, False), (1 << 16, True)])
def test_kernels_are_for_large_batches(elements, kernel):
    assert has_kernel(torch.zeros(elements, 1), torch.zeros(elements, 1), None) is kernel


def test_memory_does_not_depend_on_the_tree():
    peaks = []
    for text in ("mul(y, log(f))", f"add({TREE}, {TREE})"):
        output, target = drawn(512, 2000).requires_grad_(), indices(512)
        run = lambda: torch.autograd.grad(ExpressionLoss(text)(output, target), output)  # noqa: B023, E731
        run()
        peaks.append(peak_bytes(run) / (4 * output.numel()))
    assert max(peaks) <= 1.5
    assert max(peaks) - min(peaks) < 0.01


def peak_bytes(function):
    """The most bytes that torch allocated at one time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiled:
        function()
    total = peak = 0
    for event in sorted(profiled.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            total += event.nbytes()
            peak = max(peak, total)
    return peak
