"""A function of rows, computed a block of rows at a time.

Whatever it needs in between is as large as a block, never as the logits, and a block stays in the processor's cache.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor

from evomal.losses.eager import is_eager

# 256 KiB of float32: in the second-level cache of every current processor; a GPU wants more work per launch.
_BLOCK_ELEMENTS = {"cpu": 1 << 16}
_DEVICE_BLOCK_ELEMENTS = 1 << 22

RowFunction = Callable[[Tensor, Tensor], Tensor]


def blocks(rows: Tensor) -> Iterator[slice]:
    """Slices that cover all rows, each small enough to be worked on at once."""
    elements = _BLOCK_ELEMENTS.get(rows.device.type, _DEVICE_BLOCK_ELEMENTS)
    step = max(1, elements // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        yield slice(start, start + step)


def by_blocks(function: RowFunction, logits: Tensor, target: Tensor) -> Tensor:
    """`function(logits, target)`, whose row i depends on row i of its arguments alone, in little memory.

    The backward pass computes each block again instead of keeping its intermediate results.
    """
    if not is_eager(logits):
        return function(logits, target)
    return cast(Tensor, _ByBlocks.apply(function, logits, target))  # type: ignore[no-untyped-call]


class _ByBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: RowFunction, logits: Tensor, target: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(logits, target)
        results = [function(logits[block], target[block]) for block in blocks(logits)]
        return torch.cat(results) if results else function(logits, target)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        (gradient,) = gradients
        logits, target = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():  # create_graph: someone will differentiate this backward pass
            chosen = [tensor for tensor, want in zip((logits, target), wanted, strict=True) if want]
            found = torch.autograd.grad(ctx.function(logits, target), chosen, gradient, create_graph=True)
            return None, *_spread(found, wanted)
        results = [
            torch.empty_like(tensor) if want else None for tensor, want in zip((logits, target), wanted, strict=True)
        ]
        for block in blocks(logits):
            pieces = [
                tensor[block].detach().requires_grad_(want)
                for tensor, want in zip((logits, target), wanted, strict=True)
            ]
            with torch.enable_grad():
                value = ctx.function(*pieces)
            chosen = [piece for piece, want in zip(pieces, wanted, strict=True) if want]
            found = torch.autograd.grad(value, chosen, gradient[block])
            for result, piece in zip((result for result in results if result is not None), found, strict=True):
                result[block] = piece
        return None, results[0], results[1]


def _spread(found: tuple[Tensor, ...], wanted: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    remaining = iter(found)
    first, second = (next(remaining) if want else None for want in wanted)
    return first, second
