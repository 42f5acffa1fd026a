"""Losses side by side: a row of small panels for each."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evomal.analysis.line_scans import FloatArray, single_precision
from evomal.analysis.shape_panels import Panel, Row, ShapePanels, Surface, Surfaces
from evomal.analysis.shapes import Curve
from evomal.report.harmless import cut
from evomal.report.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LINE_STYLES,
    ORANGE,
    SKY,
    VERMILLION,
    figure_style,
    in_figure,
    new_figure,
    sentence_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_HEIGHT, _FOOT = 1.45, 0.3
_BETWEEN, _ABOVE = 0.1, 0.15  # inches between two rows and above the first, for the titles
_LONGEST_TITLE = 90
_FAR_OUT = 4.0  # times the span of all but the outermost values
_INNER = (0.08, 0.96)
_MARGIN = 0.06
_SURFACES_A_ROW = 3
_LEVELS = 12

# From cold to warm, as the option grows, with dashes for black and white.
_IN_ORDER: tuple[tuple[str, Any], ...] = (
    (INK, "-"),
    (BLUE, (0, (7, 1.5))),
    (SKY, (0, (4, 1.6))),
    (GREEN, (0, (5, 1.2, 1.2, 1.2))),
    (ORANGE, (0, (1.2, 1.2))),
    (VERMILLION, "-"),
)


def draw_shape_panels(shapes: ShapePanels) -> "Figure":
    """A figure of page width: loss on the left, gradient on the right, a row for each loss or family."""
    if not shapes.rows:
        return sentence_figure("there is no loss to draw", "page")
    height = _ROW_HEIGHT * len(shapes.rows) + _FOOT
    figure = new_figure("page", height)
    panels = len(shapes.rows[0].panels)
    with figure_style():
        figure.set_layout_engine("constrained", h_pad=_BETWEEN, rect=(0, 0, 1, 1 - _ABOVE / height))
        axes = figure.subplots(len(shapes.rows), 2 * panels, squeeze=False, sharex=True)
        for line, row in zip(axes, shapes.rows, strict=True):
            _draw_row(line, row, shapes)
        units = "standardised" if shapes.is_standardised else "units of $y$"
        for last in axes[-1]:
            last.set_xlabel(f"error $f - y$ ({units})" if shapes.kind == "regression" else "output $f$")
    return figure


def draw_surfaces(data: Surfaces) -> "Figure":
    """A panel for each loss of regression, three in a row: target across, output upwards, loss as colour."""
    if not data.surfaces:
        return sentence_figure("there is no loss to draw", "page")
    across = min(len(data.surfaces), _SURFACES_A_ROW)
    down = math.ceil(len(data.surfaces) / across)
    figure = new_figure("column" if across == 1 else "page", 2.2 * down if across > 1 else 2.9)
    with figure_style():
        panels = figure.subplots(down, across, squeeze=False).reshape(-1)
        for axes, surface in zip(panels, data.surfaces, strict=False):
            _draw_surface(axes, surface, data)
        for axes in panels[len(data.surfaces) :]:
            axes.set_axis_off()
    return figure


def _draw_row(line: Sequence["Axes"], row: Row, shapes: ShapePanels) -> None:
    styles = LINE_STYLES if shapes.kind == "regression" or len(row.panels[0].curves) == 1 else _IN_ORDER
    count = len(row.panels)
    for axes, panel in zip(line, (*row.panels, *row.panels), strict=True):
        quantity = "value" if axes in line[:count] else "gradient"
        _draw_panel(axes, panel, quantity, shapes, styles)
        of_output = "" if shapes.kind == "regression" else f"{panel.name}: "
        axes.set_title(f"{of_output}{'loss' if quantity == 'value' else 'gradient by $f$'}", fontsize=7, pad=3)
    title = in_figure(cut(row.title, _LONGEST_TITLE))
    # Out of the layout, which would else make the first panel as wide as its title.
    line[0].annotate(
        title, (0, 1), (0, 13), xycoords="axes fraction", textcoords="offset points", fontweight="bold", in_layout=False
    )
    handles, labels = line[-1].get_legend_handles_labels()
    line[-1].legend(handles, labels, loc="upper left", bbox_to_anchor=(1.02, 1.05), borderaxespad=0)


def _draw_panel(
    axes: "Axes", panel: Panel, quantity: str, shapes: ShapePanels, styles: Sequence[tuple[str, Any]]
) -> None:
    drawn: list[FloatArray] = []
    for curve, (colour, dashes), order in (
        *((curve, style, 2) for curve, style in zip(panel.curves, _repeated(styles, len(panel.curves)), strict=True)),
        *((curve, (GREY, "-"), 1) for curve in panel.references),
    ):
        drawn.append(single_precision(getattr(curve, quantity)))
        axes.plot(
            shapes.positions, drawn[-1], color=colour, linestyle=dashes, label=_label(curve), zorder=order,
            linewidth=1.2,
        )  # fmt: skip
    axes.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    axes.set_xlim(np.round(shapes.positions[0], 2), np.round(shapes.positions[-1], 2))
    axes.set_ylim(*_window(np.concatenate(drawn)))
    if not np.any(drawn):
        axes.set_yticks([0])
        axes.text(0.5, 0.6, "zero everywhere", ha="center", color=GREY, fontsize=7, transform=axes.transAxes)


def _repeated(styles: Sequence[tuple[str, Any]], count: int) -> list[tuple[str, Any]]:
    return [styles[place % len(styles)] for place in range(count)]


def _label(curve: Curve) -> str:
    return curve.name.replace("y = ", "$y$ = ").replace("-1", "−1") or "this loss"


def _window(values: FloatArray) -> tuple[float, float]:
    """All values, or all but the outermost where those would make a flat line of the rest."""
    values = values[np.isfinite(values)]
    if not values.size:
        return -1.0, 1.0
    low, high = float(values.min()), float(values.max())
    inner_low, inner_high = (float(bound) for bound in np.quantile(values, _INNER))
    if high - low > _FAR_OUT * (inner_high - inner_low) > 0:
        low, high = inner_low, inner_high
    margin = _MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def _draw_surface(axes: "Axes", surface: Surface, data: Surfaces) -> None:
    positions, units = data.positions, " (standardised)" if data.is_standardised else ""
    values = np.ma.masked_invalid(single_precision(surface.value))
    axes.set_title(in_figure(cut(surface.name, 30)), loc="left", fontweight="bold")
    axes.set_xlabel(f"target $y${units}")
    axes.set_ylabel(f"output $f${units}")
    axes.set_aspect("equal")
    if values.count() == 0:
        axes.text(0.5, 0.5, "nowhere finite", ha="center", va="center", transform=axes.transAxes)
        return
    lowest, highest = float(values.min()), float(values.max())
    low, high = _window(values.compressed())
    low, high = max(low, lowest), min(high, highest)
    levels = np.linspace(low, high if high > low else low + 1, _LEVELS)
    beyond = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    filled = axes.contourf(
        positions, positions, values, levels=levels, cmap="cividis", extend=beyond[lowest < low, highest > high]
    )
    axes.plot(positions, positions, color="white", linewidth=0.8, linestyle=(0, (4, 1.6)))
    bar = axes.figure.colorbar(filled, ax=axes, shrink=0.6, ticks=np.linspace(levels[0], levels[-1], 5), format="%.3g")
    bar.set_label("loss")
    bar.outline.set_linewidth(0.4)
