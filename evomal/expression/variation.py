"""Crossover, mutation and repair of trees (EvoMAL, section 3.2; Koza, Genetic Programming, 1992)."""

import numpy as np

from evomal.expression.generate import Heights, half_and_half, offspring
from evomal.expression.tree import Expression


def crossover(
    first: Expression, second: Expression, *, max_height: int = 10, generator: np.random.Generator
) -> tuple[Expression, Expression]:
    """Both children; the points are drawn evenly from all nodes but the roots, so no child is its other parent."""
    if first.size < 2 or second.size < 2:
        return first, second
    here = int(generator.integers(1, first.size))
    there = int(generator.integers(1, second.size))
    return (
        offspring(first, here, second.subtree(there), max_height=max_height, generator=generator),
        offspring(second, there, first.subtree(here), max_height=max_height, generator=generator),
    )


def mutate(
    parent: Expression, *, heights: Heights = (0, 2), max_height: int = 10, generator: np.random.Generator
) -> Expression:
    """The parent with one node, drawn evenly, replaced by a full or a grown tree of a height from the range."""
    place = int(generator.integers(parent.size))
    subtree = half_and_half(heights, generator=generator)
    return offspring(parent, place, subtree, max_height=max_height, generator=generator)
