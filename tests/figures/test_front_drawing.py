"""Fronts as they are drawn."""

import pytest

from evomal.figures.front import draw_front, front
from evomal.figures.style import BLUE
from evomal.runs.reading import read_runs
from tests.figures.records import record, row

SIZES = {3: "sub(f, y)", 4: "abs(sub(f, y))", 5: "abs(abs(sub(f, y)))"}


def drawn(folder):
    figure = draw_front(front(read_runs([folder])))
    figure.draw_without_rendering()
    return figure


def test_the_front_is_drawn_as_steps_up_to_the_largest(tmp_path):
    rows = [row(0, 0, 3.0, genome=SIZES[3]), row(0, 1, 1.0, genome=SIZES[4]), row(0, 2, 2.0, genome=SIZES[5])]
    figure = drawn(record(tmp_path, rows))
    (axes,) = figure.axes
    steps, dots = (line for line in axes.lines if line.get_color() == BLUE)
    assert steps.get_xydata().tolist() == [[3, 3], [4, 1], [5, 1]]
    assert steps.get_drawstyle() == "steps-post"
    assert dots.get_xydata().tolist() == [[3, 3], [4, 1]]
    assert axes.collections[0].get_offsets().tolist() == [[5, 2]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("size (nodes)", "validation mse\n(lower is better)")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["trained (3)", "front (2)"]
    assert not legend.get_window_extent().overlaps(axes.get_tightbbox())
    assert figure.bbox.x0 <= legend.get_window_extent().x0 < legend.get_window_extent().x1 <= figure.bbox.x1


def test_losses_far_out_are_marked_at_the_edge(tmp_path):
    rows = [row(0, index, 1.0 + index / 20, genome=SIZES[4]) for index in range(19)]
    figure = drawn(record(tmp_path, [*rows, row(0, 19, 1e9, genome=SIZES[5])]))
    (axes,) = figure.axes
    marks = next(line for line in axes.lines if line.get_marker() == "^")
    # The axis ends a twentieth beyond the ninth decile, 1.855, and so before the last of the even ones, 1.9.
    assert axes.get_ylim()[1] == pytest.approx(1.855 + 0.855 / 20)
    assert marks.get_xydata().tolist() == [[4, axes.get_ylim()[1]], [5, axes.get_ylim()[1]]]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["trained (20)", "front (1)", "beyond the axis (2)"]
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1


def test_where_more_is_better_the_bad_are_below(tmp_path):
    rows = [row(0, index, -0.5 - index / 100, genome=SIZES[4]) for index in range(19)]
    (axes,) = drawn(record(tmp_path, [*rows, row(0, 19, 1e9, genome=SIZES[5])], metric="r2")).axes
    marks = next(line for line in axes.lines if line.get_marker() == "v")
    assert marks.get_xydata().tolist() == [[4, axes.get_ylim()[0]], [5, axes.get_ylim()[0]]]


def test_one_loss_and_odd_names_are_drawn(tmp_path):
    (axes,) = drawn(record(tmp_path, [row(0, 0, 0.0, genome="network")], method="$m$", task="漢" * 90)).axes
    assert axes.get_xlabel() == "size"
    assert axes.get_title().startswith(r"\$m\$, ???")
    assert axes.get_ylim() == (-0.05, 0.05)


def test_nothing_to_draw_is_a_sentence(tmp_path):
    assert [text.get_text() for text in drawn(record(tmp_path, [row(0, 0)])).texts] == [
        "nothing was trained in this run"
    ]
