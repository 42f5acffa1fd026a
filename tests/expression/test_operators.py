"""The table's values and derivatives against torch and against formulas written by hand."""

import math

import numpy as np
import pytest
import torch

from evomal.errors import InputError
from evomal.expression.operators import EPSILON, EXTENDED, OPERATORS, PAPER, TERMINALS, TOKENS, Space

# Zeros, ties, both signs, large and tiny values.
POINTS = torch.tensor([-3.0, -1.0, -0.5, -1e-9, 0.0, 1e-9, 0.5, 1.0, 2.0, 30.0], dtype=torch.float64)

BY_HAND = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "aq": lambda a, b: a / math.sqrt(1 + b**2),
    "min": min,
    "max": max,
    "sign": lambda a: (a > 0) - (a < 0),
    "square": lambda a: a**2,
    "abs": abs,
    "log": lambda a: math.log(abs(a) + 1e-7),
    "sqrt": lambda a: math.sqrt(abs(a) + 1e-7),
    "tanh": math.tanh,
}
EXTENSIONS = {
    "pow": lambda a, b: math.exp(min(40, b * math.log(max(abs(a), 1e-7)))),
    "exp": lambda a: math.exp(min(40, a)),
}


def arguments(arity):
    return [axis.flatten() for axis in torch.meshgrid(*[POINTS] * arity, indexing="ij")]


def test_the_table_is_that_of_the_paper():
    assert list(PAPER.operators) == list(BY_HAND)
    assert PAPER.terminals == ("y", "f", "1", "-1")
    assert EPSILON == 1e-7


def test_the_extended_table():
    assert set(OPERATORS) - set(PAPER.operators) == set(EXTENSIONS)
    assert set(TERMINALS) - set(PAPER.terminals) == {"logp", "blogp", "margin", "prior", "t"}
    assert EXTENDED.tokens == TOKENS
    arities = [row.arity for row in OPERATORS.values()]
    assert arities == sorted(arities, reverse=True)  # as the kernels of a GPU rely on


@pytest.mark.parametrize("token", OPERATORS)
@pytest.mark.parametrize("namespace", [torch, np], ids=["torch", "numpy"])
def test_values(token, namespace):
    points = arguments(OPERATORS[token].arity)
    expected = [(BY_HAND | EXTENSIONS)[token](*(x.item() for x in xs)) for xs in zip(*points, strict=True)]
    given = points if namespace is torch else [x.numpy() for x in points]
    np.testing.assert_allclose(np.asarray(OPERATORS[token].value(namespace, *given)), expected, rtol=1e-14)


def gradients(token, *numbers):
    points = [torch.tensor(number, dtype=torch.float64, requires_grad=True) for number in numbers]
    return tuple(g.item() for g in torch.autograd.grad(OPERATORS[token].value(torch, *points), points))


def test_ties_share_the_gradient_and_sign_is_zero_at_zero():
    assert gradients("min", 1.0, 1.0) == (0.5, 0.5)
    assert gradients("max", 1.0, 1.0) == (0.5, 0.5)
    assert OPERATORS["sign"].value(torch, torch.zeros(())) == 0
    assert gradients("abs", 0.0) == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials_and_powers_are_finite_everywhere(dtype):
    """So are first and second derivatives in single precision: e⁴⁰ / ε² is about 2·10³¹."""
    points = torch.tensor([-1e30, -200.0, -3.0, -1e-9, 0.0, 1e-9, 0.3, 5.0, 200.0, 1e30], dtype=dtype)
    a, b = (axis.flatten().requires_grad_() for axis in torch.meshgrid(points, points.clip(-5, 5), indexing="ij"))
    for value in (OPERATORS["exp"].value(torch, a), OPERATORS["pow"].value(torch, a, b)):
        first = torch.autograd.grad(value.sum(), (a, b), create_graph=True, allow_unused=True)
        found = [value, *(part for part in first if part is not None)]
        for part in found[1:]:
            found += torch.autograd.grad(part.sum(), (a, b), retain_graph=True, materialize_grads=True)
        assert all(part.isfinite().all() for part in found)


def test_a_power_is_exact_where_it_is_not_protected():
    a = torch.linspace(1e-6, 2, 50, dtype=torch.float64)
    torch.testing.assert_close(OPERATORS["pow"].value(torch, -a, torch.full_like(a, 0.7)), a**0.7, rtol=1e-14, atol=0)


def test_spaces_by_name():
    assert Space.of() == Space.of("paper") == PAPER
    assert Space.of("extended") == EXTENDED
    assert Space.of(["paper", "exp", "logp"]) == Space((*PAPER.operators, "exp"), (*PAPER.terminals, "logp"))
    assert Space.of(["f", "y", "sub"]) == Space(("sub",), ("y", "f"))
    regression = Space.of("extended", kind="regression")
    assert (regression.operators, regression.terminals) == (EXTENDED.operators, (*PAPER.terminals, "t"))


@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        ("logq", "classification", r"unknown name in space 'logq': did you mean 'log'"),
        (["paper", 3], "classification", r"space must be a list of names but got \['paper', 3\]"),
        (["paper", "logp"], "regression", "logp is a terminal of classification and cannot be in the space of a reg"),
        (["y", "sub", "1"], "classification", "a space must have y, one of f, logp, blogp, margin, and an operator"),
        (["y", "f", "abs"], "classification", "an operator with two arguments but got y, f, abs"),
    ],
)
def test_bad_spaces(names, kind, message):
    with pytest.raises(InputError, match=message):
        Space.of(names, kind=kind)
