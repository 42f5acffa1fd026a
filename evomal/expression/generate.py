"""Random trees, and their crossover, mutation and repair (EvoMAL, section 3.2; Koza, Genetic Programming, 1992).

A loss must use both y and f; a tree that does not is repaired (EvoMAL, section 3.2.3).
"""

from collections.abc import Callable

import numpy as np

from evomal.checks import whole_number
from evomal.errors import InputError
from evomal.expression.operators import PAPER, TARGET, Space, arity
from evomal.expression.prefix import MAX_HEIGHT
from evomal.expression.tree import Expression

Heights = tuple[int, int]
"""Least and greatest height of a tree."""
MUTATED_HEIGHTS: Heights = (0, 2)
"""Heights of the trees that subtree mutation draws."""


def full(heights: Heights, *, space: Space = PAPER, generator: np.random.Generator) -> Expression:
    """Returns a tree whose leaves all have the same depth, drawn uniformly from the range."""
    height = _draw_height(heights, generator)
    return _build(lambda depth: depth == height, space, generator)


def grow(heights: Heights, *, space: Space = PAPER, generator: np.random.Generator) -> Expression:
    """Returns a tree whose branches end at any depth between the lower height and a height drawn from the range."""
    height = _draw_height(heights, generator)

    def stops(depth: int) -> bool:
        return depth == height or (depth >= heights[0] and generator.random() < space.terminal_share)

    return _build(stops, space, generator)


def half_and_half(heights: Heights, *, space: Space = PAPER, generator: np.random.Generator) -> Expression:
    """Returns a tree by `full` or by `grow`, each with probability one half."""
    return (full if generator.random() < 0.5 else grow)(heights, space=space, generator=generator)


def ramped_half_and_half(
    count: int, *, heights: Heights = (2, 4), max_height: int = 10, space: Space = PAPER, generator: np.random.Generator
) -> list[Expression]:
    """Returns random losses: trees by `half_and_half`, repaired if they lack y or f.

    Args:
        count: The number of losses.
        heights: Least and greatest height of the trees before repair.
        max_height: Greatest height after repair; a tree that cannot be repaired below it is drawn again.
        space: The operators and terminals to draw from.
        generator: The source of randomness.

    Returns:
        The losses.

    Raises:
        InputError: The heights are not a range within `max_height`.

    Example:
        >>> [str(tree) for tree in ramped_half_and_half(2, heights=(1, 1), generator=np.random.default_rng(0))]
        ['sign(sub(y, f))', 'add(1, aq(f, y))']
    """
    if heights[1] > max_height:
        raise InputError(f"initial heights must be at most max_height = {max_height} but got {heights[1]}")
    whole_number("max_height", max_height, at_least=1)  # the height of a tree over y and f
    losses: list[Expression] = []
    while len(losses) < count:
        drawn = half_and_half(heights, space=space, generator=generator)
        tree = repair(drawn, max_height=max_height, space=space, generator=generator)
        if tree is not None:
            losses.append(tree)
    return losses


def crossover(
    first: Expression, second: Expression, *, max_height: int = 10, space: Space = PAPER, generator: np.random.Generator
) -> tuple[Expression, Expression]:
    """Returns two children: the parents with a subtree of each exchanged.

    Args:
        first: One parent.
        second: The other parent.
        max_height: Greatest height of a child; a child that would be higher is replaced by its parent.
        space: The operators and terminals that a repair draws from.
        generator: The source of randomness. The subtrees are drawn uniformly from all nodes but the roots, so that no
            child equals the other parent.

    Returns:
        The child of the first parent, and that of the second.

    Raises:
        InputError: A parent is higher than `max_height`.

    Example:
        >>> parents = Expression.parse("mul(y, f)"), Expression.parse("abs(sub(y, f))")
        >>> [str(child) for child in crossover(*parents, generator=np.random.default_rng(0))]
        ['mul(y, sub(y, f))', 'abs(sub(add(f, y), f))']
    """
    if first.size < 2 or second.size < 2:
        return first, second
    here = int(generator.integers(1, first.size))
    there = int(generator.integers(1, second.size))
    return (
        offspring(first, here, second.subtree(there), max_height=max_height, space=space, generator=generator),
        offspring(second, there, first.subtree(here), max_height=max_height, space=space, generator=generator),
    )


def mutate(
    parent: Expression,
    *,
    max_height: int = 10,
    space: Space = PAPER,
    generator: np.random.Generator,
) -> Expression:
    """Returns the parent with a subtree replaced by a random tree of height 2 at most, made by `half_and_half`.

    Args:
        parent: The tree.
        max_height: Greatest height of the result; if it would be higher, the parent is returned.
        space: The operators and terminals to draw from.
        generator: The source of randomness. The subtree is drawn uniformly from all nodes.

    Returns:
        The mutated tree, repaired if it lacks y or f.

    Raises:
        InputError: The parent is higher than `max_height`.

    Example:
        >>> str(mutate(Expression.parse("mul(y, f)"), generator=np.random.default_rng(0)))
        'mul(sub(f, y), aq(y, y))'
    """
    place = int(generator.integers(parent.size))
    subtree = half_and_half(MUTATED_HEIGHTS, space=space, generator=generator)
    return offspring(parent, place, subtree, max_height=max_height, space=space, generator=generator)


def repair(
    tree: Expression, *, max_height: int, space: Space = PAPER, generator: np.random.Generator
) -> Expression | None:
    """Returns the tree if it is a loss, else the tree with one leaf replaced by a binary operator over y and f.

    In a space with other terminals that depend on the model's outputs, one of them may stand in place of f.

    Args:
        tree: The tree.
        max_height: Greatest height of the result.
        space: The operators and terminals to draw from.
        generator: The source of randomness.

    Returns:
        The loss, or None if every leaf is too deep for the replacement.

    Example:
        >>> str(repair(Expression.parse("abs(y)", fragment=True), max_height=3, generator=np.random.default_rng(0)))
        'abs(max(y, f))'
    """
    if tree.is_loss:
        return tree
    leaves = [position for position in tree.terminals if tree.depths[position] < max_height]
    if not leaves:
        return None
    place = leaves[generator.integers(len(leaves))]
    operator = space.binary[generator.integers(len(space.binary))]
    choices = space.predictions
    prediction = choices[generator.integers(len(choices))] if len(choices) > 1 else choices[0]
    arguments = (TARGET, prediction) if generator.random() < 0.5 else (prediction, TARGET)
    return tree.replaced(place, Expression((operator, *arguments)))


def offspring(
    parent: Expression,
    place: int,
    graft: Expression,
    *,
    max_height: int,
    space: Space = PAPER,
    generator: np.random.Generator,
) -> Expression:
    """The parent with another subtree at this place, repaired; the parent itself if that fails or is too high."""
    if parent.height > max_height:
        raise InputError(f"a parent's height must be at most max_height = {max_height} but got {parent.height}")
    try:
        child = parent.replaced(place, graft)
    except InputError:  # larger than any tree may be
        return parent
    repaired = repair(child, max_height=max_height, space=space, generator=generator)
    if repaired is None or repaired.height > max_height:
        return parent
    return repaired


def _draw_height(heights: Heights, generator: np.random.Generator) -> int:
    low, high = heights
    if not 0 <= low <= high <= MAX_HEIGHT:
        raise InputError(f"heights must be a range within 0 to {MAX_HEIGHT} but got {low} to {high}")
    return int(generator.integers(low, high + 1))


def _build(stops: Callable[[int], bool], space: Space, generator: np.random.Generator) -> Expression:
    tokens: list[str] = []
    pending = [0]
    while pending:
        depth = pending.pop()
        choices = space.terminals if stops(depth) else space.operators
        token = choices[generator.integers(len(choices))]
        tokens.append(token)
        pending.extend([depth + 1] * arity(token))
    return Expression(tokens)
