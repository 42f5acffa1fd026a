"""Limits that are found, or given up, in bounded time."""

import inspect
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import sympy

from evomal.analysis.germs import numbers

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
