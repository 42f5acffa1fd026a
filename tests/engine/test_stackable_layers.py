"""Layers for stacks of models, beside torch's own: every pass of a search, and the kernels."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, vjp, vmap

from evomal.engine import stackable_layers
from evomal.engine.precision import matmul_precision
from evomal.engine.stackable_layers import (
    StackableAveragePool,
    StackableConvolution,
    StackableLinear,
    replace_linear_layers,
    replace_stackable_layers,
)
from tests.processes import check_in_interpreter


def small_model():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=(1, 0)), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(3, 4, (3, 2), bias=False), nn.Tanh(), nn.AvgPool2d((1, 2)), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def linear_model():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(80, 36), nn.Tanh(), nn.Linear(36, 32, bias=False), nn.Tanh(), nn.Linear(32, 5)
    )


def random_like(parameters, *lead, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(*lead, *value.shape, generator=generator, dtype=value.dtype).to(value.device)
        * min(1.0, 5.0 / value[0].numel())  # many inputs would saturate tanh, whose derivatives then lose all digits
        for name, value in parameters.items()
    }


def passes_of_a_search(model, device="cpu", dtype=torch.float64, samples=6):
    """What a model gives in all the ways in which a search runs stacked models."""
    start = {name: value.detach() for name, value in model.named_parameters()}
    draws = torch.Generator().manual_seed(1)
    inputs = torch.randn(2, samples, 1, 8, 10, generator=draws, dtype=dtype).to(device)
    cotangents = torch.randn(3, samples, 5, generator=draws, dtype=dtype).to(device)

    def outputs_of(parameters, x=inputs[0]):
        return functional_call(model, parameters, (x,))

    stack, directions = random_like(start, 3), random_like(start, 3, seed=2)
    outputs, pull = vjp(outputs_of, start)
    yield "one model", outputs
    yield "pull-back at shared parameters", vmap(pull)(cotangents)
    yield "direction at shared parameters", vmap(lambda v: jvp(outputs_of, (start,), (v,))[1])(directions)
    push = vjp(pull, torch.zeros_like(outputs))[1]
    yield "transposed pull-back", vmap(lambda v: push((v,))[0])(directions)
    yield "stacked", vmap(outputs_of)(stack)
    yield "stacked pull-back", vmap(lambda own, c: vjp(outputs_of, own)[1](c)[0])(stack, cotangents)
    yield "stacked direction", vmap(lambda own, v: jvp(outputs_of, (own,), (v,))[1])(stack, directions)

    def slope(parameters):
        return sum(
            value.square().sum() for value in grad(lambda own: outputs_of(own).square().sum())(parameters).values()
        )

    yield "second derivative", vmap(grad(slope))(stack)
    groups = {name: torch.stack([value, value / 2]).requires_grad_() for name, value in stack.items()}
    of_group = vmap(outputs_of, in_dims=(0, None))
    for name, found in (
        ("groups with inputs of their own", vmap(of_group)(groups, inputs)),
        ("groups with the same inputs", vmap(of_group, in_dims=(0, None))(groups, inputs[0])),
    ):
        yield name, (found, torch.autograd.grad(found.square().sum(), [*groups.values()]))


def check_all_passes(plain, changed, tolerance, **options):
    for (name, expected), (_, found) in zip(
        passes_of_a_search(plain, **options), passes_of_a_search(changed, **options), strict=True
    ):
        torch.testing.assert_close(
            found, expected, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


def changed_copy(model):
    changed = copy.deepcopy(model)
    assert replace_stackable_layers(changed)
    assert {type(layer) for layer in changed} >= {StackableConvolution, StackableAveragePool}
    return changed


def changed_linear_copy(model):
    changed = copy.deepcopy(model)
    assert replace_linear_layers(changed)
    assert [type(layer) for layer in changed[1::2]] == [StackableLinear, StackableLinear, nn.Linear]
    return changed


@pytest.mark.parametrize(("model", "changed"), [(small_model, changed_copy), (linear_model, changed_linear_copy)])
def test_all_passes_are_those_of_torch_s_layers(model, changed):
    plain = model().double()
    check_all_passes(plain, changed(plain), 1e-10)


def test_linear_layers_take_inputs_of_any_shape():
    plain = nn.Linear(40, 36).double()
    changed = copy.deepcopy(plain)
    assert replace_linear_layers(changed)
    x = torch.randn(2, 3, 5, 40, dtype=torch.float64)
    for own in (x, x[0, 0], x[0, 0, 0], x[:0], x[:, :0]):
        torch.testing.assert_close(changed(own), plain(own), rtol=1e-12, atol=1e-12)


class Referring(nn.Module):
    """Finds its layers by other ways than their names, and asks what they are."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(32, 36), nn.Linear(36, 32)
        self.again = self.first
        self.chain = [self.first, self.last]

    def forward(self, x):
        for layer in self.chain:
            x = layer(x.view(-1, layer.in_features))
            x = x.relu() if isinstance(layer, nn.Linear) else x
        return self.again(x)


def test_references_to_layers_stay_valid():
    plain = Referring().double()
    changed = copy.deepcopy(plain)
    assert replace_linear_layers(changed)
    x = torch.randn(6, 32, dtype=torch.float64)
    stack = random_like(dict(plain.named_parameters()), 3)
    expected, found = (
        vmap(lambda own, model=model: functional_call(model, own, (x,)))(stack) for model in (plain, changed)
    )
    assert {type(layer) for layer in changed.chain} == {StackableLinear}
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert not torch.equal(found[0], found[1])


def test_a_model_with_its_own_autocast_trains():
    class Casting(nn.Sequential):
        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x).float()

    plain = Casting(nn.Linear(32, 36), nn.Linear(36, 32))
    changed = copy.deepcopy(plain)
    assert replace_linear_layers(changed)
    x = torch.randn(8, 32)
    for model in (plain, changed):
        model(x).square().sum().backward()
    torch.testing.assert_close(changed[0].weight.grad, plain[0].weight.grad)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(
    ("model", "changed", "samples"), [(small_model, changed_copy, 6), (linear_model, changed_linear_copy, 64)]
)
def test_all_passes_by_the_kernels_on_a_gpu(model, changed, samples):
    plain = model().cuda()
    with matmul_precision("float32", torch.device("cuda")):  # cuDNN would use TF32 for the layers of torch
        check_all_passes(plain, changed(plain), 2e-3, device="cuda", dtype=torch.float32, samples=samples)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("precision", ["tf32x3", "bf16x6"])
def test_matrix_products_on_a_gpu_are_as_accurate_as_float32(precision):
    from evomal.engine.products_triton import matrix_product

    draws = torch.Generator("cuda").manual_seed(0)
    a, b = (torch.randn(3, 2, 200, 300, device="cuda", generator=draws) for _ in range(2))
    exact = a.double() @ b.double().mT
    found = matrix_product(a, b.mT, PRECISION=precision)
    assert (found - exact).norm() / exact.norm() < 5e-7
    assert torch.equal(matrix_product(a[1:2], b[1:2].mT, PRECISION=precision)[0], found[1])


INTERPRETED = """
from tests.engine.test_stackable_layers import *
import torch.nn.functional as F
from evomal.engine import layers_triton
from evomal.engine.layers_triton import correlated, input_gradient, weight_gradient

torch.manual_seed(0)
layers_triton._SHARE = 64  # several shares of few pixels
for groups, members, samples, channels, out, height, width, high, wide, padding in (
    (2, 2, 3, 6, 16, 9, 8, 5, 5, (0, 0)), (1, 3, 6, 1, 6, 9, 9, 5, 5, (0, 0)), (2, 4, 3, 2, 70, 6, 5, 3, 2, (2, 1)),
):
    x, weight = torch.randn(groups, samples, channels, height, width), torch.randn(members, out, channels, high, wide)
    each = x.repeat_interleave(members // groups, 0).double().requires_grad_()
    exact = weight.double().requires_grad_()
    expected = torch.stack([F.conv2d(*pair, padding=padding) for pair in zip(each, exact)])
    found = correlated(x, weight, padding)
    gradient = torch.randn_like(found)
    by_x, by_weight = torch.autograd.grad(expected, (each, exact), gradient.double())
    close = lambda a, b: torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)
    close(found, expected)
    close(input_gradient(gradient, weight, padding), by_x)
    close(weight_gradient(x, gradient, (high, wide), padding), by_weight)
    others = weight_gradient(x[:1], gradient[: members // groups], (high, wide), padding)
    assert torch.equal(others, weight_gradient(x, gradient, (high, wide), padding)[: members // groups])

stackable_layers.fits_kernels = lambda *_: True
plain = small_model()
check_all_passes(plain, changed_copy(plain), 2e-3, dtype=torch.float32)
"""


def test_kernels_in_the_interpreter():
    check_in_interpreter(INTERPRETED)


INTERPRETED_PRODUCTS = """
from tests.engine.test_stackable_layers import *
from evomal.engine import products_triton
from evomal.engine.products_triton import matrix_product

products_triton._OTHERWISE["PRECISION"] = "tf32x3"  # the interpreter knows no other; it computes in float32
torch.manual_seed(0)
tall, wide = torch.randn(2, 3, 68, 40), torch.randn(2, 3, 40, 72)
for a, b in (
    (tall, wide), (tall[:1], wide), (tall[:, :1], wide), (tall, wide[:, :1]), (tall[0, 0], wide),
    (tall[0], wide[1, :1]), (tall[None], wide), (tall.mT.contiguous().mT, wide), (tall, wide.mT.contiguous().mT),
    (tall.mT.contiguous().mT, wide.mT.contiguous().mT), (torch.randn(2, 3, 68, 42)[..., 1:-1], wide),
    (torch.randn(2, 3, 68, 80)[..., ::2], wide), (tall[..., :1].expand(tall.shape), wide),
):
    torch.testing.assert_close(matrix_product(a, b), a @ b, rtol=1e-5, atol=1e-5)

stackable_layers.fits_kernels = stackable_layers.fits_matrix_kernel = lambda *_: True
stackable_layers._SMALLEST_SIDE = 4
plain = linear_model()
assert isinstance(stackable_layers.stackable_copy(plain, device=plain[1].weight.device, dtype=torch.float32,
                                                  precision="float32")[1], StackableLinear)
used = []
computed = products_triton.matrix_product
products_triton.matrix_product = lambda *pair: used.append(pair) or computed(*pair)
check_all_passes(plain, changed_linear_copy(plain), 2e-3, dtype=torch.float32, samples=8)
assert len(used) > 20
del used[:]
stackable_layers._matrix_product(tall[0, 0], wide[0, 0])  # one model alone
stackable_layers._matrix_product(tall[..., :30], wide[..., :30, :])  # 30 is no multiple of four
assert not used
stackable_layers._matrix_product(tall[0, :1], wide[0, :1])  # a stack of one
assert used
"""


def test_matrix_products_in_the_interpreter():
    check_in_interpreter(INTERPRETED_PRODUCTS)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 2, 3, stride=2), nn.Conv2d(2, 2, 3, dilation=2), nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(2, 2, 3, padding="same"), nn.Conv2d(2, 2, 3, padding=3),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
        nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 2, 3)),
        nn.AvgPool2d(2, stride=1), nn.AvgPool2d(2, padding=1), nn.AvgPool2d(2, divisor_override=3),
    ],
)  # fmt: skip
def test_other_layers_stay(layer):
    model = nn.Sequential(layer)
    kind = type(layer)
    assert not replace_stackable_layers(model)
    assert type(model[0]) is kind


def test_average_pooling_that_leaves_a_row_over():
    layer = StackableAveragePool(2)
    x = torch.randn(3, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(nn.AvgPool2d(2)(x).square().sum(), x)
    assert torch.equal(torch.autograd.grad(layer(x).square().sum(), x)[0], expected[0])


def hooked(layer):
    layer.register_full_backward_pre_hook(lambda *_: None)
    return layer


def patched(layer):
    layer.forward = lambda x: x
    return layer


def test_large_models_keep_torch_s_layers(monkeypatch):
    monkeypatch.setattr(stackable_layers, "fits_kernels", lambda *_: True)
    monkeypatch.setattr(stackable_layers, "fits_matrix_kernel", lambda *_: True)

    def changed(*layers, precision="float32"):
        options = {"device": torch.device("cpu"), "dtype": torch.float32, "precision": precision}
        found = stackable_layers.stackable_copy(nn.Sequential(*layers), **options)
        return [] if found is None else [type(layer) for layer in found]

    linear, large = nn.Linear(32, 32), nn.Linear(512, 512)
    assert changed(linear, large) == [StackableLinear, StackableLinear]
    assert changed(nn.Conv2d(1, 2, 3), linear) == [StackableConvolution, StackableLinear]
    assert changed(nn.Conv2d(1, 2, 3), large) == []
    assert changed(linear, nn.Linear(4096, 2048)) == []
    assert changed(nn.Conv2d(1, 2, 3), linear, precision="tf32") == [StackableConvolution, nn.Linear]
    assert changed(linear, precision="tf32") == changed(linear, precision="bfloat16") == []


@pytest.mark.parametrize("model", [small_model, linear_model])
def test_models_on_a_cpu_keep_torch_s_layers(model):
    options = {"dtype": torch.float32, "precision": "float32"}
    assert stackable_layers.stackable_copy(model(), device=torch.device("cpu"), **options) is None


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(30, 64), nn.Linear(64, 28), nn.Linear(34, 64),
        nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)), hooked(nn.Linear(64, 64)),
        patched(nn.Linear(64, 64)),
    ],
)  # fmt: skip
def test_other_linear_layers_stay(layer):
    model = nn.Sequential(layer)
    kind = type(layer)
    assert not replace_linear_layers(model)
    assert type(model[0]) is kind
