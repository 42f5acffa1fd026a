"""How losses push outputs at both ends of training, as a table."""

import math
import re
from typing import TYPE_CHECKING

from evomal.analysis.behaviour import OUTPUTS, REGIMES, Behaviours, Delta
from evomal.report.harmless import cut
from evomal.report.style import BLUE, GREY, VERMILLION, figure_style, in_figure, new_figure, sentence_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_HEIGHT, _HEAD = 0.42, 0.66
_NAME_WIDTH, _CELL_WIDTH = 1.5, 1.0  # relative
_LONGEST_NAME, _LONGEST_FORMULA = 28, 24
_TINT, _PALE_INK = 0.16, "#555555"
_HEADINGS = {"other": "non-target", "target": "target"}
_POINTS = {"null epoch": "null epoch, $f = 1/C$", "zero error": "near zero training error"}


def draw_behaviour(data: Behaviours) -> "Figure":
    """A page-wide table: a row for each loss, blue where an output is pushed up, vermillion where down."""
    if not data.losses:
        return sentence_figure("there is no loss to draw", "page")
    figure = new_figure("page", _HEAD + _ROW_HEIGHT * len(data.losses))
    cases = [(regime, output) for regime in REGIMES for output in OUTPUTS]
    with figure_style():
        axes = figure.subplots()
        axes.set_xlim(0, _NAME_WIDTH + _CELL_WIDTH * len(cases))
        axes.set_ylim(len(data.losses), -_HEAD / _ROW_HEIGHT)
        axes.set_axis_off()
        _draw_headings(axes, data.classes)
        for place, loss in enumerate(data.losses):
            axes.axhline(place, color=GREY, linewidth=0.4)
            axes.text(0.02, place + 0.5, in_figure(cut(loss.name, _LONGEST_NAME)), va="center", fontsize=7.5)
            for column, (regime, output) in enumerate(cases):
                _draw_cell(axes, _NAME_WIDTH + column * _CELL_WIDTH, place, loss.at(regime, output))
        axes.axhline(len(data.losses), color=GREY, linewidth=0.4)
    return figure


def _draw_headings(axes: "Axes", classes: int) -> None:
    axes.text(0.02, -0.3, rf"push $\delta = -\partial L / \partial f$ at $C$ = {classes}", va="bottom")
    for half, regime in enumerate(REGIMES):
        left = _NAME_WIDTH + 2 * half * _CELL_WIDTH
        axes.text(left + _CELL_WIDTH, -1.0, _POINTS[regime], ha="center", va="bottom", fontweight="bold")
        axes.plot([left + 0.05, left + 2 * _CELL_WIDTH - 0.05], [-0.9, -0.9], color=GREY, linewidth=0.4)
        for column, output in enumerate(OUTPUTS):
            axes.text(left + (column + 0.5) * _CELL_WIDTH, -0.3, _HEADINGS[output], ha="center", va="bottom")


def _draw_cell(axes: "Axes", left: float, top: float, delta: Delta) -> None:
    from matplotlib.patches import Rectangle

    value = delta.value
    if value and not math.isnan(value):
        colour = BLUE if value > 0 else VERMILLION
        axes.add_patch(Rectangle((left, top), _CELL_WIDTH, 1, facecolor=colour, alpha=_TINT, linewidth=0))
    middle, remark = left + _CELL_WIDTH / 2, _remark(delta)
    axes.text(middle, top + (0.34 if remark else 0.5), readable_number(value), ha="center", va="center")
    if remark:
        axes.text(middle, top + 0.76, remark, ha="center", va="center", fontsize=6, color=_PALE_INK)


def _remark(delta: Delta) -> str:
    return f"with ε: {readable_number(delta.exact)}" if delta.differs_by_epsilon else readable_formula(delta)


def readable_number(value: float) -> str:
    """The number in four digits, with an arrow for the way it pushes."""
    if math.isnan(value):
        return "not found"
    size = "∞" if math.isinf(value) else f"{abs(value):.4g}"
    arrow = "↑ +" if value > 0 else "↓ −" if value < 0 else ""
    return f"{arrow}{size}"


def readable_formula(delta: Delta) -> str:
    """The formula in ordinary letters, where it is short and more than the number; "numeric" where there is none."""
    if delta.formula is None:
        return "numeric"
    text = delta.text
    for word, letter in (("phi", "φ"), ("xi", "ξ"), ("gamma", "γ"), ("**", "^"), ("*", "·"), ("-", "−")):
        text = text.replace(word, letter)
    is_number = re.fullmatch(r"−?(oo|[\d.]+(e−?\d+)?)", text)
    return "" if is_number or len(text) > _LONGEST_FORMULA else text
