"""Expressions as arrays for kernels; activations, dense targets and the scales of means, which all backends share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.operators import PAPER, arity
from evomal.expression.prefix import end_of_subtree
from evomal.forest.codes import CODES, Link, Use


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without the threshold of `F.softplus`, which returns x from 20 on: an error of 2·10⁻⁹."""
    return -F.logsigmoid(-x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"identity": lambda value: value, "softplus": softplus}
"""Activations of the root's value; softplus keeps the loss positive."""


def dense_targets(targets: Tensor, link: Link, outputs: int, dtype: torch.dtype) -> Tensor:
    """Targets as `[B, K]` for K outputs: class indices become one-hot. Does not synchronise with the device.

    Class probabilities are refused: their loss is an expectation over the classes, not the formula at y = q.
    """
    if link is not Link.SOFTMAX:
        if targets.dim() == 1 and outputs == 1:
            return targets.to(dtype).unsqueeze(1)
        if targets.dim() == 2 and targets.shape[1] == outputs:
            return targets.to(dtype)
    elif targets.dim() == 1 and not targets.is_floating_point():
        blank = torch.zeros(len(targets), outputs, dtype=dtype, device=targets.device)
        return blank.scatter_(1, targets.long().unsqueeze(1), 1)
    form = "class indices [B]" if link is Link.SOFTMAX else f"values [B, {outputs}]"
    raise InputError(f"targets must be {form} but got {targets.dtype} of shape {list(targets.shape)}")


def mean_scale(kind: str, outputs: Tensor) -> float:
    """The factor that turns a sum over samples and outputs `[…, B, K]` into the mean that losses of this kind take."""
    samples, width = outputs.shape[-2:]
    return 1 / max(1, samples if kind == "classification" else samples * width)


def row_shares(kind: str, outputs: Tensor, row_weights: Tensor) -> Tensor:
    """The share of each row `[…, B]` in a weighted mean Σ w·l / Σ w of losses that are summed over the outputs.

    If no row has any weight, all shares are 0, so that the loss is 0 and not 0 / 0.
    """
    totals = row_weights.sum(-1, keepdim=True).clamp(min=torch.finfo(row_weights.dtype).tiny)
    return row_weights / (totals if kind == "classification" else totals * outputs.shape[-1])


FILLER = Expression.parse("mul(y, f)")
"""The expression in the places of a forest that no candidate takes."""
_SMALLEST_WIDTH = 16


@dataclass(frozen=True, eq=False)
class Programs:
    """P trees in prefix order, padded to a common width N.

    An argument comes after its operator, so walking a row from `sizes[p] - 1` down to 0 computes arguments before
    they are needed, and walking it upwards passes gradients from the root at 0 to the leaves. Weights and gradients are
    `[P, N]` in the same order, a weight multiplying its node's value on the way to the parent; the root has weight 1
    and gradient 0.
    """

    nodes: Tensor
    """`[P, N, 3]` int32: code, first and second argument."""
    sizes: Tensor
    """`[P]` int32: nodes of each tree."""
    uses: Tensor
    """`[P]` int32: the `Use` of each tree."""
    extended: bool
    """Whether there may be other tokens than the paper's: the kernels of a GPU leave out what is not needed."""
    priors: Tensor
    """`[K]`: the share of each output's class in the training rows."""
    progress: Tensor
    """`[1]`: the share of the training that is done."""

    @classmethod
    def of(
        cls,
        expressions: Sequence[Expression],
        *,
        width: int | None = None,
        device: torch.device | str = "cpu",
        extended: bool | None = None,
        priors: Tensor | None = None,
    ) -> "Programs":
        """Pack the expressions; the width is a power of two, so that few widths ever occur.

        `extended`: whether tokens that the paper does not have may be copied into the same memory; None: only if these
        expressions have some.
        """
        if not expressions:
            raise InputError("a forest must have at least one expression but got none")
        largest = max(expression.size for expression in expressions)
        width = fitting_width(largest) if width is None else width
        if width < largest:
            raise InputError(f"width must be at least {largest}, the size of the largest expression, but got {width}")
        nodes = np.zeros((len(expressions), width, 3), dtype=np.int32)
        for row, expression in zip(nodes, expressions, strict=True):
            for position, token in enumerate(expression.tokens):
                first = position + 1 if arity(token) > 0 else 0
                second = end_of_subtree(expression.tokens, first) if arity(token) > 1 else 0
                row[position] = CODES[token], first, second
        sizes = np.array([expression.size for expression in expressions], dtype=np.int32)
        uses = np.array([Use.of(expression) for expression in expressions], dtype=np.int32)
        packed, lengths, flags = (torch.from_numpy(array).to(device) for array in (nodes, sizes, uses))
        if extended is None:
            extended = any(map(is_extended, expressions))
        # Not every device has double precision.
        dtype = torch.float64 if torch.device(device).type == "cpu" else torch.float32
        shares, progress = torch.ones(1) if priors is None else priors, torch.zeros(1)
        return cls(packed, lengths, flags, extended, shares.to(device, dtype), progress.to(device, dtype))

    @property
    def count(self) -> int:
        """Number of trees, P."""
        return len(self.nodes)

    @property
    def width(self) -> int:
        """Number of nodes that a row has room for, N."""
        return self.nodes.shape[1]

    @property
    def device(self) -> torch.device:
        return self.nodes.device

    def edges(self) -> Tensor:
        """`[P, N]` mask of the places that hold a weight: every node but the root."""
        place = torch.arange(self.width, device=self.device)
        return (place > 0) & (place < self.sizes[:, None])

    def packed(self, weights: Sequence[Sequence[float]], *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Weights of the first trees, in prefix order of the nodes but the root, as `[P, N]` with ones elsewhere."""
        packed = torch.ones(self.count, self.width, dtype=dtype)
        for place, tree in enumerate(weights):
            packed[place, 1 : len(tree) + 1] = torch.as_tensor(tree, dtype=dtype)
        return packed.to(self.device)


def is_extended(expression: Expression) -> bool:
    """Whether the expression has tokens that the paper's set does not have."""
    return not set(expression.tokens) <= _PAPER_TOKENS


_PAPER_TOKENS = frozenset(PAPER.tokens)


def fitting_width(size: int) -> int:
    """The smallest power of two, at least 16, that holds `size` nodes."""
    return max(_SMALLEST_WIDTH, 1 << (size - 1).bit_length())
