"""Bias, activation and pooling as part of the convolution before them, for trainings of stacked models on a GPU.

Torch's layers for them are passes over the activations, which take half of the time of small convolutional networks.
Joined they have first derivatives only: meta steps, which need more, keep the layers of `stackable_layers.py`.
"""

import copy
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from evomal.engine.stackable_layers import Pair, StackableConvolution, covers, fits_kernels, pair, plain_layers
from evomal.randomness import isolated_torch
from evomal.tasks.inputs import Inputs, called
from evomal.tasks.model_trials import evaluating

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu", nn.Sigmoid: "sigmoid"}


@dataclass(frozen=True)
class _Tail:
    """What follows a convolution: layers that do nothing themselves any more."""

    layers: tuple[nn.Module, ...]
    activation: str
    tile: Pair
    is_max: bool

    def by_torch(self, y: Tensor) -> Tensor:
        """Returns what the layers do with the outputs of the convolution, its bias included."""
        for layer in self.layers:
            y = type(layer).forward(layer, y)
        return y


class _Applied(torch.autograd.Function):
    """A tail of images `[…, B, C, H, W]` with a bias `[…, C]`, which have the same number of leading dimensions."""

    @staticmethod
    def forward(y: Tensor, bias: Tensor, tail: _Tail) -> Tensor:
        from evomal.engine.tails_triton import tail as computed

        lead: tuple[int, ...] = torch.broadcast_shapes(y.shape[:-4], bias.shape[:-1])  # type: ignore[no-untyped-call]
        found = computed(*_as_members(lead, y, bias), tail.tile, activation=tail.activation, is_max=tail.is_max)
        return found.view(*lead, *found.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.tail = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        from evomal.engine.tails_triton import tail_gradient

        (y, bias), tail = ctx.saved_tensors, ctx.tail
        lead = above.shape[:-4]
        found = tail_gradient(
            above.reshape(-1, *above.shape[-4:]), *_as_members(lead, y, bias), tail.tile, activation=tail.activation,
            is_max=tail.is_max,
        )  # fmt: skip
        by_y, by_bias = (own.view(*lead, *own.shape[1:]) for own in found)
        return by_y.sum_to_size(y.shape), by_bias.sum_to_size(bias.shape), None

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        *tensors, tail = arguments
        y, bias = (
            own.unsqueeze(0) if dim is None else own.movedim(dim, 0) for own, dim in zip(tensors, dims, strict=False)
        )
        return _applied(y, bias, tail), 0


def _applied(y: Tensor, bias: Tensor, tail: _Tail) -> Tensor:
    result: Tensor = _Applied.apply(y, bias, tail)  # type: ignore[no-untyped-call]
    return result


def _as_members(lead: tuple[int, ...], y: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both with one leading dimension."""
    images, biases = y.expand(*lead, *y.shape[-4:]), bias.expand(*lead, *bias.shape[-1:])
    return images.reshape(-1, *y.shape[-4:]), biases.reshape(-1, *bias.shape[-1:])


class ConvolutionWithTail(StackableConvolution):
    """A convolution that also does what the layers after it did."""

    tail: _Tail

    def forward(self, x: Tensor) -> Tensor:
        y = self.without_bias(x)
        if y is None:
            return self.tail.by_torch(super().forward(x))
        is_covered = all(side % own == 0 for side, own in zip(y.shape[-2:], self.tail.tile, strict=True))
        if is_covered and fits_kernels(y.device, y.dtype):
            bias = y.new_zeros(y.shape[1]) if self.bias is None else self.bias
            return _applied(y, bias, self.tail)
        return self.tail.by_torch(y if self.bias is None else y + self.bias.view(-1, 1, 1))


def with_tails(module: nn.Module, samples: Inputs) -> nn.Module:
    """Returns a copy of a model whose convolutions do what an activation and a pooling after them did.

    The model itself is returned if there are none, or if the copy's outputs for some samples are different: a model may
    use what lies between the layers.
    """
    joined = copy.deepcopy(module)
    if not _join_tails(joined):
        return module
    expected, found = (_outputs_of(own, samples) for own in (module, joined))
    return joined if torch.allclose(found, expected, rtol=1e-3, atol=1e-4) else module


def _join_tails(module: nn.Module) -> bool:
    """Join convolutions of a model with the layers after them; returns whether there are any."""
    plain = {id(layer) for layer in plain_layers(module)}
    every = [layer for _, layer in module.named_modules(remove_duplicate=False)]
    uses = Counter(map(id, every))

    def is_free(layer: nn.Module) -> bool:
        return id(layer) in plain and uses[id(layer)] == 1

    joined = False
    for chain in every:
        layers = [*chain] if type(chain) is nn.Sequential and is_free(chain) else []
        for place, layer in enumerate(layers):
            if type(layer) is not StackableConvolution or not is_free(layer):
                continue
            tail = _tail_of([*itertools.takewhile(is_free, layers[place + 1 :])][:2])
            if tail is not None:
                layer.__class__ = ConvolutionWithTail
                layer.__dict__["tail"] = tail
                for own in tail.layers:
                    own.forward = _unchanged  # its class stays, as a model may ask for it
                joined = True
    return joined


def _tail_of(layers: list[nn.Module]) -> _Tail | None:
    """Returns the tail that the layers after a convolution begin with."""
    activation = _ACTIVATIONS.get(type(layers[0])) if layers else None
    rest = layers[1:] if activation else layers[:1]
    pooling = rest[0] if rest and _is_pooling(rest[0]) else None
    if activation is None and pooling is None:
        return None
    joined = ([layers[0]] if activation else []) + ([] if pooling is None else [pooling])
    tile = (1, 1) if pooling is None else pair(pooling.kernel_size)
    return _Tail(tuple(joined), activation or "none", tile, isinstance(pooling, nn.MaxPool2d))


def _is_pooling(layer: nn.Module) -> bool:
    if isinstance(layer, nn.AvgPool2d):
        return covers(layer)
    if type(layer) is not nn.MaxPool2d or layer.return_indices or layer.ceil_mode:
        return False
    is_plain = pair(layer.padding) == (0, 0) and pair(layer.dilation) == (1, 1)
    return is_plain and pair(layer.stride) == pair(layer.kernel_size)


def _unchanged(x: Tensor) -> Tensor:
    return x


def _outputs_of(module: nn.Module, samples: Inputs) -> Tensor:
    """Returns the outputs in both modes; those of a model in training may be random, but are the same again."""
    own = copy.deepcopy(module)  # batch norm tracks its statistics
    device = next(own.parameters()).device
    with torch.no_grad(), isolated_torch(0, "tails", device=device):
        trained = called(own, samples)
        with evaluating(own):
            return torch.cat([trained, called(own, samples)])
