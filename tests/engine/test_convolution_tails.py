"""Bias, activation and pooling as part of a convolution, beside torch's layers."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from evomal.engine.convolution_tails import ConvolutionWithTail, with_tails
from evomal.engine.precision import matmul_precision
from evomal.engine.stackable_layers import replace_stackable_layers
from tests.processes import check_in_interpreter

SAMPLES = torch.randn(2, 1, 12, 16, generator=torch.Generator().manual_seed(0))
CHAINS = {
    "tanh, mean": lambda: [nn.Conv2d(1, 3, 5), nn.Tanh(), nn.AvgPool2d(2)],
    "relu, largest": lambda: [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d((2, 4))],
    "sigmoid": lambda: [nn.Conv2d(1, 3, 3), nn.Sigmoid()],
    "mean": lambda: [nn.Conv2d(1, 3, 3, bias=False), nn.AvgPool2d((5, 7))],
    "largest": lambda: [nn.Conv2d(1, 3, 3), nn.MaxPool2d((1, 2))],
    "twice": lambda: [nn.Conv2d(1, 3, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)],
    "rows are left over": lambda: [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AvgPool2d(3)],
}  # fmt: skip


def both(name, device="cpu"):
    """A model with stackable layers, and the copy of it that has tails."""
    plain = nn.Sequential(*CHAINS[name](), nn.Flatten()).to(device)
    assert replace_stackable_layers(plain)
    joined = with_tails(plain, SAMPLES.to(device))
    assert type(joined[0]) is ConvolutionWithTail
    return plain, joined


def stacked_passes(model, device="cpu", samples=5):
    """Outputs and gradients of a stack in two groups: with inputs of their own, with the same inputs, frozen biases."""
    draws = torch.Generator().manual_seed(1)
    inputs = torch.randn(2, samples, *SAMPLES.shape[1:], generator=draws).to(device)
    stack = {
        name: torch.randn(2, 3, *value.shape, generator=draws).to(device).requires_grad_()
        for name, value in model.named_parameters()
    }
    frozen = {name: value[0, 0].detach() for name, value in stack.items() if name.endswith("bias")}

    def outputs_of(parameters, x):
        return functional_call(model, parameters, (x,))

    def outputs_of_frozen(parameters, x):
        return outputs_of({**parameters, **frozen}, x)

    of_group = vmap(outputs_of, in_dims=(0, None))
    weights = {name: value for name, value in stack.items() if name not in frozen}
    for found, trained in (
        (vmap(of_group)(stack, inputs), stack),
        (vmap(of_group, in_dims=(0, None))(stack, inputs[0]), stack),
        (vmap(vmap(outputs_of_frozen, in_dims=(0, None)))(weights, inputs), weights),
    ):
        cotangents = torch.randn(found.shape, generator=draws).to(device)
        yield found, torch.autograd.grad(found, [*trained.values()], cotangents)


def check(plain, joined, **options):
    for expected, found in zip(stacked_passes(plain, **options), stacked_passes(joined, **options), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CHAINS)
def test_without_kernels_the_layers_are_torch_s(name):
    check(*both(name))


INTERPRETED = """
from tests.engine.test_convolution_tails import *
from evomal.engine import convolution_tails, tails_triton

convolution_tails.fits_kernels = lambda *_: True
tails_triton._SHARE, tails_triton._BLOCK = 2, 512
used = []
computed = tails_triton.tail
tails_triton.tail = lambda *arguments, **options: used.append(arguments) or computed(*arguments, **options)
for name in CHAINS:
    del used[:]
    plain, joined = both(name)
    check(plain, joined)
    assert bool(used) == (name != "rows are left over"), name
y, bias = torch.randn(3, 5, 2, 4, 6), torch.randn(3, 2)
above = torch.randn(3, 5, 2, 2, 2)
y[0, 0, 0, 0] = torch.nan
for activation in tails_triton.ACTIVATIONS:
    for is_max in (False, True):
        options = {"activation": activation, "is_max": is_max}
        alone = tails_triton.tail_gradient(above[1:2], y[1:2], bias[1:2], (2, 3), **options)
        among = tails_triton.tail_gradient(above, y, bias, (2, 3), **options)
        assert all(torch.equal(own[0], other[1]) for own, other in zip(alone, among))
        result = tails_triton.tail(y, bias, (2, 3), **options)
        assert result[0, 0, 0, 0].isnan().all() and result[0, 0, 0, 1:].isfinite().all()
y = torch.tensor([[1.0, 1.0, 0.0], [torch.nan, 2.0, torch.nan]]).view(1, 2, 1, 1, 3).requires_grad_()
above, options = torch.ones(1, 2, 1, 1, 1), {"activation": "none", "is_max": True}
found, _ = tails_triton.tail_gradient(above, y, torch.zeros(1, 1), (1, 3), **options)
assert torch.equal(found, torch.autograd.grad(torch.max_pool2d(y[0], (1, 3)).sum(), y)[0])
"""


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton", reason="Triton has no wheel for this platform")
    check_in_interpreter(INTERPRETED)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", CHAINS)
def test_the_kernels_on_a_gpu(name):
    with matmul_precision("float32", torch.device("cuda")):
        check(*both(name, "cuda"), device="cuda", samples=70)


class Looking(nn.Module):
    """Uses what lies between two layers."""

    def __init__(self):
        super().__init__()
        self.chain = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh())

    def forward(self, x):
        y = self.chain[0](x)
        return (self.chain[1](y) + y).flatten(1)


class InTraining(Looking):
    """Does so in training only."""

    def forward(self, x):
        return super().forward(x) if self.training else self.chain(x).flatten(1)


def hooked(layer):
    layer.register_forward_hook(lambda *_: None)
    return layer


TWICE = nn.Tanh()


@pytest.mark.parametrize(
    "model",
    [
        Looking(),
        InTraining(),
        nn.Sequential(nn.Conv2d(1, 3, 3), hooked(nn.Tanh()), nn.AvgPool2d(2), nn.Flatten()),
        nn.Sequential(nn.Conv2d(1, 3, 3), TWICE, nn.Flatten(), TWICE),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.GELU(), nn.AvgPool2d(2), nn.Flatten()),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2, stride=1), nn.Flatten()),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(3, ceil_mode=True), nn.Flatten()),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten()),
    ],
)
def test_other_models_keep_their_layers(model):
    model = copy.deepcopy(model)
    assert replace_stackable_layers(model)
    assert with_tails(model, SAMPLES) is model


def test_a_model_that_asks_for_its_layers_finds_them():
    plain, joined = both("tanh, mean")
    kinds = (nn.Conv2d, nn.Tanh, nn.AvgPool2d, nn.Flatten)
    assert all(isinstance(layer, kind) for layer, kind in zip(joined, kinds, strict=True))
    assert [*joined.state_dict()] == [*plain.state_dict()]
    with torch.no_grad():
        joined[0].weight.zero_()
    assert not torch.equal(plain[0].weight, joined[0].weight)  # a copy


def test_dropout_draws_the_same_masks():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Dropout(0.5), nn.BatchNorm2d(3), nn.Flatten())
    assert replace_stackable_layers(model)
    assert type(with_tails(model, SAMPLES)[0]) is ConvolutionWithTail
    assert not model[3].num_batches_tracked
