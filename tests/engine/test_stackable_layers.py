"""Layers for stacks of small convolutional models, beside torch's own: every pass of a search, and the kernels."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, vjp, vmap

from evomal.engine import stackable_layers
from evomal.engine.precision import matmul_precision
from evomal.engine.stackable_layers import StackableAveragePool, StackableConvolution, replace_stackable_layers
from tests.processes import check_in_interpreter


def small_model():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=(1, 0)), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(3, 4, (3, 2), bias=False), nn.Tanh(), nn.AvgPool2d((1, 2)), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def random_like(parameters, *lead, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(*lead, *value.shape, generator=generator, dtype=value.dtype).to(value.device)
        for name, value in parameters.items()
    }


def passes_of_a_search(model, device="cpu", dtype=torch.float64):
    """What a model gives in all the ways in which a search runs stacked models."""
    start = {name: value.detach() for name, value in model.named_parameters()}
    draws = torch.Generator().manual_seed(1)
    inputs = torch.randn(2, 6, 1, 8, 10, generator=draws, dtype=dtype).to(device)
    cotangents = torch.randn(3, 6, 5, generator=draws, dtype=dtype).to(device)

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


def test_all_passes_are_those_of_torch_s_layers():
    plain = small_model().double()
    check_all_passes(plain, changed_copy(plain), 1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_all_passes_by_the_kernels_on_a_gpu():
    plain = small_model().cuda()
    with matmul_precision("float32", torch.device("cuda")):  # cuDNN would use TF32 for the layers of torch
        check_all_passes(plain, changed_copy(plain), 2e-3, device="cuda", dtype=torch.float32)


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
    assert not replace_stackable_layers(model)
    assert model[0] is layer


def test_average_pooling_that_leaves_a_row_over():
    layer = StackableAveragePool(nn.AvgPool2d(2))
    x = torch.randn(3, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(nn.AvgPool2d(2)(x).square().sum(), x)
    assert torch.equal(torch.autograd.grad(layer(x).square().sum(), x)[0], expected[0])


def test_models_on_a_cpu_keep_torch_s_layers():
    options = {"dtype": torch.float32, "precision": "float32"}
    assert stackable_layers.stackable_copy(small_model(), device=torch.device("cpu"), **options) is None
