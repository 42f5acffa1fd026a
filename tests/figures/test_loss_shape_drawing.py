"""Figures: what is drawn, that nothing covers it, and that equal figures are equal files."""

import csv
import subprocess
import sys

import numpy as np
import pytest

from evomal.errors import InputError
from evomal.figures.loss_shape import loss_shape
from evomal.figures.style import GREY, INK, inline_svg
from evomal.losses import ExpressionLoss, named_loss
from evomal.report import draw_loss, figure_style, new_figure, save_figure
from evomal.units import Units


def drawn(axes) -> dict[str, np.ndarray]:
    """The lines of a panel by their names, the zero line aside."""
    return {line.get_label(): line.get_ydata() for line in axes.lines if not line.get_label().startswith("_")}


def legend_of(figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_value_and_gradient_stand_beside_the_task_loss():
    shape = loss_shape(named_loss("focal"))
    values, gradients = draw_loss(shape).axes
    assert list(drawn(values)) == list(drawn(gradients)) == ["this loss", "cross-entropy"]
    np.testing.assert_array_equal(drawn(values)["this loss"], shape.curves[0].value)
    np.testing.assert_array_equal(drawn(gradients)["this loss"], shape.curves[0].gradient)
    np.testing.assert_array_equal(drawn(gradients)["cross-entropy"], shape.references[0].gradient)
    assert values.get_xlabel() == gradients.get_xlabel() == "probability $p$ of the target class"
    assert (values.get_ylabel(), gradients.get_ylabel()) == ("loss of a sample", "gradient by the target's logit")
    assert values.lines[1].get_color() == GREY
    assert values.lines[1].get_zorder() < values.lines[0].get_zorder()
    assert values.get_xlim() == (0, 1)


def test_curves_of_regression_are_drawn_apart_only_where_they_differ():
    together = draw_loss(loss_shape(named_loss("mae")))
    assert legend_of(together) == ["this loss, any $y$", "squared error"]
    apart = draw_loss(loss_shape(ExpressionLoss("abs(mul(y, sub(f, y)))", kind="regression")))
    assert legend_of(apart) == [
        "this loss, $y$ = −1",
        "this loss, $y$ = 0",
        "this loss, $y$ = 1",
        "squared error",
    ]
    styles = {(line.get_color(), str(line.get_linestyle())) for line in apart.axes[0].lines[:4]}
    assert len({colour for colour, _ in styles}) == 4
    assert apart.axes[0].get_xlabel() == "error $f - y$ (units of $y$)"
    learned = draw_loss(loss_shape(named_loss("mae").in_units(Units(152.1, 77.0))))
    assert learned.axes[0].get_xlabel() == "error $f - y$ (standardised)"
    assert learned.axes[1].get_ylabel() == "gradient by $f$ (standardised)"
    plain = loss_shape(named_loss("mae"))
    np.testing.assert_array_equal(drawn(learned.axes[0])["this loss, any $y$"], plain.curves[0].value)
    assert apart.axes[1].get_ylabel() == "gradient by $f$ (per unit of $y$)"


def test_a_label_has_a_curve_for_either_target():
    figure = draw_loss(loss_shape(named_loss("focal", kind="multilabel")))
    of_both = ["this loss", "cross-entropy"]
    assert legend_of(figure) == [f"{name}, $y$ = {y}" for name in of_both for y in (1, 0)]


def test_a_task_loss_of_another_scale_is_drawn_times_a_power_of_ten():
    alike = loss_shape(ExpressionLoss("square(sub(f, y))", [3, 1, 1], kind="regression"))
    assert legend_of(draw_loss(alike)) == ["this loss, any $y$", "squared error"]
    shape = loss_shape(ExpressionLoss("square(square(sub(f, y)))", [50, 1, 1, 1], kind="regression"))
    values, gradients = (drawn(axes) for axes in draw_loss(shape).axes)
    assert list(values) == ["this loss, any $y$", "squared error × $10^{4}$"]
    np.testing.assert_allclose(values["squared error × $10^{4}$"], 1e4 * shape.positions**2)
    np.testing.assert_allclose(gradients["squared error × $10^{4}$"], 2e4 * shape.positions)


def test_a_loss_far_from_zero_is_moved_there_and_says_so():
    shape = loss_shape(ExpressionLoss("abs(log(mul(y, f)))"))
    figure = draw_loss(shape)
    # Nine classes of y = 0 cost |log ε| = 16.118 each.
    assert legend_of(figure) == ["this loss − 145.1", "target's output", "another output − 16.12", "cross-entropy"]
    np.testing.assert_allclose(drawn(figure.axes[0])["this loss − 145.1"], -np.log(shape.positions / 0.999), atol=1e-4)
    assert list(drawn(figure.axes[1])) == ["this loss", "cross-entropy"]


def test_a_spike_does_not_flatten_the_rest():
    steep = loss_shape(ExpressionLoss("log(sub(f, y))", kind="regression"), points=2001)
    low, high = draw_loss(steep).axes[1].get_ylim()
    assert np.abs(steep.curves[0].gradient).max() > 300
    assert -60 < low < -3 < 3 < high < 60


@pytest.mark.parametrize(
    "expression",
    ["square(" * 9 + "sub(f, y)" + ")" * 9, "square(" * 6 + "add(log(sub(1, 1)), tanh(mul(f, y)))" + ")" * 6],
    ids=["partly", "nowhere"],
)
def test_losses_that_are_not_finite_are_drawn_where_they_are(expression):
    figure = draw_loss(loss_shape(ExpressionLoss(expression, kind="regression")))
    assert inline_svg(figure, "a loss").startswith('<svg role="img" aria-label="a loss"')
    assert np.isfinite(figure.axes[0].get_ylim()).all()


def test_the_legend_covers_nothing():
    for loss in (ExpressionLoss("mul(y, f)"), named_loss("focal", kind="multilabel"), named_loss("mse")):
        figure = draw_loss(loss_shape(loss, points=11))
        figure.draw_without_rendering()
        legend = figure.legends[0].get_window_extent()
        assert not any(legend.overlaps(axes.get_tightbbox()) for axes in figure.axes)
        assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1


def test_files_are_the_same_each_time_and_carry_no_date(tmp_path):
    shape = loss_shape(named_loss("huber"), points=21)
    first = save_figure(draw_loss(shape), tmp_path / "one.card", shape.columns())
    second = save_figure(draw_loss(shape), tmp_path / "two", shape.columns())
    assert [path.name for path in first] == ["one.card.svg", "one.card.pdf", "one.card.png", "one.card.csv"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert b"Date" not in one.read_bytes()
    assert b"<text" not in first[0].read_bytes()  # letters are paths
    with first[3].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["f - y"]) for row in rows] == shape.positions.tolist()
    assert [float(row["y = 1: gradient"]) for row in rows] == shape.curves[2].gradient.tolist()


def test_a_missing_number_is_an_empty_cell_and_columns_must_be_equally_long(tmp_path):
    save_figure(new_figure(), tmp_path / "figure", {"a": [1, 2.5], "b, c": [float("nan"), "x"]})
    assert (tmp_path / "figure.csv").read_text() == 'a,"b, c"\n1,\n2.5,x\n'
    with pytest.raises(InputError) as refusal:
        save_figure(new_figure(), tmp_path / "other", {"a": [1], "b": [1, 2]})
    assert str(refusal.value) == "the columns of a figure's data must be of one length but have 'a' 1, 'b' 2"


def test_figures_are_a_column_or_a_page_wide():
    assert new_figure("column", 2).get_size_inches().tolist() == [3.4, 2]
    assert new_figure("page").get_size_inches().tolist() == [7, 2.4]
    with pytest.raises(InputError, match=r"^width must be one of column, page but got 'poster'$"):
        new_figure("poster")


def test_an_inline_figure_takes_the_colour_of_the_text_and_refers_to_nothing_outside():
    text = inline_svg(draw_loss(loss_shape(named_loss("mse"))), "a loss")
    assert "currentColor" in text
    assert INK not in text
    assert "#ffffff" not in text
    assert "http" not in text
    assert "<!" not in text
    assert 'href="#' in text


def test_the_user_s_own_settings_neither_change_the_figure_nor_are_changed(tmp_path):
    import matplotlib

    shape = loss_shape(named_loss("mse"), points=5)
    plain = inline_svg(draw_loss(shape), "")
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "svg.fonttype": "none"}):
        before = dict(matplotlib.rcParams)
        assert inline_svg(draw_loss(shape), "") == plain
        with figure_style():
            assert matplotlib.rcParams["font.size"] == 8
        assert dict(matplotlib.rcParams) == before


def test_matplotlib_is_loaded_only_to_draw_and_pyplot_never():
    program = """
import sys
import evomal.report
assert "matplotlib" not in sys.modules
from evomal.figures.loss_shape import loss_shape
from evomal.losses import named_loss
evomal.report.draw_loss(loss_shape(named_loss("mse")))
assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
