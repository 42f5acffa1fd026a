"""Scans of functions whose lowest value, gradient or fall is known."""

import numpy as np
import pytest
import torch

from evomal.figures.data import single_precision, with_gradient
from evomal.figures.loss_properties import FAR_PLACES, WIDE, Line, scanned

PLACES = np.linspace(-3, 3, 201)


def scan_of(function, goal=0.0):
    return scanned(Line("x", function, goal), PLACES)


def test_values_come_with_derivatives_even_where_gradients_are_off():
    with torch.no_grad():
        values, gradients = with_gradient(lambda x: x**3, np.array([-1.0, 2.0]))
    assert values.tolist() == [-1, 8]
    assert gradients.tolist() == [3, 12]


@pytest.mark.parametrize("bottom", [2.3456, -40.0, 700.0])
def test_the_lowest_value_is_found_between_the_places_and_far_beyond_them(bottom):
    scan = scan_of(lambda x: (x - bottom) ** 2 + 1)
    assert scan.lowest_at == pytest.approx(bottom, abs=1e-3)
    assert scan.lowest == pytest.approx(1, abs=1e-6)
    assert scan.fall is None
    assert not scan.leaves_the_range


@pytest.mark.parametrize(("goal", "found"), [(0.0, 0.0), (1.5, 1.5), (np.inf, WIDE), (-np.inf, -WIDE)])
def test_where_all_is_equally_low_the_lowest_is_at_the_goal(goal, found):
    scan = scan_of(lambda x: 0 * x + 2, goal)
    assert (scan.lowest_at, scan.lowest) == (found, 2)
    assert scan.leaves_the_range is (abs(found) == WIDE)


@pytest.mark.parametrize(
    ("function", "rungs"),
    [
        (lambda x: -x, FAR_PLACES),
        (lambda x: x, -FAR_PLACES),
        (lambda x: -torch.log1p(x.abs()), -FAR_PLACES),
        (lambda x: -torch.sqrt(x), FAR_PLACES),  # not a number on the other side
        (lambda x: -torch.exp(x), FAR_PLACES[:3]),  # minus infinity from there on
    ],
)
def test_a_fall_without_end_is_shown_rung_by_rung(function, rungs):
    scan = scan_of(function)
    assert scan.fall is not None
    assert scan.fall[0].tolist() == rungs.tolist()
    np.testing.assert_array_equal(scan.fall[1], function(torch.tensor(rungs)).numpy())
    assert scan.leaves_the_range


@pytest.mark.parametrize("function", [torch.tanh, lambda x: 1 / (1 + x**2), lambda x: 1 / torch.log(2 + x.abs())])
def test_a_fall_to_a_limit_is_none(function):
    assert scan_of(function).fall is None


def test_what_overflows_in_single_precision_is_missing():
    assert single_precision(np.array([1.0, 3.4e38, -3.5e38, np.inf]))[:2].tolist() == [1, 3.4e38]
    scan = scan_of(lambda x: torch.exp(100 * x))
    np.testing.assert_array_equal(np.isnan(scan.values), PLACES > 0.8872)  # ln(3.4028e38) = 88.72
    assert scan.spread == pytest.approx(np.exp(87))  # at 0.87, the last place before


def test_the_usual_gradient_passes_over_a_spike():
    scan = scan_of(lambda x: torch.where((x - 3).abs() < 0.01, 1e6 * x, 2 * x))
    assert np.nanmax(scan.gradients) == 1e6
    assert scan.usual_gradient == 2


def test_a_line_that_is_finite_nowhere_has_no_lowest_value():
    scan = scan_of(lambda x: x * torch.nan)
    assert np.isnan([scan.lowest_at, scan.lowest]).all()
    assert (scan.spread, scan.usual_gradient, scan.fall) == (0, 0, None)
