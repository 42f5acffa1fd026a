"""Constraint enforcement: a loss must use both y and f (EvoMAL, section 3.2.3)."""

import numpy as np

from evomal.errors import InputError
from evomal.expression.operators import BINARY_TOKENS, VARIABLES
from evomal.expression.tree import Expression


def repair(tree: Expression, *, max_height: int, generator: np.random.Generator) -> Expression | None:
    """The tree itself if it is a loss, else with one leaf replaced by a binary operator over y and f.

    Only leaves with room below them under the height cap are candidates; None when there is none.
    """
    if tree.is_loss:
        return tree
    candidates = [position for position in tree.terminals if tree.depths[position] < max_height]
    if not candidates:
        return None
    place = candidates[generator.integers(len(candidates))]
    operator = BINARY_TOKENS[generator.integers(len(BINARY_TOKENS))]
    arguments = VARIABLES if generator.random() < 0.5 else VARIABLES[::-1]
    return tree.replaced(place, Expression((operator, *arguments)))


def offspring(
    parent: Expression, place: int, graft: Expression, *, max_height: int, generator: np.random.Generator
) -> Expression:
    """The parent with another subtree at this place, repaired; the parent, where that fails or grows too high."""
    if parent.height > max_height:
        raise InputError(f"a parent's height must be at most max_height = {max_height} but got {parent.height}")
    try:
        child = parent.replaced(place, graft)
    except InputError:  # beyond what any tree may be
        return parent
    repaired = repair(child, max_height=max_height, generator=generator)
    if repaired is None or repaired.height > max_height:
        return parent
    return repaired
