"""Rate curves as drawn: a logarithmic axis of rates, and crosses where trainings diverged."""

import math

import numpy as np
import pytest

from evomal.figures.learning_rate import RateCurves, draw_rate_curves
from evomal.figures.style import save_figure
from tests.verdict.results import comparison, entry


def line(name, **tests):
    """The results of a loss at the rates low, middle and high; None for a training that diverged."""
    return name, tests


def data(*lines, metric="error_rate", searches=0):
    rates = {"low": 0.01, "middle": 0.1, "high": 1.0}
    return RateCurves(
        {
            rate: comparison(
                *(entry(name, "plain", rate, tests[key]) for name, tests in lines if key in tests),
                metric=metric, baseline=lines[0][0], search_seeds=tuple(range(searches)),
            )
            for key, rate in rates.items()
            if key in lines[0][1]
        }
    )  # fmt: skip


def crosses(axes):
    return [drawn for drawn in axes.lines if drawn.get_marker() == "x"]


def test_lines_are_means_over_the_rates(tmp_path):
    found = data(
        line("ce", low=[0.2, 0.4], middle=[0.1, 0.1], high=[0.5, 0.5]),
        line("mine", low=[0.1, 0.3], middle=[0.1, 0.2], high=[0.3, 0.5]),
    )
    figure = draw_rate_curves(found)
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [30, 10, 50])
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [20, 15, 40])
    assert axes.lines[0].get_xdata().tolist() == [0.01, 0.1, 1.0]
    assert axes.get_xscale() == "log"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("base learning rate", "test error rate (%)")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.01", "0.1", "1"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ce", "mine"]
    assert figure.get_supxlabel() == "own, 30 steps; 2 seeds, mean and ±1 standard deviation"
    assert crosses(axes) == []
    assert len(save_figure(figure, tmp_path / "figure", found.columns())) == 4


@pytest.mark.parametrize("low", [1.0, 0.001])
def test_diverged_points_are_crosses_at_the_top_edge(low):
    figure = draw_rate_curves(
        data(
            line("mse", low=[low, low], middle=[0.5, 0.5], high=[None, None]),
            line("mae", low=[1.0, 1.0], middle=[0.5, 0.6], high=[2.0, 2.0]),
            line("mine", low=[1.0, 1.0], middle=[0.5, None], high=[None, None]),
            metric="mse",
        )
    )
    (axes,) = figure.axes
    assert axes.get_yscale() == ("linear" if low == 1.0 else "log")
    first, second = crosses(axes)
    assert first.get_xdata().tolist() == [1.0]
    assert second.get_xdata().tolist() == [0.1, 1.0]
    heights = first.get_ydata()[0], second.get_ydata()[0]
    assert 0.85 < heights[1] < heights[0] < 1  # of the panel's height
    assert [text.get_text() for text in axes.texts] == ["1/2"]
    assert math.isnan(axes.lines[0].get_ydata()[2])
    figure.draw_without_rendering()
    top = axes.transAxes.inverted().transform(axes.transData.transform([(1.0, 2.0)]))[0][1]
    assert top < heights[1]  # nothing lies among the crosses
    assert "crosses: trainings that diverged, all or the given number" in " ".join(figure.get_supxlabel().split())


def test_a_figure_of_crosses_alone_can_be_drawn():
    figure = draw_rate_curves(data(line("mse", low=[None, None])))
    assert len(crosses(figure.axes[0])) == 1
    figure.draw_without_rendering()


def test_searches_are_said():
    note = " ".join(draw_rate_curves(data(line("mse", low=[1.0, 2.0]), searches=5)).get_supxlabel().split())
    assert note == (
        "own, 30 steps; mean of 2 seeds (methods: of 5 searches, each by its mean), band: ±1 standard deviation"
    )


def test_the_sentence_stands_where_there_is_nothing():
    figure = draw_rate_curves(RateCurves({}, "not finished"))
    assert [text.get_text() for text in figure.texts] == ["not finished"]
