"""Variation of expressions that have weights: crossover, and six mutations of one parent.

A weight belongs to the node at the lower end of its edge and goes where that node goes; new nodes have weight one. So a
child computes what its parents computed wherever it kept their nodes. Every child is a loss, repaired if it lacks y or
f. The mutations are collected in Poli, Langdon and McPhee, A Field Guide to Genetic Programming, 2008, section 5.2.2.
`scaled` multiplies a whole expression.
"""

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evomal.errors import InputError
from evomal.expression.generate import MUTATED_HEIGHTS, half_and_half, repair
from evomal.expression.operators import OPERATORS, PAPER, Space, arity
from evomal.expression.prefix import end_of_subtree
from evomal.expression.tree import Expression

MutationName = Literal["subtree mutation", "point mutation", "insertion", "deletion", "hoist", "weight mutation"]

_DRAWS = 8  # attempts at a child: most first draws succeed, and trees at the height limit need a few more
_CHANGED_WEIGHTS = 0.3  # share of the weights that change together, at least one of them
_STEP = 0.5  # standard deviation of the logarithm of a weight's factor
_FLIPPED = 0.1  # share of the changed weights whose sign changes too


@dataclass(frozen=True)
class Weighted:
    """A tree, or a part of one, with a weight for every node: that of its edge, and 1 for the root of a whole tree.

    Example:
        >>> parent = Weighted.of(Expression.parse("square(sub(y, f))"), [2.0, 1.0, 3.0])
        >>> child = parent.replaced(2, parent.subtree(3))
        >>> str(child.tree), child.weights
        ('square(sub(f, f))', (2.0, 3.0, 3.0))
    """

    tree: Expression
    node_weights: tuple[float, ...]

    @classmethod
    def of(cls, tree: Expression, weights: Sequence[float] | None = None) -> "Weighted":
        """Returns the tree with one weight per edge in prefix order; None for all ones."""
        given = tree.checked_weights(weights)
        return cls(tree, (1.0, *((1.0,) * tree.edges if given is None else given)))

    @property
    def weights(self) -> tuple[float, ...]:
        """One weight per edge in prefix order."""
        return self.node_weights[1:]

    def subtree(self, start: int) -> "Weighted":
        """Returns the part whose root is at this position; the root keeps the weight of its edge."""
        end = end_of_subtree(self.tree.tokens, start)
        return Weighted(Expression(self.tree.tokens[start:end]), self.node_weights[start:end])

    def replaced(self, start: int, other: "Weighted") -> "Weighted":
        """Returns this tree with `other` in place of the subtree at this position."""
        end = end_of_subtree(self.tree.tokens, start)
        weights = self.node_weights[:start] + other.node_weights + self.node_weights[end:]
        return Weighted(self.tree.replaced(start, other.tree), weights)


def crossover(
    first: Weighted, second: Weighted, *, max_height: int = 10, space: Space = PAPER, generator: np.random.Generator
) -> Weighted:
    """Returns the first parent with one of its subtrees replaced by one of the second parent's.

    Args:
        first: The parent whose root the child has.
        second: The parent that gives a subtree.
        max_height: Greatest height of the child.
        space: The operators that a repair draws from.
        generator: The source of randomness. The subtrees are drawn uniformly from all nodes but the roots.

    Returns:
        The child; the first parent itself if several draws gave nothing else.

    Raises:
        InputError: The first parent is higher than `max_height`.

    Example:
        >>> first = Weighted.of(Expression.parse("mul(y, f)"), [2.0, 3.0])
        >>> second = Weighted.of(Expression.parse("abs(sub(y, f))"), [4.0, 5.0, 6.0])
        >>> child = crossover(first, second, generator=np.random.default_rng(2))
        >>> str(child.tree), child.weights
        ('mul(y, sub(y, f))', (2.0, 4.0, 5.0, 6.0))
    """

    def draw() -> Weighted:
        place, taken = generator.integers(1, first.tree.size), generator.integers(1, second.tree.size)
        return first.replaced(int(place), second.subtree(int(taken)))

    return _first_valid(first, draw, max_height=max_height, space=space, generator=generator)


def mutate(
    parent: Weighted, *, max_height: int = 10, space: Space = PAPER, generator: np.random.Generator
) -> tuple[MutationName, Weighted]:
    """Returns the name of a mutation, drawn by the probabilities of `MUTATIONS`, and the child that it made.

    A mutation that cannot change this parent, such as a hoist of `sub(y, f)`, is replaced by another draw.

    Example:
        >>> parent = Weighted.of(Expression.parse("square(sub(y, f))"), [2.0, 3.0, 4.0])
        >>> name, child = mutate(parent, generator=np.random.default_rng(1))
        >>> name, str(child.tree), child.weights
        ('insertion', 'square(sub(y, tanh(f)))', (2.0, 3.0, 1.0, 4.0))
    """
    names, probabilities = list(MUTATIONS), [probability for _, probability in MUTATIONS.values()]
    ends = list(itertools.accumulate(probabilities))[:-1]
    for _ in range(_DRAWS):
        name = names[bisect.bisect(ends, generator.random())]  # NumPy's `choice` takes ten times as long
        child = MUTATIONS[name][0](parent, max_height=max_height, space=space, generator=generator)
        if child != parent:
            break
    return name, child


def _retried(draw: Callable[[Weighted, Space, np.random.Generator], Weighted | None]) -> Callable[..., Weighted]:
    """Makes a mutation of a function that draws a child, or returns None if it cannot change the parent.

    The mutation returns a loss within the height; the parent itself if several draws gave nothing else.
    """

    @functools.wraps(draw)
    def mutation(
        parent: Weighted, *, max_height: int = 10, space: Space = PAPER, generator: np.random.Generator
    ) -> Weighted:
        return _first_valid(
            parent, lambda: draw(parent, space, generator), max_height=max_height, space=space, generator=generator
        )

    return mutation


def _first_valid(
    parent: Weighted,
    draw: Callable[[], Weighted | None],
    *,
    max_height: int,
    space: Space,
    generator: np.random.Generator,
) -> Weighted:
    """The first child drawn that is a loss within the height and not its parent; the parent if there is none."""
    if parent.tree.height > max_height:
        raise InputError(f"a parent's height must be at most max_height = {max_height} but got {parent.tree.height}")
    for _ in range(_DRAWS):
        try:
            child = draw()
        except InputError:  # larger than any tree may be
            continue
        if child is None:
            break
        repaired = _repaired(child, max_height=max_height, space=space, generator=generator)
        if repaired is not None and repaired != parent:
            return repaired
    return parent


def _repaired(child: Weighted, *, max_height: int, space: Space, generator: np.random.Generator) -> Weighted | None:
    """The child as a whole tree that is a loss; None if it is too high."""
    tree = child.tree
    if tree.height > max_height:
        return None
    loss = repair(tree, max_height=max_height, space=space, generator=generator)
    if loss is None:
        return None
    whole = Weighted(tree, (1.0, *child.weights))
    if loss is tree:
        return whole
    # A leaf was replaced by an operator, so it is where the tokens first differ.
    place = next(at for at, (old, new) in enumerate(zip(tree.tokens, loss.tokens, strict=False)) if old != new)
    return whole.replaced(place, Weighted.of(loss.subtree(place)))


_LINEAR = {"add": 2, "sub": 2, "min": 2, "max": 2, "mul": 1, "aq": 1, "abs": 1}
"""Operators that a positive factor can be moved into, and the number of arguments that it multiplies."""


def scaled(tree: Expression, weights: Sequence[float], factor: float) -> tuple[Expression, tuple[float, ...]]:
    """Returns an expression with weights that is the given one times a positive factor.

    Args:
        tree: The expression.
        weights: Its weights, one per edge.
        factor: A positive number.

    Returns:
        The same tree with other weights where its root allows that, else a product of a constant and the tree.

    Example:
        >>> scaled(Expression.parse("abs(sub(y, f))"), [1.0, 1.0, 1.0], 0.5)
        (Expression.parse('abs(sub(y, f))'), (0.5, 1.0, 1.0))
        >>> scaled(Expression.parse("tanh(sub(y, f))"), [1.0, 1.0, 1.0], 0.5)[0]
        Expression.parse('mul(1, tanh(sub(y, f)))')
    """
    if factor == 1:
        return tree, tuple(weights)
    arguments = _LINEAR.get(tree.tokens[0])
    if arguments is None:
        return Expression(("mul", "1", *tree.tokens)), (factor, 1.0, *weights)
    changed = list(weights)
    places = [1, end_of_subtree(tree.tokens, 1)][:arguments]
    for place in places:
        changed[place - 1] *= factor
    return tree, tuple(changed)


@_retried
def subtree(parent: Weighted, space: Space, generator: np.random.Generator) -> Weighted:
    """A subtree, drawn uniformly from all nodes, is replaced by a random tree."""
    place = int(generator.integers(parent.tree.size))
    return parent.replaced(place, Weighted.of(half_and_half(MUTATED_HEIGHTS, space=space, generator=generator)))


@_retried
def point(parent: Weighted, space: Space, generator: np.random.Generator) -> Weighted:
    """A token is replaced by another with as many arguments."""
    tokens = parent.tree.tokens
    place = int(generator.integers(len(tokens)))
    choices = space.operators if tokens[place] in OPERATORS else space.terminals
    others = [token for token in choices if arity(token) == arity(tokens[place]) and token != tokens[place]]
    if not others:
        return parent
    token = others[generator.integers(len(others))]
    return Weighted(Expression((*tokens[:place], token, *tokens[place + 1 :])), parent.node_weights)


@_retried
def insert(parent: Weighted, space: Space, generator: np.random.Generator) -> Weighted:
    """A new operator comes above a node; if it has another argument, that is a random terminal on either side."""
    place = int(generator.integers(parent.tree.size))
    operator = space.operators[generator.integers(len(space.operators))]
    below = parent.subtree(place)
    parts = [(below.tree.tokens, below.node_weights)]
    for _ in range(arity(operator) - 1):
        terminal = space.terminals[generator.integers(len(space.terminals))]
        parts.insert(int(generator.integers(len(parts) + 1)), ((terminal,), (1.0,)))
    tokens = (operator, *(token for part, _ in parts for token in part))
    return parent.replaced(
        place, Weighted(Expression(tokens), (1.0, *(weight for _, part in parts for weight in part)))
    )


@_retried
def delete(parent: Weighted, _space: Space, generator: np.random.Generator) -> Weighted:
    """An operator is replaced by one of its arguments."""
    tokens = parent.tree.tokens
    places = _operators(parent.tree)
    place = places[generator.integers(len(places))]
    argument = place + 1
    for _ in range(generator.integers(arity(tokens[place]))):
        argument = end_of_subtree(tokens, argument)
    return parent.replaced(place, parent.subtree(argument))


@_retried
def hoist(parent: Weighted, _space: Space, generator: np.random.Generator) -> Weighted | None:
    """A subtree that begins with an operator becomes the whole tree."""
    places = _operators(parent.tree)[1:]  # the root of a loss is one
    return parent.subtree(places[generator.integers(len(places))]) if places else None


@_retried
def weights(parent: Weighted, _space: Space, generator: np.random.Generator) -> Weighted | None:
    """Some weights are multiplied by log-normal factors, a few of them negative."""
    count = parent.tree.edges
    changed = generator.random(count) < _CHANGED_WEIGHTS
    changed[generator.integers(count)] = True
    factors = np.exp(_STEP * generator.standard_normal(count))
    factors[generator.random(count) < _FLIPPED] *= -1.0
    factors[~changed] = 1.0
    new = [factor * weight for factor, weight in zip(factors.tolist(), parent.weights, strict=True)]
    return Weighted.of(parent.tree, new) if all(map(math.isfinite, new)) else None


def _operators(tree: Expression) -> list[int]:
    return [position for position, token in enumerate(tree.tokens) if token in OPERATORS]


MUTATIONS: Mapping[MutationName, tuple[Callable[..., Weighted], float]] = {
    "subtree mutation": (subtree, 0.25),
    "point mutation": (point, 0.2),
    "insertion": (insert, 0.15),
    "deletion": (delete, 0.1),
    "hoist": (hoist, 0.05),
    "weight mutation": (weights, 0.25),
}
"""The mutations with their probabilities. Those that keep most of the parent are drawn more often than those that
discard most of it; weight mutation, the only one that moves a formula in small steps, as often as whole subtrees."""
