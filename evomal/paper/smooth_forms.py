"""Losses of one output as smooth SymPy forms, and their values and limits at a point.

|a|, sign, min and max are made of smooth pieces. The sign of a number tells which piece holds near a point, so that
SymPy only differentiates smooth functions and substitutes the point. At a tie the rules are those of torch:
sign(0) = 0, and min and max share the derivative equally.
"""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import sympy

from evomal.expression import OPERATORS, Expression
from evomal.expression.operators import CONSTANTS, PREDICTION
from evomal.expression.symbolic import CLASSES_SYMBOL, PREDICTION_SYMBOL, is_readable
from evomal.losses.loss import Loss

Output = Literal["target", "other"]

OPTION_SYMBOLS: dict[str, Any] = dict(
    zip(("phi0", "phi1", "smoothing", "gamma"), sympy.symbols("phi0 phi1 xi gamma", positive=True), strict=True)
)
"""The options of hand-made losses as formulas name them."""
EPSILON_SYMBOL = sympy.Symbol("epsilon", positive=True)
_DIGITS, _MOST_DIGITS = 120, 2_000  # more than the smallest distance has; SymPy takes more where terms cancel
_NEUTRAL = (0, 1)  # values of options at which a term or a factor drops out of the formula


def output_form(loss: Loss, output: Output, sign: Callable[[Any], int]) -> Any:
    """Return the loss of one output as a smooth SymPy form in f and ε; None if there is no formula to read.

    `sign` returns the sign that a SymPy form has at the point.
    """
    functions = _SmoothFunctions(sign)
    y = int(output == "target")
    tree = loss.tree()
    if tree is not None:
        if not is_readable(tree.expression.tokens) or tree.expression.extras:
            return None  # other terminals than f need more than the probability of one output
        form = _tree_form(tree.expression, tree.weights, y, functions)
        return sympy.log(1 + sympy.exp(form)) if tree.activation == "softplus" else form
    values = {option: getattr(loss, option) for option in loss.option_names}
    options = {option: _as_number(value) for option, value in values.items() if isinstance(value, int | float)}
    options |= {option: symbol for option, symbol in OPTION_SYMBOLS.items() if symbol in option_values(loss)}
    return loss.cost(functions, PREDICTION_SYMBOL, y, CLASSES_SYMBOL, SimpleNamespace(**options))


class _SmoothFunctions:
    """The functions of the operator table over SymPy, without those that have a kink."""

    def __init__(self, sign: Callable[[Any], int]) -> None:
        self._sign = sign

    def __getattr__(self, name: str) -> Any:
        return getattr(sympy, name)

    def sign(self, a: Any) -> Any:
        return sympy.Integer(self._sign(a))

    def abs(self, a: Any) -> Any:
        return a * self._sign(a)

    def minimum(self, a: Any, b: Any) -> Any:
        order = self._sign(a - b)
        return (a + b) / 2 if order == 0 else (a if order < 0 else b)

    def maximum(self, a: Any, b: Any) -> Any:
        return -self.minimum(-a, -b)


def _tree_form(expression: Expression, weights: Sequence[float] | None, y: int, functions: _SmoothFunctions) -> Any:
    leaves = {PREDICTION: PREDICTION_SYMBOL, **{token: sympy.Integer(int(n)) for token, n in CONSTANTS.items()}}

    def visit(position: int, token: str, arguments: Sequence[Any]) -> Any:
        if token in ("log", "sqrt"):  # protected
            form = getattr(sympy, token)(functions.abs(*arguments) + EPSILON_SYMBOL)
        elif token == "exp":
            form = sympy.exp(*arguments)
        elif token == "pow":
            base, exponent = arguments
            form = (functions.abs(base) + EPSILON_SYMBOL) ** exponent
        elif token in OPERATORS:
            form = OPERATORS[token].value(functions, *arguments)
        else:
            form = leaves.get(token, sympy.Integer(y))
        return form if weights is None or position == 0 else form * _as_number(weights[position - 1])

    return expression.fold(visit)


def _as_number(value: float) -> Any:
    return sympy.Integer(int(value)) if float(value).is_integer() else sympy.Float(value)


def option_values(loss: Loss) -> dict[Any, float]:
    """The values of the options that stay symbols in the formula."""
    values = {OPTION_SYMBOLS[name]: getattr(loss, name) for name in loss.option_names if name in OPTION_SYMBOLS}
    return {symbol: value for symbol, value in values.items() if value not in _NEUTRAL}


def number_of(form: Any, values: Mapping[Any, Any]) -> Any:
    """The form as a SymPy number; NaN if it cannot be evaluated."""
    try:
        found = form.evalf(_DIGITS, subs=dict(values), maxn=_MOST_DIGITS)
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return sympy.nan
    return found if found.is_Number else sympy.nan


def sign_of(form: Any, values: Mapping[Any, Any]) -> int:
    """The sign of the form as a number; 0 if it cannot be evaluated."""
    number = number_of(form, values)
    return 0 if number is sympy.nan else int(sympy.sign(number))


def limit_of_values(values: Sequence[Any]) -> Any:
    """Return the limit of a function from its values at distances d, d² and d⁴ from a point.

    A function without bound, even one as slow as log(-log(d)), then grows by no less from each value to the next; one
    with a limit comes nearer by at least half each time, even as slowly as 1/log(d).
    """
    if any(value is sympy.nan for value in values):
        return sympy.nan
    first, second = values[1] - values[0], values[2] - values[1]
    if abs(values[2]) < 1e-3 * abs(values[1]) < 1e-6 * abs(values[0]):
        return sympy.Integer(0)
    if abs(second) <= max(1e-3 * abs(first), 1e-25 * abs(values[2])):
        return values[2]
    if abs(second) >= 0.75 * abs(first):
        return sympy.oo * sympy.sign(second)
    return values[2] - second**2 / (second - first)
