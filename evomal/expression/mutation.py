"""Uniform subtree mutation: any node may be replaced by a small random tree (EvoMAL, section 3.2.2)."""

import numpy as np

from evomal.expression.generate import Heights, half_and_half
from evomal.expression.repair import offspring
from evomal.expression.tree import Expression


def mutate(
    parent: Expression, *, heights: Heights = (0, 2), max_height: int = 10, generator: np.random.Generator
) -> Expression:
    """The parent with one node, drawn evenly, replaced by a full or a grown tree of a height from the range."""
    place = int(generator.integers(parent.size))
    subtree = half_and_half(heights, generator=generator)
    return offspring(parent, place, subtree, max_height=max_height, generator=generator)
