"""Who rose and who fell from rung to rung: the data and the drawing."""

import dataclasses
import math

import pytest

from evomal.figures.rungs import NO_RUNGS, draw_rungs, rung_steps
from evomal.runs.reading import read_runs
from tests.figures.records import record, row


def climbed(index, *costs):
    return dataclasses.replace(row(0, index, costs[-1]), rungs=tuple((1.0, cost) for cost in costs))


def test_each_step_has_those_that_were_trained_on_both_rungs(tmp_path):
    rows = [climbed(0, 0.1, 0.4, 0.3), climbed(1, 0.2, 0.5), climbed(2, 0.3, 0.6), climbed(3, 0.9)]
    data = rung_steps(read_runs([record(tmp_path, rows)]))
    first, second = data.steps
    assert (first.before, first.after) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert first.agreement == pytest.approx(1.0)
    assert (second.before, second.after) == ((0.4,), (0.3,))
    assert math.isnan(second.agreement)
    assert data.columns()["rung"] == [1, 1, 1, 2]
    figure = draw_rungs(data)
    figure.draw_without_rendering()
    assert [axes.get_title() for axes in figure.axes] == ["rung 1 to 2, rank correlation 1.00", "rung 2 to 3"]
    assert figure.axes[0].collections[0].get_offsets().tolist() == [[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]]


def test_without_rungs_a_sentence_says_so(tmp_path):
    data = rung_steps(read_runs([record(tmp_path, [row(0, 0, 1.0)])]))
    assert data.steps == ()
    figure = draw_rungs(data)
    assert figure.texts[0].get_text().replace("\n", " ") == NO_RUNGS


def test_a_front_has_candidates_of_the_longest_rung_only(tmp_path):
    from evomal.figures.front import front

    data = front(read_runs([record(tmp_path, [climbed(0, 0.1, 0.4), climbed(1, 0.2)])]))
    assert [point.value for point in data.points] == [0.4]
    assert data.unsized == 0
