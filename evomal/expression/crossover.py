"""One-point crossover: two trees exchange a subtree each (Koza, Genetic Programming, 1992, section 6.4.1)."""

import numpy as np

from evomal.expression.repair import offspring
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
