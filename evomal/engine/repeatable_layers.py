"""Layers of a model whose forward pass is run twice on the same weights and inputs, as a meta step does.

The first pass pulls gradients back, the second pushes a direction forward: a Jacobian-vector product by forward mode.
These layers record what they compute in the first pass and repeat it in the second, which then computes derivatives
only. Dropout repeats its masks, so forward mode is possible for models that draw them.

Torch computes the forward-mode derivative of batch norm by a dozen passes over the activations. Its derivative by the
inputs, γ/σ · (I − mean − x̂ x̂ᵀ mean), is symmetric, so the kernels of the backward pass compute it. On a GPU they
compute only its means, and a kernel of our own the rest in one pass.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from evomal.engine.stackable_layers import STACKED_CONVOLUTION_PARAMETERS
from evomal.extras import has_triton

Pass = Literal["only", "first", "second"]
"""Which pass it is; the second has the weights and inputs of the first."""


class Recorder:
    """What a layer computed in the first pass, call by call."""

    def __init__(self) -> None:
        self.mode: Pass = "only"
        self._kept: list[tuple[Tensor, ...]] = []
        self._next = 0

    @property
    def tensors(self) -> list[Tensor]:
        """What is recorded, of all calls."""
        return [tensor for tensors in self._kept for tensor in tensors]

    def begin(self, mode: Pass) -> None:
        """Begin a pass; what was recorded is kept for the second pass only."""
        self.mode, self._next = mode, 0
        if mode != "second":
            self._kept = []

    def once(self, compute: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Returns what `compute` returns, or in the second pass what it returned in the first."""
        if self.mode == "second":
            self._next += 1
            return tuple(tensor.detach() for tensor in self._kept[self._next - 1])
        found = compute()
        if self.mode == "first":
            self._kept.append(tuple(tensor.detach() for tensor in found))
        return found


class _Repeatable(nn.Module):
    """Takes the place of a layer, and has its attributes: the model may read them, as in `self.conv.stride`."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.__dict__.update((name, value) for name, value in vars(layer).items() if not name.startswith("_"))
        self.recorder = Recorder()


class _BatchNorm(torch.autograd.Function):
    """Batch norm by the statistics of the batch; mean and inverse deviation are further outputs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, recorder: Recorder
    ) -> tuple[Tensor, Tensor, Tensor]:
        y, mean, inverse = recorder.once(lambda: torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps))
        return y, mean, inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, _, ctx.eps, _ = inputs
        ctx.save_for_backward(x, weight, *output[1:])
        ctx.save_for_forward(x, weight, *output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        needed = [*ctx.needs_input_grad[:3]]
        found = torch.ops.aten.native_batch_norm_backward(
            above[0], x, weight, None, None, mean, inverse, True, ctx.eps, needed
        )
        return *(gradient if wanted else None for gradient, wanted in zip(found, needed, strict=True)), None, None

    @staticmethod
    def jvp(
        ctx: Any, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None, *_: None
    ) -> tuple[Tensor, None, None]:
        x, weight, mean, inverse = ctx.saved_tensors
        if x.is_cuda and dx is not None and dweight is not None and dbias is not None and has_triton():
            from evomal.engine.layers_triton import batch_norm_along

            _, products, sums = torch.ops.aten.native_batch_norm_backward(
                dx, x, weight, None, None, mean, inverse, True, ctx.eps, [False, True, True]
            )
            return batch_norm_along(dx, x, weight, dweight, dbias, mean, inverse, products, sums), None, None
        if dx is None:
            along = torch.zeros_like(x)
        else:
            along = torch.ops.aten.native_batch_norm_backward(
                dx, x, weight, None, None, mean, inverse, True, ctx.eps, [True, False, False]
            )[0]
        if dweight is None:
            return along, None, None
        # dγ · x̂ + dβ, as one multiple of x and one constant per channel.
        shape = (1, -1, *[1] * (x.dim() - 2))
        scale = dweight * inverse
        shift = -mean * scale if dbias is None else dbias - mean * scale
        along = torch.addcmul(along, x, scale.to(x.dtype).view(shape))
        return along + shift.to(x.dtype).view(shape), None, None


class RepeatableBatchNorm(_Repeatable):
    """Takes the place of a batch norm that uses the statistics of its batch."""

    def __init__(self, layer: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__(layer)
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps

    def forward(self, x: Tensor) -> Tensor:
        found = _BatchNorm.apply(x, self.weight, self.bias, self.eps, self.recorder)  # type: ignore[no-untyped-call]
        result: Tensor = found[0]
        return result


class _Convolution(torch.autograd.Function):
    """A convolution; `options` are stride, padding, dilation, whether transposed, output padding and groups."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, options: tuple[Any, ...], recorder: Recorder) -> Tensor:
        (y,) = recorder.once(lambda: (torch.convolution(x, weight, bias, *options),))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias, ctx.options, _ = inputs
        ctx.bias_sizes = None if bias is None else [*bias.shape]
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needed = [*ctx.needs_input_grad[:3]]
        found = torch.ops.aten.convolution_backward(above[0], x, weight, ctx.bias_sizes, *ctx.options, needed)
        return *(gradient if wanted else None for gradient, wanted in zip(found, needed, strict=True)), None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None, *_: None) -> Tensor:
        x, weight = ctx.saved_tensors
        along = None if dweight is None else torch.convolution(x, dweight, dbias, *ctx.options)
        if dx is None:
            assert along is not None  # forward mode asks only where something changes
            return along
        own = torch.convolution(dx, weight, dbias if along is None else None, *ctx.options)
        return own if along is None else own + along


class RepeatableConvolution(_Repeatable):
    """Takes the place of a convolution that pads with zeros."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__(layer)
        self.weight, self.bias = layer.weight, layer.bias
        self._options = (layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias, device = self.weight, self.bias, x.device.type
        if torch.is_autocast_enabled(device):  # which casts nothing for a custom autograd function
            dtype = torch.get_autocast_dtype(device)
            x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        result: Tensor = _Convolution.apply(x, weight, bias, self._options, self.recorder)  # type: ignore[no-untyped-call]
        return result


class _MaxPool(torch.autograd.Function):
    """Max pooling; the places of the maxima are a further output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, options: tuple[Any, ...], recorder: Recorder) -> tuple[Tensor, Tensor]:
        y, places = recorder.once(lambda: torch.ops.aten.max_pool2d_with_indices(x, *options))
        return y, places

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, ctx.options, _ = inputs
        ctx.save_for_backward(x, output[1])
        ctx.save_for_forward(x, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, None, None]:
        x, places = ctx.saved_tensors
        return torch.ops.aten.max_pool2d_with_indices_backward(above[0], x, *ctx.options, places), None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor, *_: None) -> tuple[Tensor, None]:
        x, places = ctx.saved_tensors
        if x.stride(1) != 1:
            return dx.flatten(2).gather(2, places.flatten(2)).view_as(places), None
        # Stored channels last, and so is what comes of it; torch's own formula would store it otherwise.
        last = places.movedim(1, -1)
        found = dx.movedim(1, -1).flatten(1, 2).gather(1, last.flatten(1, 2))
        return found.view_as(last).movedim(-1, 1), None


class RepeatableMaxPool(_Repeatable):
    """Takes the place of a max pooling."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        super().__init__(layer)
        given = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        pairs = [[value, value] if isinstance(value, int) else [*value] for value in given]
        self._options = (*pairs, layer.ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _MaxPool.apply(x, self._options, self.recorder)[0]  # type: ignore[no-untyped-call]
        return result


class RepeatableDropout(_Repeatable):
    """Takes the place of a dropout."""

    def __init__(self, layer: nn.Dropout) -> None:
        super().__init__(layer)
        self._keep = 1 - layer.p

    def forward(self, x: Tensor) -> Tensor:
        def draw() -> tuple[Tensor]:
            # Made from a shape and not from x, which belongs to a transform of torch.func that ends before the mask.
            mask = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).bernoulli_(self._keep)
            return (mask.div_(self._keep) if self._keep else mask,)

        (mask,) = self.recorder.once(draw)
        return x * mask


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def replace_layers(module: nn.Module) -> None:
    """Put the layers of this file into a convolutional model; leave others alone.

    Models that can be stacked, small ones without batch norm, keep torch's layers except for dropout, or have those of
    `stackable_layers`: stacked, their pass at θ0 is shared by all candidates and costs little.
    """
    layers = [*module.modules()]
    if not any(isinstance(layer, nn.Conv2d) for layer in layers):
        return
    has_statistics = any(isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training for layer in layers)
    is_large = sum(parameter.numel() for parameter in module.parameters()) > STACKED_CONVOLUTION_PARAMETERS
    for parent in layers:
        for name, layer in [*parent.named_children()]:
            if not layer.training:
                continue  # a layer in evaluation mode is meant to use the statistics it has
            if layer._forward_pre_hooks or layer._forward_hooks:
                continue  # as of spectral norm: what it computes is not what its type says
            # A subclass may compute something else, such as an activation after a batch norm.
            if isinstance(layer, nn.modules.batchnorm._BatchNorm) and type(layer) in _BATCH_NORMS:
                setattr(parent, name, RepeatableBatchNorm(layer))
            elif type(layer) is nn.Dropout:
                setattr(parent, name, RepeatableDropout(layer))
            elif (has_statistics or is_large) and type(layer) is nn.Conv2d and _pads_with_zeros(layer):
                setattr(parent, name, RepeatableConvolution(layer))
            elif (has_statistics or is_large) and type(layer) is nn.MaxPool2d and not layer.return_indices:
                setattr(parent, name, RepeatableMaxPool(layer))


def _pads_with_zeros(layer: nn.Conv2d) -> bool:
    return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


@contextlib.contextmanager
def running(module: nn.Module, which: Pass) -> Iterator[None]:
    """A context for one of the passes; several second passes may follow a first one."""
    recorders = _recorders(module)
    for recorder in recorders:
        recorder.begin(which)
    try:
        yield
    finally:
        for recorder in recorders:
            recorder.mode = "only"


def forget(module: nn.Module) -> None:
    """Free what was recorded."""
    for recorder in _recorders(module):
        recorder.begin("only")


def recorded(module: nn.Module) -> list[Tensor]:
    """Returns all that was recorded."""
    return [tensor for recorder in _recorders(module) for tensor in recorder.tensors]


def _recorders(module: nn.Module) -> list[Recorder]:
    return [layer.recorder for layer in module.modules() if isinstance(layer, _Repeatable)]
