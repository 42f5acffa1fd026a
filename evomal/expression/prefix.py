"""Trees as tuples of tokens in prefix order: positions of subtrees, depths and folds, without recursion."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from evomal.errors import InputError
from evomal.expression.operators import TOKENS, arity

MAX_HEIGHT = 64
"""Greatest height of any tree; searches stay far below (10)."""
MAX_SIZE = 8191
"""Greatest number of nodes of any tree; a tree of height 10 has at most 2047."""

Tokens = tuple[str, ...]
Value = TypeVar("Value")


def check(tokens: Tokens) -> None:
    """Raises InputError unless the tokens are exactly one tree within the limits."""
    if len(tokens) > MAX_SIZE:
        raise InputError(f"an expression may have at most {MAX_SIZE} nodes but got {len(tokens)}")
    missing = 1
    for position, token in enumerate(tokens):
        if token not in TOKENS:
            raise InputError(f"unknown token {token!r} at node {position}: known tokens are {', '.join(TOKENS)}")
        if missing == 0:
            raise InputError(f"an expression is one tree, but node {position} ({token}) comes after its end")
        missing += arity(token) - 1
    if missing:
        raise InputError(f"every operator of an expression must have all its arguments, but {missing} are missing")
    if (height := max(depths(tokens))) > MAX_HEIGHT:
        raise InputError(f"an expression may be at most {MAX_HEIGHT} levels high but got {height}")


def end_of_subtree(tokens: Tokens, start: int) -> int:
    """Returns the position after the subtree that begins at `start`."""
    missing, position = 1, start
    while missing:
        missing += arity(tokens[position]) - 1
        position += 1
    return position


def depths(tokens: Tokens) -> tuple[int, ...]:
    """Returns the depth of every node; that of the root is 0."""
    found, pending = [], [0]
    for token in tokens:
        depth = pending.pop()
        found.append(depth)
        pending.extend([depth + 1] * arity(token))
    return tuple(found)


def fold(tokens: Tokens, visit: Callable[[int, str, Sequence[Value]], Value]) -> Value:
    """Combines a tree from its leaves to its root by `visit(position, token, values of the arguments)`.

    Read backwards, prefix order is a stack program, so no recursion is needed.
    """
    stack: list[Value] = []
    for position in range(len(tokens) - 1, -1, -1):
        token = tokens[position]
        count = arity(token)
        arguments = [stack.pop() for _ in range(count)]
        stack.append(visit(position, token, arguments))
    return stack.pop()
