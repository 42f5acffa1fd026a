"""LaTeX and source forms: brackets where they are needed, and code that computes the tree."""

import math

import numpy as np
import pytest
from hypothesis import given

from evomal.expression import Expression
from evomal.expression.notation import to_code
from evomal.randomness import generator
from tests.strategies import fragments


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("mul(add(y, f), f)", r"(y + f_{\theta}(x)) \cdot f_{\theta}(x)"),
        ("sub(y, sub(y, f))", r"y - (y - f_{\theta}(x))"),
        ("sub(sub(y, f), y)", r"y - f_{\theta}(x) - y"),
        ("square(square(sub(y, f)))", r"((y - f_{\theta}(x))^2)^2"),
        ("mul(y, mul(-1, f))", r"y \cdot (-1) \cdot f_{\theta}(x)"),
        ("square(mul(y, f))", r"(y \cdot f_{\theta}(x))^2"),
        ("aq(y, square(f))", r"\frac{y}{\sqrt{1 + (f_{\theta}(x)^2)^2}}"),
        ("abs(log(mul(y, f)))", r"\left|\log\left(\left|y \cdot f_{\theta}(x)\right| + \epsilon\right)\right|"),
        (
            "max(sign(y), tanh(f))",
            r"\max\left(\operatorname{sign}\left(y\right), \tanh\left(f_{\theta}(x)\right)\right)",
        ),
        ("square(aq(y, f))", r"(\frac{y}{\sqrt{1 + f_{\theta}(x)^2}})^2"),
        ("sub(sqrt(y), f)", r"\sqrt{\left|y\right| + \epsilon} - f_{\theta}(x)"),
    ],
)
def test_latex(text, latex):
    assert Expression.parse(text).latex() == latex


def test_latex_with_weights():
    latex = Expression.parse("sub(y, mul(f, f))").latex([0.5, -1.25, 1.0, 123456.0])
    assert latex == r"0.5 \cdot y - (-1.25 \cdot f_{\theta}(x) \cdot 1.235 \cdot 10^{5} \cdot f_{\theta}(x))"


@given(fragments())
def test_code_computes_the_tree(tree):
    weights = [round(float(w), 3) for w in generator(0, tree.key).normal(size=tree.edges)]
    for given_weights in (None, weights):
        lines = to_code(tree.tokens, given_weights, "np")
        scope = {
            "np": np,
            "aq": lambda a, b: a / np.sqrt(1 + b * b),
            "log": lambda a: np.log(np.abs(a) + 1e-7),
            "sqrt": lambda a: np.sqrt(np.abs(a) + 1e-7),
        }
        body = "\n".join(f"    {line}" for line in lines)
        with np.errstate(all="ignore"):
            exec(f"def value(f, y):\n{body}", scope)
            got = scope["value"](np.array([0.7, -0.3]), np.array([1.0, 0.2]))
            expected = [_by_hand(tree, given_weights, f, y) for f, y in ((0.7, 1.0), (-0.3, 0.2))]
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


def _by_hand(tree, weights, f, y):
    """The definition, node by node: each value times its edge's weight on the way to its parent."""
    rules = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "aq": lambda a, b: a / math.sqrt(1 + b * b), "min": min, "max": max,
        "sign": lambda a: (a > 0) - (a < 0), "square": lambda a: a * a, "abs": abs,
        "log": lambda a: math.log(abs(a) + 1e-7), "sqrt": lambda a: math.sqrt(abs(a) + 1e-7), "tanh": math.tanh,
    }  # fmt: skip

    def visit(position, token, arguments):
        value = {"y": y, "f": f, "1": 1.0, "-1": -1.0}[token] if not arguments else rules[token](*arguments)
        return value if weights is None or position == 0 else value * weights[position - 1]

    return tree.fold(visit)
