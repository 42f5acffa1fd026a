"""Many expressions as arrays that one kernel can walk."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.operators import TOKENS, arity
from evomal.expression.prefix import end_of_subtree

CODES = {token: code for code, token in enumerate(TOKENS)}
"""Number of each token: operators first, then terminals."""
CODE, FIRST, SECOND = range(3)
"""Columns of a node: its token's code and the positions of its arguments (0 where there is none)."""

FILLER = Expression.parse("mul(y, f)")
"""What stands in places that no candidate needs."""
_SMALLEST_WIDTH = 16


@dataclass(frozen=True, eq=False)
class Programs:
    """P trees in prefix order, padded to a common width N.

    An argument stands behind its operator, so walking a row from `sizes[p] - 1` down to 0 computes arguments before
    they are needed, and walking it upwards hands gradients down from the root at 0. Weights and their gradients are
    `[P, N]` in the same order, a weight multiplying its node's value on the way to the parent; the root has weight 1
    and gradient 0.
    """

    nodes: Tensor
    """`[P, N, 3]` int32: code, first and second argument."""
    sizes: Tensor
    """`[P]` int32: nodes of each tree."""

    @classmethod
    def of(
        cls, expressions: Sequence[Expression], *, width: int | None = None, device: torch.device | str = "cpu"
    ) -> "Programs":
        """Pack the expressions; the width is a power of two, so that few widths ever occur."""
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
        return cls(torch.from_numpy(nodes).to(device), torch.from_numpy(sizes).to(device))

    @property
    def count(self) -> int:
        """Number of trees, P."""
        return len(self.nodes)

    @property
    def width(self) -> int:
        """Nodes a row has room for, N."""
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


def fitting_width(size: int) -> int:
    """The smallest power of two, at least 16, that holds so many nodes."""
    return max(_SMALLEST_WIDTH, 1 << (size - 1).bit_length())
