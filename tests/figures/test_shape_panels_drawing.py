"""Losses side by side, as drawn."""

import numpy as np
import pytest

from evomal.figures.shape_panels import draw_shape_panels, draw_surfaces, loss_surfaces, shape_panels
from evomal.figures.style import inline_svg
from evomal.losses import ExpressionLoss, named_loss
from evomal.units import Units


def lines_of(axes) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_ydata() for line in axes.lines if not line.get_label().startswith("_")}


def test_a_family_has_a_row_of_four_panels():
    shapes = shape_panels({}, ["sparse-label-smoothing"], points=31)
    axes = draw_shape_panels(shapes).axes
    assert [panel.get_title() for panel in axes] == [
        "target: loss", "non-target: loss", "target: gradient by $f$", "non-target: gradient by $f$"
    ]  # fmt: skip
    (row,) = shapes.rows
    drawn = lines_of(axes[2])
    assert list(drawn) == ["ξ = 0", "ξ = 0.05", "ξ = 0.1", "ξ = 0.2", "ξ = 0.4"]
    np.testing.assert_array_equal(drawn["ξ = 0.2"], row.panels[0].curves[3].gradient)
    np.testing.assert_array_equal(lines_of(axes[1])["ξ = 0.2"], np.zeros(31))
    assert axes[0].get_xlabel() == "output $f$"
    assert [note.get_text() for note in axes[0].texts] == ["sparse-label-smoothing"]
    styles = {(line.get_color(), str(line.get_linestyle())) for line in axes[0].lines[:5]}
    assert len(styles) == 5


def test_a_panel_without_anything_to_see_says_so():
    axes = draw_shape_panels(shape_panels({}, ["focal", "label-smoothing"], points=31)).axes
    said = [[note.get_text() for note in panel.texts if note.get_text() == "zero everywhere"] for panel in axes]
    assert [len(notes) for notes in said] == [0, 1, 0, 1, 0, 0, 0, 0]
    assert axes[1].get_yticks().tolist() == [0]


def test_a_loss_stands_beside_the_task_loss_below_it():
    shapes = shape_panels({"focal": named_loss("focal"), "ce": named_loss("ce")}, points=11)
    axes = draw_shape_panels(shapes).axes
    assert len(axes) == 8
    assert list(lines_of(axes[0])) == ["this loss", "cross-entropy"]
    assert axes[0].lines[0].get_zorder() > axes[0].lines[1].get_zorder()


def test_regression_has_two_panels_and_three_targets_where_they_differ():
    shapes = shape_panels({"mine": ExpressionLoss("abs(mul(y, sub(f, y)))", kind="regression")}, points=11)
    value, gradient = draw_shape_panels(shapes).axes
    assert (value.get_title(), gradient.get_title()) == ("loss", "gradient by $f$")
    assert list(lines_of(value)) == ["$y$ = −1", "$y$ = 0", "$y$ = 1", "squared error"]
    assert value.get_xlabel() == "error $f - y$ (units of $y$)"
    learned = {"a": named_loss("mse"), "b": named_loss("mae").in_units(Units(152.1, 77.0))}
    assert draw_shape_panels(shape_panels(learned)).axes[-1].get_xlabel() == "error $f - y$ (standardised)"
    surface = draw_surfaces(loss_surfaces(learned, points=5)).axes[0]
    assert (surface.get_xlabel(), surface.get_ylabel()) == ("target $y$ (standardised)", "output $f$ (standardised)")


def test_a_spike_does_not_flatten_the_rest():
    gradient = draw_shape_panels(shape_panels({}, ["absolute-ce"])).axes[2]
    assert -30 < gradient.get_ylim()[0] < -5


@pytest.mark.parametrize("name", ["$x_{1}$", "a\x1b[2Jb\nc", "x" * 500, "$\\frac{"])
def test_strange_names_can_be_drawn(name):
    for figure in (
        draw_shape_panels(shape_panels({name: named_loss("mse")}, points=5)),
        draw_surfaces(loss_surfaces({name: named_loss("mse")}, points=5)),
    ):
        assert inline_svg(figure, "losses").startswith("<svg")


def test_titles_and_legends_stay_within_the_figure():
    shapes = shape_panels({"focal": named_loss("focal")}, ["focal-sparse"], points=11)
    figure = draw_shape_panels(shapes)
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert all(figure.bbox.y1 >= note.get_window_extent().y1 for note in axes.texts)
        if axes.get_legend() is not None:
            assert axes.get_legend().get_window_extent().x1 <= figure.bbox.x1
    assert figure.get_size_inches()[0] == 7


def test_surfaces_have_a_panel_each_with_target_across_and_output_upwards():
    data = loss_surfaces({name: named_loss(name) for name in ("mse", "mae", "huber")}, points=9)
    figure = draw_surfaces(data)
    panels = figure.axes[:3]
    assert [axes.get_title(loc="left") for axes in panels] == ["mse", "mae", "huber"]
    assert (panels[0].get_xlabel(), panels[0].get_ylabel()) == ("target $y$", "output $f$")
    assert [axes.get_ylabel() for axes in figure.axes[3:]] == ["loss"] * 3
    assert figure.axes[3].get_ylim() == (0, 36)


def test_a_surface_that_is_nowhere_finite_says_so():
    overflowing = "square(" * 9 + "add(sub(f, y), log(sub(1, 1)))" + ")" * 9
    data = loss_surfaces({"mine": ExpressionLoss(overflowing, kind="regression")}, points=5)
    figure = draw_surfaces(data)
    assert [text.get_text() for text in figure.axes[0].texts] == ["nowhere finite"]


def test_without_losses_the_figure_says_so():
    for figure in (draw_shape_panels(shape_panels({})), draw_surfaces(loss_surfaces({}))):
        assert [text.get_text() for text in figure.texts] == ["there is no loss to draw"]
