"""The table's values and derivatives against torch and against formulas written by hand."""

import math

import numpy as np
import pytest
import torch

from evomal.expression.operators import EPSILON, OPERATORS, TERMINALS, TOKENS

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


def arguments(arity):
    return [axis.flatten() for axis in torch.meshgrid(*[POINTS] * arity, indexing="ij")]


def test_the_table_is_that_of_the_paper():
    assert list(OPERATORS) == list(BY_HAND)
    assert TERMINALS == ("y", "f", "1", "-1")
    assert len(TOKENS) == 16
    assert EPSILON == 1e-7


@pytest.mark.parametrize("token", OPERATORS)
@pytest.mark.parametrize("namespace", [torch, np], ids=["torch", "numpy"])
def test_values(token, namespace):
    points = arguments(OPERATORS[token].arity)
    expected = [BY_HAND[token](*(x.item() for x in xs)) for xs in zip(*points, strict=True)]
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
