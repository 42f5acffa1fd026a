"""SymPy forms of trees, for reading and for analysis; a search computes nothing with them.

SymPy only holds and prints what `normal_form` has simplified: its own evaluation and simplification have no bound on
time, so every object here is made with `evaluate=False`.
"""

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import sympy

from evomal.expression.normal_form import Atom, Form, Monomial, OutOfRangeError, UndefinedLimitError, normal_form
from evomal.expression.operators import (
    CONSTANTS,
    EPSILON,
    EXTRA_TERMINALS,
    LARGEST_EXPONENT,
    OPERATORS,
    PREDICTION,
    PREDICTIONS,
    TARGET,
)
from evomal.expression.prefix import Tokens, depths, fold

TARGET_SYMBOL = sympy.Symbol(TARGET, real=True)
PREDICTION_SYMBOL = sympy.Symbol(PREDICTION, real=True)
PROBABILITY_SYMBOL = sympy.Symbol("p", positive=True)
CLASSES_SYMBOL = sympy.Symbol("C", positive=True, integer=True)

# Nobody reads a formula of sixty operations, and SymPy prints by recursion.
_LARGEST_READABLE, _HIGHEST_READABLE = 60, 16  # nodes and levels
_EXACT_WHOLE = 2.0**53
_DIGITS = 4  # significant digits of rounded numbers


class _Unevaluated:
    """The namespace of the operator table over SymPy: its functions and classes, which do not evaluate."""

    _NAMES: ClassVar = {"abs": "Abs", "minimum": "Min", "maximum": "Max"}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(getattr(sympy, self._NAMES.get(name, name)), evaluate=False)


_NODES = _Unevaluated()
_LEAVES = {TARGET: TARGET_SYMBOL, PREDICTION: PREDICTION_SYMBOL}
_LEAVES |= {token: sympy.Symbol(token, real=True) for token in EXTRA_TERMINALS}


def is_readable(tokens: Tokens) -> bool:
    """Returns whether a tree is small enough for a person to read its formula."""
    return len(tokens) <= _LARGEST_READABLE and max(depths(tokens)) <= _HIGHEST_READABLE


def to_sympy(tokens: Tokens, weights: Sequence[float] | None = None, *, epsilon: float = EPSILON) -> Any:
    """Returns the SymPy form of a tree in the real symbols y and f, in time proportional to its size.

    That is its normal form; a tree that is too large to be read, or has numbers beyond the range of floats, is
    translated node by node. `epsilon` protects log and sqrt; 0 gives the unprotected limit, for reading.
    """
    if is_readable(tokens):
        try:
            return _in_sympy(normal_form(tokens, weights, epsilon=epsilon), exact_number)
        except (OutOfRangeError, UndefinedLimitError):
            pass
    return _node_by_node(tokens, weights, epsilon)


def softplus(form: Any) -> Any:
    """Returns log(1 + exp(form)), not evaluated."""
    one_plus = sympy.Add(sympy.Integer(1), sympy.exp(form, evaluate=False), evaluate=False)
    return sympy.log(one_plus, evaluate=False)


def rounded(form: Any) -> Any:
    """Returns the form with numbers rounded to four significant digits, whole ones as integers; for display."""

    def shown(number: Any) -> Any:
        short = sympy.Float(number, _DIGITS)
        value = float(short)
        # Numbers of SymPy do not underflow: one that is zero as a float need not be zero.
        is_whole = value.is_integer() and abs(value) < 10**_DIGITS and (value != 0 or short.is_zero)
        return sympy.Integer(int(value)) if is_whole else short

    return form.xreplace({number: shown(number) for number in form.atoms(sympy.Float)})


def shown_form(tokens: Tokens, weights: Sequence[float] | None = None, digits: int = 4) -> Any:
    """Returns the simplified SymPy form for people: weights rounded, without ε if there is a limit without it.

    None if the tree is too large to be read or has numbers beyond the range of floats.
    """
    if not is_readable(tokens):
        return None
    try:
        try:
            form = normal_form(tokens, weights, epsilon=0)
        except UndefinedLimitError:
            form = normal_form(tokens, weights)
        shown = _in_sympy(form, lambda number: _rounded_number(number, digits))
        # log(|−1| + ε) is ε, not 0: where the limit does not depend on f, all of the gradient comes from ε.
        predictions = {_LEAVES[token] for token in PREDICTIONS if token in tokens}
        if predictions and not predictions & shown.free_symbols:
            shown = _in_sympy(normal_form(tokens, weights), lambda number: _rounded_number(number, digits))
    except OutOfRangeError:
        return None
    return shown


def _in_sympy(form: Form, number: Callable[[float], Any]) -> Any:
    """A normal form as a SymPy object, its numbers made by `number`."""
    coefficient, monomial = form.factors()
    return _product(coefficient, monomial, number)


def _product(coefficient: float, monomial: Monomial, number: Callable[[float], Any]) -> Any:
    powers = [_power(base, exponent, number) for base, exponent in monomial]
    factor = number(coefficient)
    factors = [factor, *sorted(powers, key=sympy.default_sort_key)] if factor != 1 or not powers else powers
    if factor == 0:
        return sympy.Integer(0)
    return factors[0] if len(factors) == 1 else sympy.Mul(*factors, evaluate=False)


def _power(base: Atom | Form, exponent: Fraction, number: Callable[[float], Any]) -> Any:
    written = _sum(base, number) if isinstance(base, Form) else _atom(base, number)
    if exponent == 1:
        return written
    return sympy.Pow(written, sympy.Rational(exponent.numerator, exponent.denominator), evaluate=False)


def _sum(form: Form, number: Callable[[float], Any]) -> Any:
    terms = [_product(coefficient, monomial, number) for monomial, coefficient in form.terms]
    terms = [term for term in [number(form.constant), *sorted(terms, key=sympy.default_sort_key)] if term != 0]
    return sympy.Add(*terms, evaluate=False) if len(terms) > 1 else terms[0]


def _atom(atom: Atom, number: Callable[[float], Any]) -> Any:
    if not atom.arguments:
        return _LEAVES[atom.name]
    arguments = [_in_sympy(argument, number) for argument in atom.arguments]
    # The forms of log, exp and pow hold their bounds already, and nested extrema were joined.
    plain = {"log": _NODES.log, "min": _NODES.minimum, "max": _NODES.maximum, "exp": _NODES.exp, "pow": _NODES.Pow}
    return plain[atom.name](*arguments) if atom.name in plain else OPERATORS[atom.name].value(_NODES, *arguments)


def exact_number(number: float) -> Any:
    """Returns the number for SymPy: whole numbers, 1/2 and −1/2 exactly, all others as floats."""
    if number.is_integer() and abs(number) < _EXACT_WHOLE:
        return sympy.Integer(int(number))
    return sympy.Rational(int(2 * number), 2) if abs(number) == 0.5 else sympy.Float(number)


def _rounded_number(number: float, digits: int) -> Any:
    short = float(f"{number:.{digits}g}")
    if (short.is_integer() and abs(short) < 10**digits) or abs(short) == 0.5:
        return exact_number(short)
    return sympy.Float(short, digits)


def _node_by_node(tokens: Tokens, weights: Sequence[float] | None, epsilon: float) -> Any:
    """Each node as one unevaluated SymPy object."""
    add, multiply, power = _NODES.Add, _NODES.Mul, _NODES.Pow
    half, two, one = sympy.Rational(1, 2), sympy.Integer(2), sympy.Integer(1)

    def protected(a: Any) -> Any:
        size = _NODES.abs(a)
        return add(size, sympy.Float(epsilon)) if epsilon else size

    least, largest = sympy.Float(EPSILON), sympy.Integer(int(LARGEST_EXPONENT))

    def limited(a: Any) -> Any:
        return _NODES.minimum(a, largest)

    rules: dict[str, Callable[..., Any]] = {
        "add": add,
        "sub": lambda a, b: add(a, multiply(sympy.Integer(-1), b)),
        "mul": multiply,
        "aq": lambda a, b: multiply(a, power(add(one, power(b, two)), -half)),
        "square": lambda a: power(a, two),
        "log": lambda a: _NODES.log(protected(a)),
        "sqrt": lambda a: power(protected(a), half),
        "exp": lambda a: _NODES.exp(limited(a)),
        "pow": lambda a, b: _NODES.exp(limited(multiply(b, _NODES.log(_NODES.maximum(_NODES.abs(a), least))))),
    }
    leaves = _LEAVES | {token: sympy.Integer(int(value)) for token, value in CONSTANTS.items()}

    def visit(position: int, token: str, arguments: Sequence[Any]) -> Any:
        if not arguments:
            value = leaves[token]
        elif token in rules:
            value = rules[token](*arguments)
        else:
            value = OPERATORS[token].value(_NODES, *arguments)
        if weights is None or position == 0:
            return value
        return multiply(sympy.Float(weights[position - 1]), value)

    return fold(tokens, visit)
