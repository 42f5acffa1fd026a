"""The hand-made losses: formulas, minima, stability at the edges of probability, memory."""

import itertools
from types import SimpleNamespace

import mpmath
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from evomal.losses import (
    AbsoluteCrossEntropyLoss,
    FocalLoss,
    FocalSparseLabelSmoothingLoss,
    GeneralizedCrossEntropyLoss,
    LabelSmoothingLoss,
    NormalizedCrossEntropyLoss,
    SparseLabelSmoothingLoss,
    fused,
)

DEVICES = ("cpu", *(["cuda"] if torch.cuda.is_available() else []))
LOSSES = {
    "absolute": lambda **o: AbsoluteCrossEntropyLoss(1.5, 1.2, **o),
    "smoothed": lambda **o: LabelSmoothingLoss(0.1, **o),
    "sparse": lambda **o: SparseLabelSmoothingLoss(0.1, **o),
    "simplified": lambda **o: SparseLabelSmoothingLoss(0.1, simplified=True, **o),
    "focal": lambda **o: FocalLoss(2.0, **o),
    "mild focal": lambda **o: FocalLoss(0.5, **o),
    "focal sparse": lambda **o: FocalSparseLabelSmoothingLoss(0.5, 0.1, **o),
}
BY_BLOCKS = {
    "gce": lambda **o: GeneralizedCrossEntropyLoss(0.7, **o),
    "nce-rce": lambda **o: NormalizedCrossEntropyLoss(**o),
}
LOG = mpmath.log


def formula(name, p, rest, classes):
    """The formulas in multiple precision; `rest` is 1 − p, `smoothed` excepted."""
    a, b = 1 - mpmath.mpf("0.1") + mpmath.mpf("0.1") / classes, mpmath.mpf("0.1") * (classes - 1) / classes
    return {
        "absolute": lambda: mpmath.mpf("1.5") * abs(LOG(mpmath.mpf("1.2") * p)),
        "sparse": lambda: -(a * LOG(p) + b * LOG(rest / (classes - 1))),
        "simplified": lambda: -(LOG(p) + mpmath.mpf("0.1") * LOG(rest)),
        "focal": lambda: -(rest**2) * LOG(p),
        "mild focal": lambda: -(rest ** mpmath.mpf("0.5")) * LOG(p),
        "focal sparse": lambda: (
            -(rest ** mpmath.mpf("0.5") * a * LOG(p) + p ** mpmath.mpf("0.5") * b * LOG(rest / (classes - 1)))
        ),
    }[name]()


def exact(name, logits, target):
    """Value and gradient with fifty digits, from the same logits."""
    with mpmath.workdps(50):
        z = [mpmath.mpf(value) for value in logits]

        def value(*z):
            powers = [mpmath.exp(x) for x in z]
            total, others = mpmath.fsum(powers), mpmath.fsum(x for k, x in enumerate(powers) if k != target)
            return formula(name, powers[target] / total, others / total, len(z))

        step = mpmath.mpf(10) ** -20
        gradient = []
        for k in range(len(z)):
            up, down = ([x + sign * step if j == k else x for j, x in enumerate(z)] for sign in (1, -1))
            gradient.append((value(*up) - value(*down)) / (2 * step))
        return value(*z), gradient


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "smoothed"])
@pytest.mark.parametrize("gap", [-25.0, -3.0, 0.0, 2.0, 25.0])
def test_values_and_gradients_agree_with_mpmath(name, gap):
    logits = torch.tensor([[0.3, gap, -0.2, 0.9, 0.0]], dtype=torch.float64, requires_grad=True)
    value = LOSSES[name]()(logits, torch.tensor([1]))
    (gradient,) = torch.autograd.grad(value, logits)
    expected, expected_gradient = exact(name, logits[0].tolist(), 1)
    assert value.item() == pytest.approx(float(expected), rel=1e-12)
    assert gradient[0].tolist() == pytest.approx([float(g) for g in expected_gradient], rel=1e-10, abs=1e-300)


def test_sparse_label_smoothing_is_least_at_one_minus_smoothing_plus_its_share():
    p = torch.linspace(0.001, 0.999, 99_801, dtype=torch.float64)
    logits = torch.cat((p.log()[:, None], ((1 - p) / 9).log()[:, None].expand(-1, 9)), 1)
    losses = SparseLabelSmoothingLoss(0.1, reduction="none")(logits, torch.zeros(len(p), dtype=torch.long))
    assert p[losses.argmin()].item() == pytest.approx(0.91, abs=1e-5)


def test_the_gradient_of_sparse_label_smoothing_near_certainty():
    rest = 1e-9
    logits = torch.tensor([[1 - rest] + [rest / 9] * 9], dtype=torch.float64).log().requires_grad_()
    (gradient,) = torch.autograd.grad(SparseLabelSmoothingLoss(0.1)(logits, torch.tensor([0])), logits)
    _, expected = exact("sparse", logits[0].tolist(), 0)
    assert gradient[0].tolist() == pytest.approx([float(g) for g in expected], rel=1e-10)


def test_absolute_cross_entropy_pushes_back_from_certainty():
    logits = torch.tensor([[9.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(AbsoluteCrossEntropyLoss(1.0, 1.1)(logits, torch.tensor([0])), logits)
    assert gradient[0, 0] > 0  # a descent step lowers the target's logit
    (gradient,) = torch.autograd.grad(AbsoluteCrossEntropyLoss(1.0, 1.0)(logits, torch.tensor([0])), logits)
    assert gradient[0, 0] < 0


def extremes(dtype):
    """Logits of ±1e4, and gaps at which p lies within 1e-12 of 0 and 1."""
    gap = 27.7
    rows = [
        [1e4, -1e4, 0.0],
        [-1e4, 1e4, 0.0],
        [1e4, 1e4, 1e4],
        [-1e4, -1e4, -1e4],
        [gap, 0, 0],
        [-gap, 0, 0],
        [0, 0, 0],
    ]
    return torch.tensor(rows, dtype=dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_extreme_logits_give_finite_values_and_gradients(name, dtype, device):
    for form, kind, reduction in itertools.product(
        ("indices", "probabilities"), ("classification", "multilabel", "binary"), ("mean", "none")
    ):
        if form == "indices" and kind == "multilabel":
            continue
        logits = extremes(dtype).to(device)
        target = torch.tensor([0, 0, 1, 2, 0, 0, 1], device=device)
        if kind == "binary":
            logits, target = logits[:, :1], target.clamp(max=1)
        if form == "probabilities" or kind == "multilabel":
            width = logits.shape[1]
            target = target.to(dtype)[:, None] if width == 1 else torch.nn.functional.one_hot(target, 3).to(dtype)
        logits.requires_grad_()
        loss = LOSSES[name](kind="multilabel" if kind == "multilabel" else "classification", reduction=reduction)
        value = loss(logits, target)
        assert value.isfinite().all(), (form, kind)
        value.sum().backward()
        assert logits.grad.isfinite().all(), (form, kind)


class _LargeTensors(TorchDispatchMode):
    """Counts the tensors of at least so many elements that operations make anew."""

    def __init__(self, elements):
        super().__init__()
        self.elements, self.made, self.keep = elements, 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        known = {
            tensor.untyped_storage().data_ptr() for tensor in (*args, *self.keep) if isinstance(tensor, torch.Tensor)
        }
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.numel() >= self.elements:
                if tensor.untyped_storage().data_ptr() not in known:
                    self.made += 1
                self.keep.append(tensor)  # so that no storage is freed and its address given to another
        return result


@pytest.mark.parametrize("name", [*LOSSES, *BY_BLOCKS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", ["indices", "probabilities", "multilabel"])
def test_only_the_gradient_is_as_large_as_the_logits(name, dtype, form):
    logits = torch.randn(600, 1000, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    target = torch.arange(600) if form == "indices" else torch.rand(600, 1000).softmax(1).to(dtype)
    kind = "multilabel" if form == "multilabel" else "classification"
    loss = {**LOSSES, **BY_BLOCKS}[name](kind=kind, reduction="sum")
    with _LargeTensors(600 * 1000) as forward:
        value = loss(logits, target)
    assert forward.made == (1 if form == "multilabel" else 0)  # whose losses are elementwise
    with _LargeTensors(600 * 1000) as backward:
        torch.autograd.grad(value, logits)
    assert backward.made == 1


def test_the_counter_notices_a_temporary():
    logits = torch.randn(600, 1000, requires_grad=True)
    with _LargeTensors(600 * 1000) as forward:
        torch.nn.functional.cross_entropy(logits, torch.arange(600), label_smoothing=0.1)
    assert forward.made >= 1


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_few_logits_are_smoothed_by_torch_s_own_kernel(reduction, weighted):
    weight = torch.rand(10, generator=torch.Generator().manual_seed(1)) if weighted else None
    ours = LabelSmoothingLoss(0.1, reduction=reduction, weight=weight)
    theirs = torch.nn.CrossEntropyLoss(label_smoothing=0.1, reduction=reduction, weight=weight)
    logits, target = torch.randn(32, 10, requires_grad=True), torch.arange(32) % 10
    target[3] = -100
    found, expected = ours(logits, target), theirs(logits, target)
    assert torch.equal(found, expected)
    gradients = [torch.autograd.grad(value.sum(), logits)[0] for value in (found, expected)]
    assert torch.equal(*gradients)


@pytest.mark.parametrize(
    ("device", "logits", "by_torch"),
    [("cpu", 2**19, True), ("cpu", 2**19 + 1, False), ("cuda", 2**30, True), ("mps", 2**22 + 1, False)],
)
def test_up_to_how_many_logits_label_smoothing_is_left_to_torch(device, logits, by_torch):
    tensor = SimpleNamespace(device=torch.device(device), numel=lambda: logits)
    assert fused.is_smoothed_fast_in_torch(tensor) == by_torch


@pytest.mark.parametrize(
    ("device", "rows", "classes", "by_torch"),
    [
        ("cpu", 2**8, 16, True), ("cpu", 2**8 + 1, 15, True), ("cpu", 2**9, 15, False),
        ("cpu", 2**10, 2**10, True), ("cpu", 2**10 + 1, 2**10, False),
        ("cuda", 2**20, 2, True), ("cuda", 2**16, 2**10, True), ("cuda", 2**16 + 1, 2**10, False),
        ("mps", 1, 2, False),
    ],
)  # fmt: skip
def test_up_to_how_many_logits_cross_entropy_is_left_to_torch(device, rows, classes, by_torch):
    tensor = SimpleNamespace(device=torch.device(device), shape=(rows, classes), numel=lambda: rows * classes)
    assert fused.is_fast_in_torch(tensor) == by_torch


@pytest.mark.parametrize(("samples", "by_torch"), [(512, True), (513, False)])
@pytest.mark.parametrize("weighted", [False, True])
def test_label_smoothing_on_both_sides_of_the_size_up_to_which_it_is_left_to_torch(samples, by_torch, weighted):
    weight = torch.rand(1024, generator=torch.Generator().manual_seed(1)) if weighted else None
    logits, target = torch.randn(samples, 1024, requires_grad=True), torch.arange(samples)
    target[3] = -100
    assert fused.is_smoothed_fast_in_torch(logits) == by_torch
    value = LabelSmoothingLoss(0.1, weight=weight)(logits, target)
    exact = logits.detach().double().requires_grad_()
    weight = None if weight is None else weight.double()
    expected = torch.nn.functional.cross_entropy(exact, target, weight=weight, label_smoothing=0.1)
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=0)
    gradients = [torch.autograd.grad(each, z)[0].double() for each, z in ((value, logits), (expected, exact))]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", [*LOSSES, *BY_BLOCKS])
@pytest.mark.parametrize("form", ["indices", "probabilities", "multilabel"])
def test_what_fits_one_block_is_not_computed_again_for_its_gradient(monkeypatch, name, form):
    monkeypatch.setattr(fused._ByBlocks, "apply", None)
    logits = torch.randn(32, 10, requires_grad=True)
    target = torch.arange(32) % 10 if form == "indices" else torch.rand(32, 10).softmax(1)
    kind = "multilabel" if form == "multilabel" else "classification"
    {**LOSSES, **BY_BLOCKS}[name](kind=kind)(logits, target).backward()
    assert logits.grad.abs().sum() > 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_the_gradient_of_label_smoothing_by_blocks(smoothing, dtype):
    logits = (5 * torch.randn(600, 1000, generator=torch.Generator().manual_seed(0))).to(dtype).requires_grad_()
    target = torch.arange(600)
    target[7] = -100
    (found,) = torch.autograd.grad(LabelSmoothingLoss(smoothing)(logits, target), logits)
    exact = logits.detach().double().requires_grad_()
    torch.nn.functional.cross_entropy(exact, target, label_smoothing=smoothing).backward()
    tolerance = {torch.float64: 1e-15, torch.float32: 1e-8, torch.bfloat16: 2e-5}[dtype]
    torch.testing.assert_close(found.double(), exact.grad, rtol=0, atol=tolerance)
