"""Constraint enforcement: a loss must use both y and f (EvoMAL, section 3.2.3)."""

from collections.abc import Callable

import numpy as np

from evomal.errors import InputError
from evomal.expression.operators import BINARY_TOKENS, OPERATORS, TERMINALS, VARIABLES, arity
from evomal.expression.prefix import MAX_HEIGHT
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


_OPERATOR_TOKENS = tuple(OPERATORS)
_TERMINAL_SHARE = len(TERMINALS) / (len(TERMINALS) + len(OPERATORS))

Heights = tuple[int, int]


def full(heights: Heights, *, generator: np.random.Generator) -> Expression:
    """A tree whose leaves all lie at one depth, drawn evenly from the range."""
    height = _draw_height(heights, generator)
    return _build(lambda depth: depth == height, generator)


def grow(heights: Heights, *, generator: np.random.Generator) -> Expression:
    """A tree of uneven depth: a branch may end from the lower height on, and must at a height drawn from the range."""
    height = _draw_height(heights, generator)

    def stops(depth: int) -> bool:
        return depth == height or (depth >= heights[0] and generator.random() < _TERMINAL_SHARE)

    return _build(stops, generator)


def half_and_half(heights: Heights, *, generator: np.random.Generator) -> Expression:
    """Full or grow, by the toss of a coin."""
    return (full if generator.random() < 0.5 else grow)(heights, generator=generator)


def ramped_half_and_half(
    count: int, *, heights: Heights = (2, 4), max_height: int = 10, generator: np.random.Generator
) -> list[Expression]:
    """So many valid losses; a tree that lacks y or f is repaired, or drawn again where the cap leaves no room."""
    if not heights[1] <= max_height:
        raise InputError(f"initial heights must be at most max_height = {max_height} but got {heights[1]}")
    if max_height < 1:
        raise InputError(f"max_height must be at least 1, the height of a tree over y and f, but got {max_height}")
    losses: list[Expression] = []
    while len(losses) < count:
        tree = repair(half_and_half(heights, generator=generator), max_height=max_height, generator=generator)
        if tree is not None:
            losses.append(tree)
    return losses


def _draw_height(heights: Heights, generator: np.random.Generator) -> int:
    low, high = heights
    if not 0 <= low <= high <= MAX_HEIGHT:
        raise InputError(f"heights must be a range within 0 to {MAX_HEIGHT} but got {low} to {high}")
    return int(generator.integers(low, high + 1))


def _build(stops: Callable[[int], bool], generator: np.random.Generator) -> Expression:
    tokens: list[str] = []
    pending = [0]
    while pending:
        depth = pending.pop()
        choices = TERMINALS if stops(depth) else _OPERATOR_TOKENS
        token = choices[generator.integers(len(choices))]
        tokens.append(token)
        pending.extend([depth + 1] * arity(token))
    return Expression(tokens)
