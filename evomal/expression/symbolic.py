"""SymPy forms of trees, for reading and for analysis; nothing in a search is computed through them."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import sympy

from evomal.expression.operators import CONSTANTS, EPSILON, OPERATORS, PREDICTION, TARGET
from evomal.expression.prefix import Tokens, depths, fold

TARGET_SYMBOL = sympy.Symbol(TARGET, real=True)
PREDICTION_SYMBOL = sympy.Symbol(PREDICTION, real=True)

# SymPy's effort grows steeply with size and height, and nobody reads a formula of sixty operations.
_LARGEST, _HIGHEST = 60, 16

_SYMPY = SimpleNamespace(
    abs=sympy.Abs,
    sign=sympy.sign,
    sqrt=sympy.sqrt,
    log=sympy.log,
    tanh=sympy.tanh,
    minimum=sympy.Min,
    maximum=sympy.Max,
)


class UndefinedLimitError(ArithmeticError):
    """Without ε the tree has a logarithm of zero."""


def is_readable(tokens: Tokens) -> bool:
    """Whether a tree is small enough for SymPy to work on, and for a person to read."""
    return len(tokens) <= _LARGEST and max(depths(tokens)) <= _HIGHEST


def to_sympy(tokens: Tokens, weights: Sequence[float] | None = None, *, epsilon: float = EPSILON) -> Any:
    """The SymPy form of a tree in the real symbols y and f; `epsilon=0` gives the unprotected limit, for reading."""
    rules: dict[str, Callable[..., Any]] = {
        "log": lambda a: sympy.log(sympy.Abs(a) + epsilon),
        "sqrt": lambda a: sympy.sqrt(sympy.Abs(a) + epsilon),
        # As powers: a product a·a that is not evaluated would be walked twice at every level.
        "square": lambda a: a**2,
        "aq": lambda a, b: a / sympy.sqrt(1 + b**2),
    }
    leaves = {TARGET: TARGET_SYMBOL, PREDICTION: PREDICTION_SYMBOL}
    leaves |= {token: sympy.Integer(int(value)) for token, value in CONSTANTS.items()}

    def visit(position: int, token: str, arguments: Sequence[Any]) -> Any:
        if token == "log" and epsilon == 0 and arguments[0] == 0:
            raise UndefinedLimitError
        if token in rules:
            value = rules[token](*arguments)
        elif token in OPERATORS:
            value = OPERATORS[token].value(_SYMPY, *arguments)
        else:
            value = leaves[token]
        if weights is None or position == 0:
            return value
        return sympy.Float(weights[position - 1]) * value

    with sympy.evaluate(is_readable(tokens)):
        return fold(tokens, visit)


def simplify(tokens: Tokens, weights: Sequence[float] | None = None, *, epsilon: float = EPSILON) -> Any:
    """The shortest equal form found, by number of operations; a tree too large to be read stays as it is.

    A few cheap passes, not `sympy.simplify`: that raises on sign within max, and ran for minutes on 30 nodes.
    """
    form = to_sympy(tokens, weights, epsilon=epsilon)
    if not is_readable(tokens):
        return form
    while (shorter := min((rewrite(form) for rewrite in _REWRITES), key=sympy.count_ops)) != form:
        if sympy.count_ops(shorter) >= sympy.count_ops(form):
            break
        form = shorter
    return form


def rounded(form: Any, digits: int = 4) -> Any:
    """The form with its numbers rounded to so many significant digits, whole ones as integers: for display only."""

    def shown(number: Any) -> Any:
        short = sympy.Float(number, digits)
        is_whole = float(short).is_integer() and abs(short) < 10**digits
        return sympy.Integer(int(short)) if is_whole else short

    return form.xreplace({number: shown(number) for number in form.atoms(sympy.Float)})


def formula(tokens: Tokens, weights: Sequence[float] | None = None, digits: int = 4) -> str | None:
    """Simplified text with rounded weights, without ε where there is a limit without it; None for a large tree."""
    if not is_readable(tokens):
        return None
    try:
        form = simplify(tokens, weights, epsilon=0)
    except (UndefinedLimitError, ValueError):  # SymPy raises ValueError for max and min of something undefined
        form = sympy.nan
    # log(|−1| + ε) is ε, not 0: where the limit is free of f, ε is all that the loss has to learn by.
    is_constant = PREDICTION in tokens and PREDICTION_SYMBOL not in form.free_symbols
    if is_constant or form.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        form = simplify(tokens, weights)
    return str(rounded(form, digits))


def _logarithms_of_powers(form: Any) -> Any:
    """log(b^e) as e·log(b), where that is an identity over the reals."""

    def rule(argument: Any) -> Any:
        if argument.is_Pow and argument.exp.is_real:
            if argument.base.is_nonnegative:
                return argument.exp * sympy.log(argument.base)
            if argument.exp.is_even and argument.base.is_real:
                return argument.exp * sympy.log(sympy.Abs(argument.base))
        return sympy.log(argument)

    return form.replace(sympy.log, rule)


_REWRITES = (
    _logarithms_of_powers,
    sympy.powdenest,
    sympy.powsimp,
    sympy.factor_terms,
    lambda form: sympy.factor_terms(sympy.expand_mul(form)),
)
