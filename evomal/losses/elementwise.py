"""log(1 + exp(x)), exact for every x."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.losses.contract import Loss, compute_dtype, is_eager, to_compute_dtype


def softplus(x: Tensor) -> Tensor:
    """Without the threshold of `F.softplus`, which from x = 20 on returns x and so loses eleven digits in float64."""
    return -F.logsigmoid(-x)


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


class ElementwiseLoss(Loss):
    """A loss M(f, y) of one output f and its target y, summed over the classes of a sample.

    For classification f = softmax(logits) and y is one-hot; with one logit, and for each label of a multilabel problem,
    f = sigmoid(logit) and y is 0 or 1. Regression takes output and target as they are.

    Probabilities as targets are never put in for y, where the formula need not have its minimum at f = y. The loss is
    the expectation over the classes instead, linear in the target as cross-entropy is.
    """

    @abstractmethod
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        """M(f, y) elementwise, for tensors of one shape."""

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        prediction = logits.to(compute_dtype(logits)).softmax(1)
        one_hot = torch.zeros_like(prediction).scatter(1, target.unsqueeze(1), 1)
        losses = self.value(prediction, one_hot).sum(1)
        return losses if weight is None else losses * weight[target]

    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        logits, target = to_compute_dtype(logits, target)
        shares = target if weight is None else target * weight
        # Σ_c share_c · (M(f_c, 1) + Σ_{j≠c} M(f_j, 0)), with the terms of each output collected.
        return self._expected(logits.softmax(1), shares, shares.sum(1, keepdim=True) - shares).sum(1)

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        is_soft = target.is_floating_point()
        logits, target = to_compute_dtype(logits, target)
        prediction = logits.sigmoid()
        return self._expected(prediction, target, 1 - target) if is_soft else self.value(prediction, target)

    def _expected(self, prediction: Tensor, ones: Tensor, zeros: Tensor) -> Tensor:
        """ones · M(f, 1) + zeros · M(f, 0): equal bit by bit to M(f, y) where the shares are 0 and 1."""
        as_one = self.value(prediction, torch.ones_like(prediction))
        as_zero = self.value(prediction, torch.zeros_like(prediction))
        return ones * as_one + zeros * as_zero

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return self.value(output, target)
