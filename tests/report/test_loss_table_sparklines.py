"""Sparklines: points where the values are."""

import re

import numpy as np

from evomal.report.loss_table import sparkline
from tests.report.cards import HOSTILE, Tags

POSITIONS = np.linspace(0, 1, 5)


def lines_of(svg):
    found = re.findall(r'points="([^"]*)"', svg)
    return [[tuple(map(float, point.split(","))) for point in points.split()] for points in found]


def test_a_curve_goes_from_edge_to_edge_and_up_where_it_rises():
    (line,) = lines_of(sparkline(POSITIONS, [np.array([0.0, 1.0, 2.0, 3.0, 4.0])], "rising"))
    assert line == [(3.0, 33.0), (31.5, 25.5), (60.0, 18.0), (88.5, 10.5), (117.0, 3.0)]


def test_curves_share_a_scale():
    first, second = lines_of(sparkline(POSITIONS, [np.zeros(5), np.full(5, 2.0)], "two"))
    assert {height for _, height in first} == {33.0}
    assert {height for _, height in second} == {3.0}


def test_a_flat_curve_lies_in_the_middle_and_nothing_is_an_empty_picture():
    (line,) = lines_of(sparkline(POSITIONS, [np.full(5, 7.0)], "flat"))
    assert {height for _, height in line} == {18.0}
    assert lines_of(sparkline(POSITIONS, [np.full(5, np.nan)], "nothing")) == []
    assert lines_of(sparkline(POSITIONS, [], "nothing")) == []


def test_a_curve_is_broken_where_it_is_not_finite():
    lines = lines_of(sparkline(POSITIONS, [np.array([0.0, 1.0, np.nan, np.inf, 2.0])], "broken"))
    assert [len(line) for line in lines] == [2, 1]


def test_a_value_far_out_stays_at_the_edge():
    values = np.append(np.linspace(0, 1, 40), 1e30)
    (line,) = lines_of(sparkline(np.linspace(0, 1, 41), [values], "far"))
    heights = [height for _, height in line]
    assert heights[-1] == 3.0
    assert 15 < heights[20] < 21


def test_the_description_is_escaped():
    page = Tags(sparkline(POSITIONS, [np.zeros(5)], HOSTILE))
    assert [tag for tag, _ in page.elements] == ["svg", "polyline"]
    assert page.elements[0][1]["role"] == "img"
    assert set(page.elements[0][1]) == {"role", "aria-label", "viewbox", "preserveaspectratio"}
