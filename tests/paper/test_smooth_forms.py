"""Smooth forms of losses against autograd, and limits from three values."""

import pytest
import sympy

from evomal.expression.operators import EPSILON
from evomal.expression.symbolic import PREDICTION_SYMBOL
from evomal.losses import ExpressionLoss
from evomal.paper.behaviour import OUTPUTS
from evomal.paper.smooth_forms import EPSILON_SYMBOL, limit_of_values, output_form
from tests.paper.test_behaviour import pushed


@pytest.mark.parametrize("output", OUTPUTS)
def test_the_symbolic_push_between_the_points_is_autograd_s(output):
    loss = ExpressionLoss("add(log(mul(f, f)), aq(y, tanh(f)))", [1.1, 0.9, 1.2, 1, 1, 0.8, 1.3, 1])
    form = -sympy.diff(output_form(loss, output, lambda a: 1), PREDICTION_SYMBOL)
    for place in (0.05, 0.3, 0.8):
        found = float(form.subs({PREDICTION_SYMBOL: place, EPSILON_SYMBOL: EPSILON}))
        assert found == pytest.approx(pushed(loss, place, float(output == "target")), rel=1e-9)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda d: 3 + d, 3),
        (lambda d: -d, 0),
        (lambda d: 5 + d ** sympy.Rational(1, 10), 5),
        (lambda d: sympy.Integer(7), 7),
        (lambda d: 1 / sympy.log(d), 0),
        (lambda d: 2 - 1 / sympy.log(d), 2),
        (lambda d: sympy.log(d), -sympy.oo),
        (lambda d: sympy.log(-sympy.log(d)), sympy.oo),
        (lambda d: 1 / d, sympy.oo),
        (lambda d: -(d ** sympy.Rational(-1, 1000)), -sympy.oo),
        (lambda d: sympy.nan, sympy.nan),
    ],
)
def test_three_values_tell_where_they_tend(function, expected):
    found = limit_of_values([function(sympy.Integer(10) ** exponent).evalf(30) for exponent in (-20, -40, -80)])
    assert float(found) == pytest.approx(float(expected), abs=0.02, nan_ok=True)
