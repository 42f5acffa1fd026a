"""Axes of records, with the texts and sentences that stand in figures."""

import numpy as np
import pytest

from evomal.figures.style import (
    drawable,
    figure_style,
    figure_text,
    metric_axis,
    new_figure,
    sentence_figure,
    whole_number_axis,
)


@pytest.fixture
def axes():
    with figure_style():
        return new_figure().subplots()


@pytest.mark.parametrize(
    ("values", "higher_is_better", "limits"),
    [
        ([1.0, 2.0, np.nan], False, (0.95, 2.05)),
        ([1.0, 2.0], True, (0.95, 2.05)),
        ([3.0], False, (2.85, 3.15)),
        ([0.0], True, (-0.05, 0.05)),
        ([*np.linspace(0, 1, 19), 1000.0], False, (-0.0475, 0.9975)),
        ([*np.linspace(0, 1, 19), -1000.0], False, (-1050.05, 51.05)),  # the best is never cut
        ([*np.linspace(0, 1, 19), -1000.0], True, (0.0025, 1.0475)),
    ],
)
def test_the_worst_are_cut_off_where_they_lie_far_out(axes, values, higher_is_better, limits):
    assert metric_axis(axes, "mse", values, higher_is_better=higher_is_better) == pytest.approx(limits)
    assert axes.get_ylim() == pytest.approx(limits)


def test_without_a_value_the_axis_stays_as_it_is(axes):
    assert metric_axis(axes, "mse", [np.nan], higher_is_better=False) == (0, 1)


def test_values_beyond_computing_are_brought_nearer():
    assert drawable([1.0, 1e308, -np.inf]).tolist() == [1.0, 1e100, -1e100]
    assert np.isnan(drawable([np.nan])).all()


def test_counts_have_whole_ticks(axes):
    axes.plot([4], [1])
    whole_number_axis(axes)
    assert axes.get_xlim() == (3.5, 4.5)
    assert [tick for tick in axes.get_xticks() if 3.5 <= tick <= 4.5] == [4]


def test_labels_say_which_way_is_better(axes):
    metric_axis(axes, "error_rate", [1.0], higher_is_better=False)
    assert axes.get_ylabel() == "validation error rate\n(lower is better)"
    metric_axis(axes, "$" * 30, [1.0], higher_is_better=True)
    assert axes.get_ylabel() == "validation " + r"\$" * 23 + "…\n(higher is better)"


def test_texts_of_strangers_are_no_mathematics_and_have_glyphs(axes):
    assert figure_text("a$b^$ é α…\x1b漢\n") == r"a\$b^\$ é α…\x1b?\n"
    axes.set_title(figure_text("".join(map(chr, range(1, 0x600)))))
    axes.figure.draw_without_rendering()  # a missing glyph would be a warning, and so an error


@pytest.mark.parametrize("width", ["column", "page"])
def test_a_sentence_stands_in_for_a_figure(width):
    sentence = "nothing was trained in these runs, though $there$ were " + "so very many of them " * 9
    figure = sentence_figure(sentence.strip(), width)
    figure.draw_without_rendering()
    (text,) = figure.texts
    assert " ".join(text.get_text().split("\n")) == sentence.strip().replace("$", r"\$")
    extent = text.get_window_extent()
    assert figure.bbox.x0 <= extent.x0 < extent.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= extent.y0 < extent.y1 <= figure.bbox.y1
