"""The tree as a value: size, height, parts, equality."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evomal.errors import InputError
from evomal.expression import Expression
from tests.strategies import fragments


def test_measures():
    tree = Expression.parse("abs(log(mul(y, f)))")
    assert (tree.size, tree.height, tree.edges) == (5, 3, 4)
    assert tree.tokens == ("abs", "log", "mul", "y", "f")
    assert tree.depths == (0, 1, 2, 3, 3)
    assert tree.terminals == (3, 4)
    assert Expression(["f"]).height == 0


def test_it_is_immutable_and_usable_as_a_key():
    tree = Expression.parse("add(y, f)")
    with pytest.raises(AttributeError):
        tree.tokens = ("f",)
    assert {tree: 1}[Expression.parse("add( y,f )")] == 1
    assert tree != Expression.parse("add(f, y)")
    assert repr(tree) == "Expression.parse('add(y, f)')"
    assert repr(Expression(["f"])) == "Expression.parse('f', fragment=True)"
    large = Expression(["add"] * 60 + ["f"] + ["y"] * 60)
    assert repr(large).startswith("<Expression of 121 nodes: add(add(")
    assert len(repr(large)) < 250


@given(fragments(), fragments())
def test_keys_are_equal_exactly_when_trees_are(first, second):
    assert (first.key == second.key) == (first == second)


@given(fragments(), fragments(), st.integers(0, 1000))
def test_replacing_and_taking_subtrees(tree, other, place):
    place %= tree.size
    changed = tree.replaced(place, other)
    assert changed.subtree(place) == other
    assert changed.size == tree.size - tree.subtree(place).size + other.size
    assert changed.replaced(place, tree.subtree(place)) == tree
    assert tree.replaced(place, tree.subtree(place)) == tree


@given(fragments())
def test_height_by_the_definition(tree):
    def height(position):
        token = tree.tokens[position]
        children = []
        start = position + 1
        for _ in range({"y": 0, "f": 0, "1": 0, "-1": 0}.get(token, 2 if token in BINARY else 1)):
            children.append(height(start))
            start += tree.subtree(start).size
        return 1 + max(children, default=-1)

    assert tree.height == height(0)


BINARY = ("add", "sub", "mul", "aq", "min", "max")


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ([], "1 are missing"),
        (["add", "y"], "1 are missing"),
        (["y", "f"], r"node 1 \(f\) comes after its end"),
        (["add", "y", "z"], "unknown token 'z' at node 2"),
        (["abs"] * 100 + ["f"], "at most 64 levels high but got 100"),
        (["f"] * 10_000, "at most 8191 nodes but got 10000"),
    ],
)
def test_malformed_trees_cannot_be_made(tokens, sentence):
    with pytest.raises(InputError, match=sentence):
        Expression(tokens)


def test_weights_are_counted():
    tree = Expression.parse("add(y, f)")
    with pytest.raises(InputError, match="3 nodes needs 2 weights, one per non-root node, but got 3"):
        tree.latex([1.0, 2.0, 3.0])
