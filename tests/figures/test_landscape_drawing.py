"""Landscapes as drawn: the data itself, one axis for comparable heights, and the sentence where there is nothing."""

import dataclasses

import numpy as np
import pytest

from evomal.figures.landscape import Landscape, Landscapes, draw_landscapes
from evomal.figures.style import save_figure

POSITIONS = np.linspace(-1, 1, 5)
BOWL = 1 + POSITIONS**2


def data(*heights, two_d=False, of="task", sentences=()):
    losses = tuple(Landscape(f"loss {number}", tuple(range(len(one))), one) for number, one in enumerate(heights))
    name = "squared error" if of == "task" else "training loss"
    return Landscapes("own", of, name, POSITIONS, "20 steps", "50 of 120 training rows", losses, sentences, two_d)


def texts(figure):
    return [text.get_text() for text in figure.texts]


def test_lines_are_the_means_on_one_axis():
    figure = draw_landscapes(data(np.stack([BOWL, BOWL + 1]), np.stack([2 * BOWL, 4 * BOWL])))
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), BOWL + 0.5)
    np.testing.assert_allclose(axes.lines[1].get_ydata(), 3 * BOWL)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), POSITIONS)
    assert len(axes.collections) == 2
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("position along a direction (filter norms)", "squared error")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["loss 0", "loss 1"]
    note = " ".join(figure.get_supxlabel().split())
    assert note == "own, 20 steps, 50 of 120 training rows; mean of 2 seeds, band: ±1 standard deviation"


def test_heights_of_different_losses_get_a_panel_each():
    figure = draw_landscapes(data(BOWL[None], -1000 * BOWL[None], of="training"))
    assert [axes.get_title() for axes in figure.axes] == ["loss 0", "loss 1"]
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), -1000 * BOWL)
    assert figure.axes[0].get_ylabel() == "training loss"
    assert figure.axes[0].get_ylim()[0] > 0 > figure.axes[1].get_ylim()[1]
    (alone,) = draw_landscapes(data(BOWL[None], of="training")).axes
    assert alone.get_ylabel() == "training loss"


@pytest.mark.parametrize("of", ["task", "training"])
def test_contours_have_a_panel_a_loss(of, tmp_path):
    surface = (BOWL[:, None] * BOWL)[None]
    broken = surface.copy()
    broken[0, 0, 0] = np.inf
    found = data(surface, 100 * broken, two_d=True, of=of)
    figure = draw_landscapes(found)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["loss 0", "loss 1"]
    assert len(figure.axes) - len(panels) == (1 if of == "task" else 2)  # colour bars
    assert panels[0].get_ylabel() == "second direction (filter norms)"
    assert panels[0].get_xlabel() == "first direction (filter norms)"
    assert [axes.get_ylabel() for axes in figure.axes[2:]] == (
        ["squared error"] if of == "task" else ["training loss"] * 2
    )
    assert [path.stat().st_size > 0 for path in save_figure(figure, tmp_path / "figure", found.columns())] == [True] * 4


def test_a_flat_landscape_and_one_that_is_nowhere_finite_can_be_drawn():
    flat, lost = np.ones((1, 5, 5)), np.full((1, 5, 5), np.nan)
    for heights in (flat, lost):
        draw_landscapes(data(heights, two_d=True)).draw_without_rendering()
    draw_landscapes(data(lost[:, 0])).draw_without_rendering()


def test_the_sentence_stands_where_everything_diverged():
    figure = draw_landscapes(data(sentences=("mse, seed 0: lost",)))
    assert texts(figure) == ["mse, seed 0: lost"]
    partly = dataclasses.replace(data(BOWL[None]), sentences=("mse, seed 0: lost",), row_words="120 training rows")
    note = " ".join(draw_landscapes(partly).get_supxlabel().split())
    assert note == "own, 20 steps, 120 training rows; one seed; 1 of the trainings diverged"


def test_the_legend_covers_nothing():
    figure = draw_landscapes(data(*[BOWL[None] * number for number in range(1, 9)]))
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert not any(legend.overlaps(axes.get_tightbbox()) for axes in figure.axes)
    assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
