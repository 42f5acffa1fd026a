"""SymPy forms equal the trees they come from, simplified or not."""

import math
import operator
import os
import subprocess
import sys
import time

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evomal.expression import OPERATORS, Expression, Operator, full, grow
from evomal.expression.operators import EPSILON
from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL, _node_by_node, rounded, shown_form, to_sympy
from evomal.losses.expression_loss import evaluate
from evomal.randomness import generator
from tests.strategies import fragments, seeds

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
    for form in (tree.sympy(weights), _node_by_node(tree.tokens, weights, EPSILON)):
        for got, reference in zip(values_of(form), expected, strict=True):
            if math.isfinite(reference) and abs(reference) < 1e12:
                assert got == pytest.approx(reference, rel=1e-6, abs=1e-6)


def without_epsilon(tree, weights, f, y):
    """The tree's value by its operators alone; None where a logarithm of zero is in it."""
    rules = {
        "log": lambda a: math.log(abs(a)) if abs(a) > 1e-9 else math.nan,
        "sqrt": lambda a: math.sqrt(abs(a)) if abs(a) > 1e-9 else math.nan,
        "aq": lambda a, b: a / math.sqrt(1 + b * b),
        "sign": lambda a: math.copysign(1, a) if abs(a) > 1e-9 else math.nan,
        "min": min, "max": max, "abs": abs, "tanh": math.tanh, "square": lambda a: a * a,
        "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    }  # fmt: skip
    leaves = {"f": f, "y": y, "1": 1.0, "-1": -1.0}

    def visit(position, token, arguments):
        value = math.nan if any(map(math.isnan, arguments)) else None
        if value is None:
            value = rules[token](*arguments) if arguments else leaves[token]
        return value * weights[position - 1] if position else value

    value = tree.fold(visit)
    return None if math.isnan(value) else value


@settings(max_examples=200)
@given(fragments(max_leaves=25), st.booleans())
def test_the_form_without_epsilon_has_the_values_of_the_tree(tree, weighted):
    weights = generator(1, tree.key).normal(1, 0.3, tree.edges).tolist() if weighted else [1.0] * tree.edges
    function = sympy.lambdify((PREDICTION_SYMBOL, TARGET_SYMBOL), tree.sympy(weights, epsilon=0), "math")
    for f, y in ((0.3, 0.8), (-0.7, 0.4), (1.7, -1.3)):
        expected = without_epsilon(tree, weights, f, y)
        if expected is not None and abs(expected) < 1e9:
            assert function(f, y) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("square(sub(f, min(max(y, -1), 1)))", "(f - Min(1, Max(-1, y)))**2"),
        ("abs(log(sqrt(mul(y, f))))", "Abs(log(Abs(f*y)))/2"),
        ("sqrt(square(sub(y, f)))", "Abs(f - y)"),
        ("add(sub(f, f), mul(y, square(square(f))))", "f**4*y"),
        ("sub(add(y, f), y)", "f"),
        ("square(sub(y, f))", "(f - y)**2"),
        ("mul(abs(f), mul(abs(f), mul(abs(y), f)))", "f**3*Abs(y)"),
        ("abs(mul(f, mul(y, square(sub(y, f)))))", "(f - y)**2*Abs(f*y)"),
        ("square(square(add(add(f, f), add(y, y))))", "16*(f + y)**4"),
        ("add(mul(f, y), mul(f, square(y)))", "f*y*(y + 1)"),
        ("mul(sign(sub(-1, square(sub(y, f)))), f)", "-f"),
        ("tanh(sub(sub(-1, y), f))", "-tanh(f + y + 1)"),
        ("max(max(y, 1), max(max(f, -1), y))", "Max(1, f, y)"),
        ("mul(sqrt(abs(sub(f, y))), sqrt(sub(y, f)))", "Abs(f - y)"),
        ("aq(sub(f, y), aq(f, y))", "(f - y)/sqrt(f**2/(y**2 + 1) + 1)"),
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
    began = time.process_time()
    assert tree.formula(generator(0, "chain").normal(1, 1e-3, tree.edges).tolist())
    tree.sympy()
    assert time.process_time() - began < 20


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
        began = time.process_time()
        tree.sympy(rng.normal(1, 1e-3, tree.edges).tolist())
        assert time.process_time() - began < 5


HARD = {
    "tanh, log and aq": (
        "tanh(tanh(log(tanh(log(log(tanh(aq(tanh(tanh(log(log(y)))), "
        "tanh(log(aq(aq(aq(f, f), aq(tanh(-1), y)), log(y))))))))))))"
    ),
    "a quotient of logarithms": (
        "log(aq(tanh(tanh(aq(y, tanh(y)))), log(aq(y, tanh(aq(log(-1), aq(aq(-1, tanh(f)), log(log(log(y))))))))))"
    ),
    "signs in min": "min(sign(max(sign(f), min(y, abs(sign(sub(y, f)))))), tanh(sign(min(f, sign(y)))))",
}


@pytest.mark.parametrize("name", HARD)
def test_small_trees_that_keep_sympy_busy_take_a_moment(name):
    tree = Expression.parse(HARD[name])
    began = time.process_time()
    for weights in (None, generator(0, name).normal(1, 0.1, tree.edges).tolist()):
        assert {"f", "y"} <= {symbol.name for symbol in shown_form(tree.tokens, weights).free_symbols}
        assert str(tree.sympy(weights))
    assert time.process_time() - began < 5


def test_numbers_beyond_floats_leave_the_tree_as_it_is():
    power = "square(" * 14 + "add(1, 1)" + ")" * 14
    tree = Expression.parse(f"mul(y, mul(f, {power}))")
    assert tree.formula() == str(tree)
    assert len(str(tree.sympy())) < 200
    quotient = Expression.parse("aq(y, log(square(square(f))))")
    assert (
        quotient.formula([1e-200] * quotient.edges)
        == "aq(1e-200*y, 1e-200*log(1e-200*square(1e-200*square(1e-200*f))))"
    )
    nothing = Expression.parse("square(sub(y, f))")
    assert nothing.formula([math.nan, 1.0, 2.0]) == "square(nan*sub(y, 2*f))"


def test_epsilon_stays_where_a_weight_is_as_small():
    tree = Expression.parse("log(mul(y, f))")
    assert tree.formula([1.0, 1e-3, 1.0]) == "log(0.001*Abs(f*y))"
    assert tree.formula([1.0, 1e-6, 1.0]) == "log(1.0e-6*Abs(f*y) + 1.0e-7)"
    assert tree.formula([1.0, 1e-200, 1.0]) == "log(1.0e-200*Abs(f*y) + 1.0e-7)"
    assert rounded(sympy.Float("1e-400")) != 0


def test_the_largest_tree_has_a_formula_and_a_form():
    halves = ["f", "y"]
    for _ in range(11):
        halves = [f"add({half}, {half})" for half in halves]
    tree = Expression.parse(f"mul({halves[0]}, {halves[1]})")
    assert tree.size == 8191
    began = time.process_time()
    assert tree.formula() == str(tree)
    assert tree.sympy().free_symbols == {PREDICTION_SYMBOL, TARGET_SYMBOL}
    assert time.process_time() - began < 5


@settings(max_examples=40, deadline=None)
@given(seeds(), st.integers(1, 14), st.sampled_from([0.0, 0.3, 200.0]))
def test_any_tree_within_the_caps_has_a_formula_within_seconds(seed, height, spread):
    rng = generator(seed, "any tree")
    tree = grow((height, height), generator=rng)
    weights = (rng.normal(1, 0.3, tree.edges) * 10 ** (spread * rng.normal(0, 1, tree.edges)).clip(-300, 300)).tolist()
    began = time.process_time()
    first = tree.formula(weights)
    assert time.process_time() - began < 5
    assert tree.formula(weights) == first


def test_formulas_do_not_depend_on_the_hash_seed():
    source = (
        "from evomal import Expression\n"
        "t = Expression.parse('aq(mul(sub(y, f), tanh(max(f, sign(y)))), add(mul(f, abs(y)), mul(log(f), abs(y))))')\n"
        "print(t.formula([0.1 * (i + 3) for i in range(t.edges)]))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", source], env={**os.environ, "PYTHONHASHSEED": str(seed)}, check=True,
            capture_output=True, text=True,
        ).stdout
        for seed in range(3)
    }  # fmt: skip
    assert len(shown) == 1


def test_a_loss_that_learns_by_epsilon_alone_is_not_shown_as_zero():
    assert Expression.parse("aq(log(-1), add(f, y))").formula() == "1.0e-7/sqrt((f + y)**2 + 1)"
    assert Expression.parse("mul(sub(1, 1), mul(y, f))").formula() == "0"  # which it is


def test_an_operator_without_a_rule_is_shown_by_its_row_of_the_table(monkeypatch):
    cosine = Operator("cos", 1, lambda xp, a: xp.cos(a), OPERATORS["tanh"].latex, OPERATORS["tanh"].code)
    monkeypatch.setitem(OPERATORS, "cos", cosine)
    tokens = ("add", "cos", "mul", "f", "f", "square", "cos", "y")
    assert str(shown_form(tokens)) == "cos(f**2) + cos(y)**2"
    for form in (to_sympy(tokens), _node_by_node(tokens, None, EPSILON)):
        assert values_of(form) == pytest.approx([math.cos(f * f) + math.cos(y) ** 2 for f, y in POINTS])
