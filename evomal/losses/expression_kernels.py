"""One expression loss by the forest's kernels, in memory that does not grow with the tree.

Torch operations keep several tensors of the size of the outputs for every node. The kernels compute a block of samples
at a time, losses and gradient together, and keep nothing but the gradient.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from evomal.expression import Expression
from evomal.extras import has_numba, has_triton
from evomal.forest import Forest
from evomal.losses.contract import is_eager

_FEWEST_ELEMENTS = 1 << 16
"""Fewest elements of the outputs for which kernels are used: with fewer, torch operations take about a millisecond, and
compiling takes seconds."""
_BLOCK_ELEMENTS = {"cpu": 1 << 17, "cuda": 1 << 21}
"""Elements of the smallest block: enough work for several threads, or to keep a GPU busy."""
_BLOCKS = 32  # blocks of a large batch: computing one takes several times its own memory
_LANES = 16  # samples that a kernel on the CPU works on together


def has_kernel(output: Tensor, target: Tensor, weights: Tensor | None) -> bool:
    """Returns whether the kernels can compute this loss, and every derivative of it that may be needed.

    They have first derivatives by the outputs; torch operations have those by targets and weights, of higher orders
    and in forward mode. Half precision comes here converted; double precision would need kernels of its own.
    """
    differentiable = torch.is_grad_enabled()
    return (
        is_eager(output)  # first: an exported graph must not depend on the size of its example
        and output.numel() >= _FEWEST_ELEMENTS
        and output.dtype == torch.float32
        and ((output.device.type == "cpu" and has_numba()) or (output.is_cuda and has_triton()))
        and output.device == target.device
        and not (differentiable and (target.requires_grad or (weights is not None and weights.requires_grad)))
        and forward_ad.unpack_dual(output).tangent is None  # type: ignore[no-untyped-call]
        # The tree would be copied to the device, which a captured graph cannot do.
        and not (output.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def sample_losses(
    expression: Expression,
    weights: Tensor | None,
    output: Tensor,
    target: Tensor,
    *,
    kind: str,
    activation: str,
    composed: Callable[[Tensor], Tensor],
    priors: tuple[float, ...] | None = None,
    progress: float = 0.0,
) -> Tensor:
    """Returns (samples,) losses of (samples, outputs); `composed` computes them by torch operations from the outputs.

    The target is that of `Forest`: class indices (samples,), or values of the shape of the outputs.
    """
    forest = _forest(expression, kind, output.shape[1], activation, output.device, priors)
    packed = forest.programs.packed([[] if weights is None else weights.tolist()])
    keep = torch.is_grad_enabled() and output.requires_grad
    return cast(Tensor, _SampleLosses.apply(output, target, (forest, packed, composed, keep, progress)))  # type: ignore[no-untyped-call]


@functools.lru_cache(maxsize=32)
def _forest(
    expression: Expression, kind: str, outputs: int, activation: str, device: torch.device,
    priors: tuple[float, ...] | None,
) -> Forest:  # fmt: skip
    return Forest([expression], kind=kind, outputs=outputs, activation=activation, device=device, priors=priors)


class _SampleLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, target: Tensor, settings: tuple[Any, ...]) -> Tensor:
        ctx.forest, ctx.packed, ctx.composed, keep, ctx.progress = settings
        ctx.save_for_backward(output, target)
        ctx.forest.set_progress(ctx.progress)
        losses, ctx.gradient = _computed(ctx.forest, ctx.packed, output, target, keep=keep)
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        output, target = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: this backward pass will be differentiated
            return torch.autograd.grad(ctx.composed(output), output, gradients, create_graph=True)[0], None, None
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:  # a second backward pass: the first one wrote over it
            ctx.forest.set_progress(ctx.progress)
            _, gradient = _computed(ctx.forest, ctx.packed, output, target, keep=True)
        return gradient.mul_(gradients[0].unsqueeze(1)), None, None


def _computed(
    forest: Forest, packed: Tensor, output: Tensor, target: Tensor, *, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """The losses, and with `keep` the gradient of each loss by its outputs."""
    losses = output.new_empty(len(output))
    gradient = torch.empty_like(output, memory_format=torch.contiguous_format) if keep else None
    for block in _blocks(output):
        block_losses, slopes = forest.of_samples(output[block].detach(), target[block], packed)
        losses[block] = block_losses[0]
        if gradient is not None:
            gradient[block] = slopes[0]
    return losses, gradient


def _blocks(output: Tensor) -> Iterator[slice]:
    samples, outputs = output.shape
    fitting = max(_BLOCK_ELEMENTS[output.device.type] // outputs, samples // _BLOCKS)
    step = max(_LANES, fitting // _LANES * _LANES)
    for start in range(0, samples, step):
        yield slice(start, start + step)
