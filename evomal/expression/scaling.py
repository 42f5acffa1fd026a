"""A multiple of an expression as an expression."""

from collections.abc import Sequence

from evomal.expression import prefix
from evomal.expression.tree import Expression

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
    places = [1, prefix.end_of_subtree(tree.tokens, 1)][:arguments]
    for place in places:
        changed[place - 1] *= factor
    return tree, tuple(changed)
