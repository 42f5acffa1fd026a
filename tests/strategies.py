"""Hypothesis strategies for trees, independent of evomal's own generation."""

from hypothesis import strategies as st

from evomal.expression import Expression, Space

_UNARY = ("sign", "square", "abs", "log", "sqrt", "tanh")
_BINARY = ("add", "sub", "mul", "aq", "min", "max")
SMOOTH = ("add", "sub", "mul", "aq", "square", "tanh")

_LEAVES = st.sampled_from([("y",), ("f",), ("1",), ("-1",)])


def _grown(children):
    unary = st.tuples(st.sampled_from(_UNARY), children).map(lambda parts: (parts[0], *parts[1]))
    binary = st.tuples(st.sampled_from(_BINARY), children, children).map(lambda p: (p[0], *p[1], *p[2]))
    return unary | binary


def fragments(max_leaves: int = 20) -> st.SearchStrategy[Expression]:
    """Any well-formed tree, whether or not it is a loss."""
    return st.recursive(_LEAVES, _grown, max_leaves=max_leaves).map(Expression)


def losses(max_leaves: int = 20, max_height: int = 10) -> st.SearchStrategy[Expression]:
    """Trees that use both y and f, within a height."""
    return fragments(max_leaves).map(_completed).filter(lambda tree: tree.height <= max_height)


def extended_losses(kind: str, max_leaves: int = 14, max_height: int = 8) -> st.SearchStrategy[Expression]:
    """Losses of all tokens that there are for a kind of task."""
    space = Space.of("extended", kind=kind)
    unary = st.sampled_from([token for token in space.operators if token not in space.binary])
    binary = st.sampled_from(space.binary)

    def grown(children):
        return st.builds(lambda token, a: (token, *a), unary, children) | st.builds(
            lambda token, a, b: (token, *a, *b), binary, children, children
        )

    leaves = st.sampled_from([(token,) for token in space.terminals])
    trees = st.recursive(leaves, grown, max_leaves=max_leaves).map(Expression).map(_completed)
    return trees.filter(lambda tree: tree.height <= max_height)


def _completed(tree: Expression) -> Expression:
    place = tree.terminals[-1]
    return tree if tree.is_loss else tree.replaced(place, Expression(["sub", "y", "f"]))


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 2**32 - 1)
