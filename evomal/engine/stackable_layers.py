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
STACKED_PARAMETERS = 8_000_000
"""The same for other models."""
UNIT = 4
"""Sizes and strides of a product by the kernel are multiples of it, so that its loads of 16 bytes are aligned."""
_SMALLEST_SIDE = 32
_DATA_CENTRE = ((8, 0), (9, 0), (10, 0), (10, 3))
"""Compute capabilities of GPUs whose tensor cores have many times the rate of ordinary float32, so that a product of
six or three parts should be faster than a plain one. Measured on 9.0 only."""


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
    # A stack of one is a stack, too: a member gets the same alone and among others.
    is_stack = max(a.dim(), b.dim()) > 2 and all(map(is_fast_side, (*a.shape[-2:], b.shape[-1])))
    if is_stack and is_float32 and fits_matrix_kernel(a.device, a.dtype):
        from evomal.engine import products_triton

        return products_triton.matrix_product(a, b)
    return torch.matmul(a, b)


def is_fast_side(size: int) -> bool:
    """Whether the kernel is faster than cuBLAS for products of matrices with a side of that size."""
    return size >= _SMALLEST_SIDE and size % UNIT == 0


def fits_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there are kernels for stacks of such tensors."""
    return device.type == "cuda" and dtype == torch.float32 and has_triton()


def fits_matrix_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether float32 products of stacks are faster by the kernel for tensor cores than by torch."""
    return fits_kernels(device, dtype) and torch.cuda.get_device_capability(device) in _DATA_CENTRE


class StackableConvolution(nn.Conv2d):
    """A convolution with stride 1; a layer becomes one by a change of its class, which loses no reference to it."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.without_bias(x)
        if y is None:
            return super().forward(x)
        return y if self.bias is None else y + self.bias.view(-1, 1, 1)

    def without_bias(self, x: Tensor) -> Tensor | None:
        """Returns the convolution alone, or None for inputs that are left to torch."""
        if x.dim() != 4 or _is_cast(x, self.weight):
            return None
        convolving = _Convolving(pair(self.kernel_size), pair(self.padding))
        return _product({"x": x, "w": self.weight, "y": None}, convolving)


class StackableLinear(nn.Linear):
    """A linear layer."""

    def forward(self, x: Tensor) -> Tensor:
        if _is_cast(x, self.weight):
            return super().forward(x)
        y = _product({"x": x.reshape(-1, x.shape[-1]), "w": self.weight, "y": None}, _LINEAR)
        y = y if self.bias is None else y + self.bias  # type: ignore[redundant-expr]  # it is None without a bias
        return y.view(*x.shape[:-1], len(self.weight))


def _is_cast(x: Tensor, weight: Tensor) -> bool:
    """Whether torch's own layers would convert a factor, as under autocast."""
    return x.dtype != weight.dtype or torch.is_autocast_enabled(x.device.type)


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


class StackableAveragePool(nn.AvgPool2d):
    """An average pooling without overlap and padding."""

    def forward(self, x: Tensor) -> Tensor:
        high, wide = tile = pair(self.kernel_size)
        if x.shape[-2] % high or x.shape[-1] % wide:  # rows or columns are left over
            return super().forward(x)
        result: Tensor = _AveragePool.apply(x, tile)  # type: ignore[no-untyped-call]
        return result


def stackable_copy(
    module: nn.Module, *, device: torch.device, dtype: torch.dtype, precision: Precision
) -> nn.Module | None:
    """Returns a copy of a model with the layers of this file in place of torch's, or None if there is no gain."""
    if precision == "bfloat16" or not fits_kernels(device, dtype):
        return None
    parameters = [*module.parameters()]
    is_convolutional = any(parameter.dim() > 2 for parameter in parameters)
    limit = STACKED_CONVOLUTION_PARAMETERS if is_convolutional else STACKED_PARAMETERS
    if sum(parameter.numel() for parameter in parameters) > limit:
        return None
    copied = copy.deepcopy(module)
    has_convolution = replace_stackable_layers(copied)
    has_linear = precision == "float32" and fits_matrix_kernel(device, dtype) and replace_linear_layers(copied)
    return copied if has_convolution or has_linear else None


def replace_stackable_layers(module: nn.Module) -> bool:
    """Make convolutions and poolings of a model those of this file; returns whether it has such a convolution."""
    replaced = False
    for layer in plain_layers(module):
        if type(layer) is nn.Conv2d and _is_plain(layer):
            layer.__class__ = StackableConvolution
            replaced = True
        elif type(layer) is nn.AvgPool2d and covers(layer):
            layer.__class__ = StackableAveragePool
    return replaced


def replace_linear_layers(module: nn.Module) -> bool:
    """Make linear layers of a model that of this file where it is faster; returns whether there are any."""
    replaced = False
    for layer in plain_layers(module):
        if type(layer) is nn.Linear and all(map(is_fast_side, layer.weight.shape)):
            layer.__class__ = StackableLinear
            replaced = True
    return replaced


def plain_layers(module: nn.Module) -> list[nn.Module]:
    """Returns the layers that compute what their class says: hooks and a `forward` of their own would be lost."""
    hooks = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return [
        layer
        for layer in module.modules()
        if "forward" not in vars(layer) and not any(getattr(layer, name) for name in hooks)
    ]


def _is_plain(layer: nn.Conv2d) -> bool:
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return False
    ones = (*layer.stride, *layer.dilation, layer.groups)
    return set(ones) == {1} and all(pad < size for pad, size in zip(layer.padding, layer.kernel_size, strict=True))


def covers(layer: nn.AvgPool2d) -> bool:
    """Whether the tiles of a pooling lie side by side, from edge to edge where the sizes allow it."""
    is_plain = pair(layer.padding) == (0, 0) and not layer.ceil_mode and layer.divisor_override is None
    return is_plain and pair(layer.stride) == pair(layer.kernel_size)


def pair(value: Any) -> Pair:
    """Returns height and width of a layer's option, which may be one number for both."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])
