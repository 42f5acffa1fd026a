"""Layers that repeat their first pass: the values and derivatives of torch's layers, and nothing computed twice."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp, vjp

from evomal.engine.repeatable_layers import (
    RepeatableBatchNorm,
    RepeatableConvolution,
    RepeatableDropout,
    RepeatableMaxPool,
    forget,
    replace_layers,
    running,
)


class Net(nn.Module):
    """Convolutions with and without bias, stride and groups, batch norm, pooling, dropout, a layer called twice."""

    def __init__(self, dropout=0.0, **options):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1, stride=2)
        self.again = nn.Conv2d(4, 4, 3, padding=1, bias=False, groups=2)
        self.norm, self.drop = nn.BatchNorm2d(4, track_running_stats=False, **options), nn.Dropout(dropout)
        self.pool, self.head = nn.MaxPool2d(3, stride=2, padding=1), nn.Linear(4, 2)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.first(x))))
        for _ in range(2):
            x = x + self.drop(torch.tanh(self.again(x)))
        return self.head(x.mean((2, 3)))


def pair(**options):
    torch.manual_seed(0)
    plain = Net(**options).double().train()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.normal_()
    replaced = copy.deepcopy(plain)
    replace_layers(replaced)
    return plain, replaced


def function_of(module, x):
    return lambda parameters: functional_call(module, parameters, (x,))


def parameters_of(module):
    return {name: value.detach() for name, value in module.named_parameters()}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("options", [{}, {"affine": False}, {"momentum": None}])
def test_values_and_both_derivatives_are_those_of_torch_s_layers(options, layout):
    plain, replaced = pair(**options)
    assert isinstance(replaced.norm, RepeatableBatchNorm)
    assert isinstance(replaced.again, RepeatableConvolution)
    assert isinstance(replaced.drop, RepeatableDropout)
    assert isinstance(replaced.pool, RepeatableMaxPool)
    x, cotangent = torch.randn(5, 3, 8, 8).double().contiguous(memory_format=layout), torch.randn(5, 2).double()
    parameters = parameters_of(plain)
    assert list(parameters) == list(parameters_of(replaced))
    direction = {name: torch.randn_like(value) for name, value in parameters.items()}
    found = []
    for module in (plain, replaced):
        outputs, pull, *_ = vjp(function_of(module, x), parameters)
        with running(module, "first"):
            module(x)
        with running(module, "second"):
            along = jvp(function_of(module, x), (parameters,), (direction,))[1]
        found.append((outputs, *pull(cotangent)[0].values(), along))
    for expected, value in zip(*found, strict=True):
        torch.testing.assert_close(value, expected)


def test_the_second_pass_computes_nothing_again_and_repeats_masks(monkeypatch):
    _, net = pair(dropout=0.5)
    x = torch.randn(5, 3, 8, 8).double()
    with running(net, "first"):
        first = net(x)
    state = torch.get_rng_state()
    calls = []
    usual = torch.convolution
    monkeypatch.setattr(torch, "convolution", lambda *arguments: calls.append(1) or usual(*arguments))
    for _ in range(2):
        with running(net, "second"):
            assert torch.equal(net(x), first)
    assert calls == []
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(net(x), first)  # a pass by itself draws
    assert calls == [1, 1, 1]
    forget(net)
    with pytest.raises(IndexError), running(net, "second"):
        net(x)


def test_models_that_are_stacked_or_have_their_own_statistics_keep_torch_s_layers():
    plain = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    replace_layers(plain)
    assert [type(layer) for layer in plain] == [nn.Linear, nn.BatchNorm1d, nn.Dropout]
    small = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
    replace_layers(small)
    assert type(small[0]) is nn.Conv2d
    frozen = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)).train()
    frozen[1].eval()
    replace_layers(frozen)
    assert [type(layer) for layer in frozen] == [nn.Conv2d, nn.BatchNorm2d]
    odd = nn.Sequential(
        nn.Conv2d(3, 3, 3, padding="same"), nn.Conv2d(3, 3, 1, padding_mode="reflect"), nn.BatchNorm2d(3)
    )
    replace_layers(odd)
    assert [type(layer) for layer in odd] == [nn.Conv2d, nn.Conv2d, RepeatableBatchNorm]


def test_large_models_repeat_convolutions_and_poolings_also_without_batch_norm():
    large = nn.Sequential(
        nn.Conv2d(3, 3, 1), nn.MaxPool2d(2), nn.MaxPool2d(2, return_indices=True), nn.Linear(1000, 201)
    )
    replace_layers(large)
    assert [type(layer) for layer in large] == [RepeatableConvolution, RepeatableMaxPool, nn.MaxPool2d, nn.Linear]


def test_pooling_keeps_the_layout_of_images_in_forward_mode():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, track_running_stats=False), nn.MaxPool2d(2))
    replace_layers(net)
    x = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    parameters = parameters_of(net)
    along = jvp(function_of(net, x), (parameters,), (parameters,))[1]
    assert along.is_contiguous(memory_format=torch.channels_last)


def test_half_precision_is_cast_as_autocast_would():
    plain, replaced = (module.float() for module in pair())
    x = torch.randn(5, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(replaced(x), plain(x))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_forward_mode_on_cuda_is_that_of_torch_s_layers(layout):
    modules = [module.cuda() for module in pair()]
    x = torch.randn(5, 3, 8, 8).double().cuda().contiguous(memory_format=layout)
    parameters = parameters_of(modules[0])
    direction = {name: torch.randn_like(value) for name, value in parameters.items()}
    expected, found = (jvp(function_of(module, x), (parameters,), (direction,))[1] for module in modules)
    torch.testing.assert_close(found, expected)


class NormWithActivation(nn.BatchNorm2d):
    """As libraries of image models have it."""

    def forward(self, x):
        return torch.relu(super().forward(x))


class Odd(nn.Module):
    """Layers that are not what their base class or type says, and one whose attributes are read."""

    def __init__(self):
        super().__init__()
        self.conv, self.plain = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4, track_running_stats=False)
        self.norm = NormWithActivation(4, track_running_stats=False)
        self.hooked = nn.Conv2d(4, 4, 1)
        self.hooked.register_forward_hook(lambda module, inputs, output: 2 * output)

    def forward(self, x):
        x = self.norm(self.plain(self.conv(x)))
        return self.hooked(x).mean((2, 3)) / self.conv.stride[0] / self.plain.num_features


def test_layers_that_compute_something_else_stay_and_attributes_can_be_read():
    torch.manual_seed(0)
    model = Odd().train()
    replaced = copy.deepcopy(model)
    replace_layers(replaced)
    assert isinstance(replaced.conv, RepeatableConvolution)
    assert isinstance(replaced.plain, RepeatableBatchNorm)
    x = torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(replaced(x), model(x))
