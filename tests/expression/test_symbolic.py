"""SymPy forms equal the trees they come from, simplified or not."""

import math
import time

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evomal.expression import Expression, full
from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL, rounded
from evomal.losses.expression_loss import evaluate
from evomal.randomness import generator
from tests.strategies import fragments

POINTS = [(0.3, 1.0), (0.9, 0.0), (-0.7, 0.4), (1.7, -1.3)]


def values_of(form):
    function = sympy.lambdify((PREDICTION_SYMBOL, TARGET_SYMBOL), form, "math")
    return [function(f, y) for f, y in POINTS]


@settings(max_examples=60)
@given(fragments(max_leaves=8), st.booleans())
def test_forms_equal_the_tree(tree, weighted):
    weights = generator(1, tree.key).normal(1, 0.3, tree.edges).tolist() if weighted else None
    f, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*POINTS, strict=True))
    tensor = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    expected = evaluate(tree, f, y, tensor).expand(len(POINTS)).tolist()
    for form in (tree.sympy(weights), tree.simplify(weights)):
        for got, reference in zip(values_of(form), expected, strict=True):
            if math.isfinite(reference) and abs(reference) < 1e12:
                assert got == pytest.approx(reference, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("square(sub(f, min(max(y, -1), 1)))", "(f - Min(1, Max(-1, y)))**2"),
        ("abs(log(sqrt(mul(y, f))))", "Abs(log(Abs(f*y)))/2"),
        ("sqrt(square(sub(y, f)))", "Abs(f - y)"),
        ("add(sub(f, f), mul(y, square(square(f))))", "f**4*y"),
        ("sub(add(y, f), y)", "f"),
    ],
)
def test_simplified_formulas(text, formula):
    assert Expression.parse(text).formula() == formula


@pytest.mark.parametrize(
    "text", ["add(max(log(sub(y, y)), f), y)", "aq(y, log(sub(f, f)))", "tanh(log(mul(sub(y, y), f)))"]
)
def test_without_a_limit_the_formula_keeps_epsilon(text):
    tree = Expression.parse(text)
    shown = sympy.sympify(tree.formula(digits=12), locals={"f": PREDICTION_SYMBOL, "y": TARGET_SYMBOL})
    for got, expected in zip(values_of(shown), values_of(tree.sympy()), strict=True):
        assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("operators", [["aq"] * 49, ["mul"] * 25, ["max"] * 30, ["aq"] * 60])
def test_chains_take_bounded_time(operators):
    tokens = [token for operator in operators for token in (operator, "y")]
    tree = Expression([*tokens, "f"])
    began = time.perf_counter()
    assert tree.formula(generator(0, "chain").normal(1, 1e-3, tree.edges).tolist())
    tree.sympy()
    assert time.perf_counter() - began < 20


def test_weights_show_rounded_and_whole_ones_vanish():
    tree = Expression.parse("mul(sub(y, f), f)")
    assert tree.formula([1.23456, 1.0, 1.0, 1.00000001]) == "1.235*f*(-f + y)"
    assert rounded(sympy.Float(2.0)) == 2


def test_epsilon_is_exact_or_dropped():
    tree = Expression.parse("log(mul(y, f))")
    at_zero = {PREDICTION_SYMBOL: 0, TARGET_SYMBOL: 1}
    assert float(tree.sympy().subs(at_zero)) == pytest.approx(math.log(1e-7))
    assert tree.sympy(epsilon=0).subs(at_zero) == sympy.zoo


@pytest.mark.parametrize("height", [6, 8, 10])
def test_large_trees_take_bounded_time(height):
    rng = generator(0, "large", height)
    trees = [tree for tree in (full((height, height), generator=rng) for _ in range(6)) if tree.size <= 2047]
    assert trees
    for tree in trees:
        began = time.perf_counter()
        tree.simplify(rng.normal(1, 1e-3, tree.edges).tolist())
        assert time.perf_counter() - began < 30


def test_a_loss_that_learns_by_epsilon_alone_is_not_shown_as_zero():
    assert Expression.parse("aq(log(-1), add(f, y))").formula() == "1.0e-7/sqrt((f + y)**2 + 1)"
    assert Expression.parse("mul(sub(1, 1), mul(y, f))").formula() == "0"  # which it is
