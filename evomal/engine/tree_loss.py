"""One expression of a forest as a criterion for an ordinary training loop."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from evomal.engine.forest import Forest
from evomal.expression import Expression


class _Value(torch.autograd.Function):
    """The loss, whose gradient the forest's kernel has found along with it."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, targets: Tensor, forest: Forest, weights: Tensor) -> Tensor:
        losses, gradients = forest.gradients(outputs, targets, weights)
        ctx.save_for_backward(gradients[0])
        return losses[0]

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return above[0] * gradient, None, None, None


class TreeLoss(nn.Module):
    """Equal to `ExpressionLoss`, by the forest's kernels, for one expression after another in the same memory."""

    def __init__(self, forest: Forest, *, dtype: torch.dtype) -> None:
        super().__init__()
        self._forest = forest
        self._weights = torch.ones(1, forest.width, dtype=dtype, device=forest.programs.device)

    def load(self, expression: Expression, weights: Sequence[float]) -> None:
        """The loss to be from now on."""
        self._forest.replace([expression])
        self._weights.copy_(self._forest.programs.packed([weights], dtype=self._weights.dtype))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        value: Tensor = _Value.apply(output, target, self._forest, self._weights)  # type: ignore[no-untyped-call]
        return value
