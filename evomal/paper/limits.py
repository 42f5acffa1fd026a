"""A loss close to one place: its formula with every sign settled, its value with its slope in many digits.

|a|, sign, min and max are pieces of smooth functions, and which piece holds is seen from the values at a few places.
What is left is smooth, so that SymPy only ever differentiates sums, products, powers, logarithms and tanh. At a tie the
rules are those of torch: sign(0) = 0, and min and max share the derivative by half.
"""

import inspect
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType, SimpleNamespace
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy

from evomal.expression import OPERATORS, Expression
from evomal.expression.operators import CONSTANTS, PREDICTION

DIGITS = 800
_CANCELLED = 30  # digits that may differ between two sums that are equal
_SATURATED = 10**6  # of tanh, exp: beyond it there is nothing left to see in so many digits

numbers: Any = mpmath.MPContext()
"""Arithmetic of its own, so that nobody else's precision changes."""
numbers.dps = DIGITS


@dataclass(frozen=True)
class Germ:
    """A function of f near a place."""

    form: Any
    """In SymPy's symbols; None where nobody wants it."""
    values: tuple[Any, ...]
    """At a few places, each nearer than the one before."""
    slopes: tuple[Any, ...]
    """Its derivatives by f there."""

    @property
    def sign(self) -> int:
        """Of the value at the nearest place."""
        return int(numbers.sign(self.values[-1]))

    def __add__(self, other: "Germ | float") -> "Germ":
        other = self.beside(other)
        return Germ(
            _joined(lambda a, b: a + b, self.form, other.form),
            tuple(map(_sum, self.values, other.values)),
            tuple(map(_sum, self.slopes, other.slopes)),
        )

    def __mul__(self, other: "Germ | float") -> "Germ":
        other = self.beside(other)
        slopes = (
            _sum(da * b, a * db)
            for a, da, b, db in zip(self.values, self.slopes, other.values, other.slopes, strict=True)
        )
        values = (a * b for a, b in zip(self.values, other.values, strict=True))
        return Germ(_joined(lambda a, b: a * b, self.form, other.form), tuple(values), tuple(slopes))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "Germ":
        return self * -1

    def __sub__(self, other: "Germ | float") -> "Germ":
        return self + -self.beside(other)

    def __rsub__(self, other: float) -> "Germ":
        return -self + other

    def __truediv__(self, other: "Germ | float") -> "Germ":
        return self * self.beside(other).through(lambda b: 1 / b, lambda b: 1 / b, lambda b: -1 / b**2)

    def __rtruediv__(self, other: float) -> "Germ":
        return self.beside(other) / self

    def __pow__(self, power: "Germ | int") -> "Germ":
        """To the power of a number that does not depend on f."""
        exponent = self.beside(power)
        (number, *_) = exponent.values
        if number == 0:
            return self.beside(1)
        written = exponent.form
        return self.through(lambda a: a**written, lambda a: a**number, lambda a: number * a ** (number - 1))

    def beside(self, other: "Germ | float") -> "Germ":
        """A germ as it is, a number as a germ at the same places."""
        if isinstance(other, Germ):
            return other
        return constant(other, len(self.values), written=self.form is not None)

    def through(
        self, written: Callable[[Any], Any], value: Callable[[Any], Any], derivative: Callable[[Any], Any]
    ) -> "Germ":
        """A smooth function of this one."""
        return Germ(
            None if self.form is None else written(self.form),
            tuple(map(value, self.values)),
            # Where nothing moves nothing comes of it, though the derivative may be infinite.
            tuple(derivative(a) * da if da else da for a, da in zip(self.values, self.slopes, strict=True)),
        )


def constant(number: float, places: int, *, written: bool = True, symbol: Any = None) -> Germ:
    """A number at so many places, under the name of a symbol where it has one."""
    form = (_written(number) if symbol is None else symbol) if written else None
    return Germ(form, (numbers.mpf(number),) * places, (numbers.mpf(0),) * places)


def tree_germ(
    expression: Expression, weights: Sequence[float] | None, prediction: Germ, target: int, epsilon: Germ
) -> Germ:
    """The tree at that target, where ε has values and perhaps a symbol."""
    rules = {
        "log": lambda a: functions.log(functions.abs(a) + epsilon),
        "sqrt": lambda a: functions.sqrt(functions.abs(a) + epsilon),
    }

    def visit(position: int, token: str, arguments: Sequence[Germ]) -> Germ:
        germ: Germ
        if token in rules:
            germ = rules[token](*arguments)
        elif token in OPERATORS:
            germ = OPERATORS[token].value(functions, *arguments)
        else:
            germ = prediction if token == PREDICTION else prediction.beside(CONSTANTS.get(token, target))
        return germ * weights[position - 1] if weights is not None and position else germ

    return expression.fold(visit)


def _sum(a: Any, b: Any) -> Any:
    """a + b, and zero itself where the two cancel but for rounding: a sign is taken of it later."""
    total = a + b
    is_rounding = abs(total) < numbers.mpf(10) ** (_CANCELLED - DIGITS) * max(abs(a), abs(b))
    return numbers.mpf(0) if is_rounding else total


def _joined(combine: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    return None if a is None or b is None else combine(a, b)


def _written(number: float) -> Any:
    return sympy.Integer(int(number)) if float(number).is_integer() else sympy.Float(number)


def _tanh(a: Any) -> Any:
    return numbers.sign(a) if abs(a) > _SATURATED else numbers.tanh(a)


def _exp(a: Any) -> Any:
    return numbers.exp(max(-_SATURATED, min(a, _SATURATED)))


def _softplus(a: Germ) -> Germ:
    return a.through(
        lambda form: sympy.log(1 + sympy.exp(form)),
        lambda x: x if x > _SATURATED else numbers.log1p(_exp(x)),
        lambda x: 1 / (1 + _exp(-x)),
    )


def _minimum(a: Germ, b: Germ) -> Germ:
    order = (a - b).sign
    return (a + b) / 2 if order == 0 else (a if order < 0 else b)


functions = SimpleNamespace(
    abs=lambda a: a * a.sign,
    sign=lambda a: a.beside(a.sign),
    sqrt=lambda a: a.through(sympy.sqrt, numbers.sqrt, lambda x: 1 / (2 * numbers.sqrt(x))),
    log=lambda a: a.through(sympy.log, numbers.log, lambda x: 1 / x),
    tanh=lambda a: a.through(sympy.tanh, _tanh, lambda x: 1 - _tanh(x) ** 2),
    minimum=_minimum,
    maximum=lambda a, b: -_minimum(-a, -b),
    softplus=_softplus,
)
"""What the operator table is written over, for germs."""


_SECONDS = 1.0
_TOO_LONG = 150  # operations
_KEEPS_ON = 0.75
_FAST = 1e-3
_SETTLED = 1e-30


class _TimeUpError(BaseException):
    """Not an Exception: SymPy catches those on its way."""


def within_time(work: Callable[[], Any], seconds: float = _SECONDS) -> Any:
    """What the work returns, or None where it takes longer or SymPy cannot do it.

    A signal would do in the main thread only, so the time is looked at whenever a function is called. It is the
    thread's own computing time: what is found should not depend on what else the machine does.
    """
    end, before = time.thread_time() + seconds, sys.getprofile()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        # Python reports an error that ends a generator's clearing up, and goes on.
        if event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR and time.thread_time() > end:
            raise _TimeUpError

    sys.setprofile(look)
    try:
        return work()
    except (_TimeUpError, ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError):
        return None
    finally:
        sys.setprofile(before)


def put_in(form: Any, symbol: Any, place: Any) -> Any:
    """The form at a place, infinite where it has a pole there; None where that says nothing, as 0/0 does."""
    found = within_time(lambda: form.subs(symbol, place))
    return None if found is None or found.has(sympy.nan, sympy.AccumBounds) else found


def limit(form: Any, symbol: Any, place: Any, side: str) -> Any:
    """SymPy's limit from one side ("+" from above), or None."""
    if sympy.count_ops(form) > _TOO_LONG:
        return None
    found = within_time(lambda: sympy.limit(form, symbol, place, dir=side))
    is_found = found is not None and not found.has(sympy.nan, sympy.zoo, sympy.AccumBounds, sympy.Limit, symbol)
    return found if is_found else None


def is_infinite(form: Any) -> bool:
    """Whether an infinity is in it, of whatever sign."""
    return bool(form.has(sympy.oo, -sympy.oo, sympy.zoo))


def limit_of_numbers(values: Sequence[Any]) -> Any:
    """Where three values tend that were taken at distances d, d² and d⁴ from a place.

    What grows without bound, even as slowly as log(-log(d)), then grows by no less from each to the next, and what
    tends to a limit comes nearer by half each time, even as slowly as 1/log(d).
    """
    first, second = values[1] - values[0], values[2] - values[1]
    if abs(values[2]) < _FAST * abs(values[1]) < _FAST**2 * abs(values[0]):
        return numbers.mpf(0)
    if abs(second) <= max(_FAST * abs(first), _SETTLED * abs(values[2])):
        return values[2]
    if abs(second) >= _KEEPS_ON * abs(first):
        return numbers.inf * numbers.sign(second)
    return values[2] - second**2 / (second - first)
