"""Layers that are fast on a GPU when `vmap` stacks many copies of a model.

A convolution, or a linear layer without its bias, is linear in its inputs and in its weights. So there are three
products, the layer's own x * w and its gradients by x and by w, and every derivative of one of the three is again one
of them.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.grad import conv2d_input, conv2d_weight

from evomal.engine.precision import Precision
from evomal.extras import has_triton

Role = Literal["x", "w", "y"]
"""Inputs, weights or outputs of a layer."""
Operands = dict[Role, Tensor | None]
_ROLES: tuple[Role, ...] = ("x", "w", "y")
Pair = tuple[int, int]
STACKED_CONVOLUTION_PARAMETERS = 200_000
"""Parameters up to which a convolutional model is stacked on a GPU; a larger one fills it alone."""
_FEWEST_FEATURES = 32
"""Features of a linear layer below which torch's products are as fast."""


class _Bilinear(Protocol):
    """How the three products of a kind of layer are computed."""

    def computed(self, operands: Operands) -> Tensor:
        """Returns the operand that is None, from the two others."""
        ...


class _Product(torch.autograd.Function):
    """y from x and w, or the gradient by x or w from y and the other: what is asked for is None.

    Operands of a stack have leading dimensions, the same number for each operand. Members share an operand whose size
    there is 1.
    """

    @staticmethod
    def forward(x: Tensor | None, w: Tensor | None, y: Tensor | None, layer: _Bilinear) -> Tensor:
        return layer.computed({"x": x, "w": w, "y": y})

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *operands, ctx.layer = inputs
        ctx.save_for_backward(*operands)
        ctx.save_for_forward(*operands)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        operands = dict(zip(_ROLES, ctx.saved_tensors, strict=True))
        (asked,) = (role for role, value in operands.items() if value is None)
        gradients: list[Tensor | None] = [None] * len(_ROLES)
        for index, role in enumerate(_ROLES):
            if ctx.needs_input_grad[index] and role != asked:
                found = _product({**operands, asked: above[0], role: None}, ctx.layer)
                gradients[index] = found.sum_to_size(operands[role].shape)
        return *gradients, None

    @staticmethod
    def jvp(ctx: Any, *changes: Tensor | None) -> Tensor:
        operands = dict(zip(_ROLES, ctx.saved_tensors, strict=True))
        parts = [
            _product({**operands, role: change}, ctx.layer)
            for role, change in zip(_ROLES, changes, strict=False)
            if change is not None
        ]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        operands = {
            role: value if value is None else value.unsqueeze(0) if dim is None else value.movedim(dim, 0)
            for role, value, dim in zip(_ROLES, arguments, dims, strict=False)
        }
        return _product(operands, arguments[3]), 0


def _product(operands: dict[Role, Any], layer: _Bilinear) -> Tensor:
    result: Tensor = _Product.apply(*operands.values(), layer)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True)
class _Convolving:
    """Inputs `[…, B, C, H, W]`, weights `[…, O, C, h, w]`, outputs `[…, B, O, H', W']`, with stride 1."""

    kernel: Pair
    padding: Pair

    def computed(self, operands: Operands) -> Tensor:
        # The data have samples and are `x` or, for the gradient by x, `y`; the partner has what differs in members.
        given = {role: value for role, value in operands.items() if value is not None}
        of_data: Role = "x" if "x" in given else "y"
        (of_partner,) = given.keys() - {of_data}
        data, partner = given[of_data], given[of_partner]
        lead: tuple[int, ...] = torch.broadcast_shapes(data.shape[:-4], partner.shape[:-4])  # type: ignore[no-untyped-call]
        if math.prod(lead) == 1 or (of_partner == "w" and math.prod(partner.shape[:-4]) == 1):
            # One model, or several that share their weights: one with more samples.
            one = {role: value.flatten(0, -4) for role, value in given.items()}
            if math.prod(lead) > 1 and of_data == "x":  # faster than cuDNN, whose gradients are faster
                found = self._of_stack({role: value.unsqueeze(0) for role, value in one.items()}).squeeze(0)
            else:
                found = self._of_one(one)
            return found.view(*lead, -1, *found.shape[1:])
        shared = lead
        while shared and data.shape[len(shared) - 1] == 1:
            shared = shared[:-1]
        own = data.reshape(*data.shape[: len(shared)], *data.shape[-4:]).expand(*shared, *data.shape[-4:])
        stack = {
            of_data: own.reshape(-1, *own.shape[-4:]),
            of_partner: partner.expand(*lead, *partner.shape[-4:]).reshape(-1, *partner.shape[-4:]),
        }
        found = self._of_stack(stack)
        return found.view(*lead, *found.shape[1:])

    def _of_one(self, given: dict[Role, Tensor]) -> Tensor:
        """Returns the product of one model."""
        kernel, padding = self.kernel, self.padding
        if "y" not in given:
            return F.conv2d(given["x"], given["w"], padding=padding)
        y = given["y"]
        if "x" not in given:
            sides = [own + size - 1 - 2 * pad for own, size, pad in zip(y.shape[2:], kernel, padding, strict=True)]
            size = (len(y), given["w"].shape[1], *sides)
            return conv2d_input(size, given["w"], y, padding=padding)  # type: ignore[no-untyped-call, no-any-return]
        x, size = given["x"], (y.shape[1], given["x"].shape[1], *kernel)
        return conv2d_weight(x, size, y, padding=padding)  # type: ignore[no-untyped-call, no-any-return]

    def _of_stack(self, given: dict[Role, Tensor]) -> Tensor:
        """Returns the products `[P, …]` of data `[Q, …]` with partners `[P, …]`: neighbours share data if Q is less."""
        padding = self.padding
        if all(fits_kernels(value.device, value.dtype) for value in given.values()):
            from evomal.engine import layers_triton as kernels

            precision = "tf32" if torch.backends.cudnn.conv.fp32_precision == "tf32" else "tf32x3"  # type: ignore[attr-defined]
            if "y" not in given:
                return kernels.correlated(given["x"], given["w"], padding, precision=precision)
            if "x" not in given:
                return kernels.input_gradient(given["y"], given["w"], padding, precision=precision)
            return kernels.weight_gradient(given["x"], given["y"], self.kernel, padding, precision=precision)
        of_data: Role = "x" if "x" in given else "y"
        (of_partner,) = given.keys() - {of_data}
        data, partners = given[of_data], given[of_partner]

        def of_one(own: Tensor, partner: Tensor) -> Tensor:
            return self._of_one({of_data: own, of_partner: partner})

        of_all = vmap(vmap(of_one, in_dims=(None, 0)))
        return of_all(data, partners.view(len(data), -1, *partners.shape[1:])).flatten(0, 1)


class _Linear:
    """Inputs `[…, B, I]`, weights `[…, O, I]`, outputs `[…, B, O]`."""

    def computed(self, operands: Operands) -> Tensor:
        given = {role: value for role, value in operands.items() if value is not None}
        if "y" not in given:
            return _matrix_product(given["x"], given["w"].mT)
        if "x" not in given:
            return _matrix_product(given["y"], given["w"])
        return _matrix_product(given["y"].mT, given["x"])


_LINEAR = _Linear()


def _matrix_product(a: Tensor, b: Tensor) -> Tensor:
    """Returns `[…, M, N]` from `[…, M, K]` and `[…, K, N]`, whose leading dimensions are broadcast."""
    # TF32 is faster in torch's own products.
    is_float32 = torch.backends.cuda.matmul.fp32_precision != "tf32"
    if is_float32 and fits_matrix_kernel(a.device, a.dtype):
        from evomal.engine import products_triton

        if products_triton.fits(a, b):
            return products_triton.matrix_product(a, b)
    return torch.matmul(a, b)


def fits_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there are kernels for stacks of such tensors."""
    return device.type == "cuda" and dtype == torch.float32 and has_triton()


def fits_matrix_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether float32 products of stacks on that device are faster by tensor cores, in several products each.

    They are on processors for data centres (compute capabilities 8.0, 9.0, 10.0). On others tensor cores have at most
    twice the rate of ordinary float32 in such products, of which six or three are needed.
    """
    return fits_kernels(device, dtype) and torch.cuda.get_device_capability(device) in _CAPABILITIES


_CAPABILITIES = ((8, 0), (9, 0), (10, 0), (10, 3))


class StackableConvolution(nn.Module):
    """Takes the place of a convolution with stride 1."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self._convolving = _Convolving(_pair(layer.kernel_size), _pair(layer.padding))

    def forward(self, x: Tensor) -> Tensor:
        y = _product({"x": x, "w": self.weight, "y": None}, self._convolving)
        return y if self.bias is None else y + self.bias.view(-1, 1, 1)


class StackableLinear(nn.Module):
    """Takes the place of a linear layer; inputs may have any number of dimensions."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias: nn.Parameter | None = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        y = _product({"x": x.reshape(-1, x.shape[-1]), "w": self.weight, "y": None}, _LINEAR)
        y = y if self.bias is None else y + self.bias
        return y.view(*x.shape[:-1], -1)


class _AveragePool(torch.autograd.Function):
    """Average pooling of tiles that cover the images; its gradient is one copy, torch's takes several times as long."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, tile: Pair) -> Tensor:
        return F.avg_pool2d(x, tile)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.tile = inputs[1]

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, None]:
        (gradient,), (high, wide) = above, ctx.tile
        each = (gradient / (high * wide)).unsqueeze(-1).unsqueeze(-3)
        *lead, rows, _, columns, _ = each.shape
        return each.expand(*lead, rows, high, columns, wide).reshape(*lead, rows * high, columns * wide), None

    @staticmethod
    def jvp(ctx: Any, change: Tensor, *_: None) -> Tensor:
        return F.avg_pool2d(change, ctx.tile)


class StackableAveragePool(nn.Module):
    """Takes the place of an average pooling without overlap and padding."""

    def __init__(self, layer: nn.AvgPool2d) -> None:
        super().__init__()
        self._tile = _pair(layer.kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2] % self._tile[0] or x.shape[-1] % self._tile[1]:  # rows or columns are left over
            return F.avg_pool2d(x, self._tile)
        result: Tensor = _AveragePool.apply(x, self._tile)  # type: ignore[no-untyped-call]
        return result


def stackable_copy(
    module: nn.Module, *, device: torch.device, dtype: torch.dtype, precision: Precision
) -> nn.Module | None:
    """Returns a copy of a model with the layers of this file in place of torch's, or None if there is no gain."""
    if precision == "bfloat16" or not fits_kernels(device, dtype):
        return None
    copied = copy.deepcopy(module)
    is_small = sum(parameter.numel() for parameter in module.parameters()) <= STACKED_CONVOLUTION_PARAMETERS
    has_linear = fits_matrix_kernel(device, dtype) and replace_linear_layers(copied)
    return copied if (is_small and replace_stackable_layers(copied)) or has_linear else None


def replace_stackable_layers(module: nn.Module) -> bool:
    """Put convolutions and poolings of this file into a model; returns whether it has a convolution of that kind."""
    replaced = False
    for parent, name, layer in _replaceable(module):
        if type(layer) is nn.Conv2d and _is_plain(layer):
            setattr(parent, name, StackableConvolution(layer))
            replaced = True
        elif type(layer) is nn.AvgPool2d and _covers(layer):
            setattr(parent, name, StackableAveragePool(layer))
    return replaced


def replace_linear_layers(module: nn.Module) -> bool:
    """Put linear layers of this file into a model where they are faster; returns whether there are any."""
    replaced = False
    for parent, name, layer in _replaceable(module):
        if type(layer) is nn.Linear and min(layer.weight.shape) >= _FEWEST_FEATURES:
            setattr(parent, name, StackableLinear(layer))
            replaced = True
    return replaced


def _replaceable(module: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """Returns parent, name and layer of every layer that computes what its type says."""
    return [
        (parent, name, layer)
        for parent in module.modules()
        for name, layer in parent.named_children()
        if not (layer._forward_pre_hooks or layer._forward_hooks or layer._backward_hooks)  # as of spectral norm
    ]


def _is_plain(layer: nn.Conv2d) -> bool:
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return False
    ones = (*layer.stride, *layer.dilation, layer.groups)
    return set(ones) == {1} and all(pad < size for pad, size in zip(layer.padding, layer.kernel_size, strict=True))


def _covers(layer: nn.AvgPool2d) -> bool:
    is_plain = _pair(layer.padding) == (0, 0) and not layer.ceil_mode and layer.divisor_override is None
    return is_plain and _pair(layer.stride) == _pair(layer.kernel_size)


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
