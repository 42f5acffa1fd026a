"""The table of pushes, as drawn."""

import math

import pytest

from evomal.figures.style import BLUE, VERMILLION
from evomal.losses import AbsoluteCrossEntropyLoss, ExpressionLoss, LabelSmoothingLoss
from evomal.paper.behaviour import Behaviours, Delta, behaviours, draw_behaviour, readable_formula, readable_number


def test_every_push_has_a_cell_with_its_number_and_its_formula():
    data = behaviours({"smoothed": LabelSmoothingLoss(0.1), "absolute": AbsoluteCrossEntropyLoss(1, 1.5)}, classes=10)
    (axes,) = draw_behaviour(data).axes
    texts = [text.get_text() for text in axes.texts]
    assert texts[:7] == [
        r"push $\delta = -\partial L / \partial f$ at $C$ = 10",
        "null epoch, $f = 1/C$", "non-target", "target", "near zero training error", "non-target", "target",
    ]  # fmt: skip
    assert texts[7:15] == ["smoothed", "↑ +0.1", "ξ", "↑ +9.1", "−C·ξ + C + ξ", "↑ +∞", "↑ +0.91", "−ξ + 1 + ξ/C"]
    assert texts[15:] == ["absolute", "0", "↑ +10", "C", "0", "↓ −1"]
    from matplotlib.colors import to_hex

    assert [to_hex(patch.get_facecolor()) for patch in axes.patches] == [BLUE] * 5 + [VERMILLION]


def test_what_epsilon_changes_stands_in_the_cell():
    (axes,) = draw_behaviour(behaviours({"mine": ExpressionLoss("abs(log(mul(y, f)))")})).axes
    assert [text.get_text() for text in axes.texts][-2:] == ["↑ +1", "with ε: ↓ −1"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (1234.5678, "↑ +1235"), (-math.inf, "↓ −∞"), (math.nan, "not determined")]
)
def test_numbers_in_words(value, text):
    assert readable_number(value) == text


def test_a_long_formula_is_left_out_and_a_missing_one_named():
    import sympy

    long = sympy.sympify("C**2 * log(C) + C * log(C + 1) + log(C + 2)")
    assert readable_formula(Delta("null epoch", "target", long, 1.0, 1.0, "limit")) == ""
    assert readable_formula(Delta("null epoch", "target", None, 1.0, 1.0, "numeric")) == "numeric"
    assert readable_formula(Delta("null epoch", "target", sympy.Float(-1.5), -1.5, -1.5, "limit")) == ""


def test_cells_do_not_overlap():
    data = behaviours({"a rather long name of a loss": LabelSmoothingLoss(0.1)})
    figure = draw_behaviour(data)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[place + 1 :])


def test_without_losses_the_figure_says_so():
    figure = draw_behaviour(Behaviours(10, ()))
    assert [text.get_text() for text in figure.texts] == ["there is no loss to draw"]
