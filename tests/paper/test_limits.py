"""Limits in bounded time."""

import sys
import threading
import time

import pytest
import sympy

from evomal.paper.limits import limit, limit_of_numbers, numbers, put_in, within_time

x = sympy.Symbol("x", positive=True)


def turning(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum([1, 2])
        sympy.Integer(2).doit()


def test_work_without_end_is_given_up_in_every_thread():
    found = []

    def give_up():
        began = time.monotonic()
        found.append((within_time(lambda: turning(30), 0.1), time.monotonic() - began, sys.getprofile()))

    thread = threading.Thread(target=give_up)
    thread.start()
    thread.join()
    give_up()
    assert len(found) == 2
    for result, seconds, profile in found:
        assert (result, profile) == (None, None)
        assert seconds < 5


def test_work_that_ends_returns_what_it_finds_and_other_errors_are_not_hidden():
    assert within_time(lambda: 3) == 3
    with pytest.raises(KeyError):
        within_time(lambda: {}[1])


def test_substitution_and_limit():
    assert put_in(x**2 + 1, x, 2) == 5
    assert put_in(1 / x, x, 0) == sympy.zoo
    assert put_in(sympy.sin(x) / x, x, 0) is None
    assert limit(sympy.sin(x) / x, x, 0, "+") == 1
    assert limit(sympy.log(x), x, 0, "+") == -sympy.oo
    assert limit(sum(sympy.log(x + number) for number in range(100)), x, 0, "+") is None


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda d: 3 + d, 3),
        (lambda d: -d, 0),
        (lambda d: 5 + d ** numbers.mpf("0.1"), 5),
        (lambda d: numbers.mpf(7), 7),
        (lambda d: 1 / numbers.log(d), 0),
        (lambda d: 2 - 1 / numbers.log(d), 2),
        (lambda d: numbers.log(d), -numbers.inf),
        (lambda d: numbers.log(-numbers.log(d)), numbers.inf),
        (lambda d: 1 / d, numbers.inf),
        (lambda d: -(d ** numbers.mpf("-0.001")), -numbers.inf),
    ],
)
def test_three_values_tell_where_they_tend(function, expected):
    found = limit_of_numbers([function(numbers.mpf(10) ** -power) for power in (20, 40, 80)])
    assert float(found) == pytest.approx(float(expected), abs=0.02)
