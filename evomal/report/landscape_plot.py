"""Loss landscapes: lines with bands over the seeds, or contours, one panel a loss."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evomal.analysis.landscapes import Landscape, Landscapes
from evomal.analysis.line_scans import FloatArray
from evomal.report.bands import (
    Band,
    add_legend,
    add_note,
    band_words,
    draw_bands,
    is_far_apart,
    note_with,
    panels,
    shown_name,
)
from evomal.report.style import figure_style, new_figure, sentence_figure
from evomal.verdict.words import schedule_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import QuadContourSet
    from matplotlib.figure import Figure

_POSITION = "position along a direction (filter norms)"
_FIRST, _SECOND = "first direction (filter norms)", "second direction (filter norms)"
_LEVELS = 13
_FAR_APART = 1000.0  # times: a bowl should look like one as long as it can
_MOST_BESIDE = 3


def draw_landscapes(data: Landscapes) -> "Figure":
    """One axis for all losses where their heights are of one kind; a panel for each where they are not, and in 2-D."""
    if not data.losses:
        return sentence_figure("; ".join(data.sentences))
    with figure_style():
        if data.two_d:
            figure = _contours(data)
        elif data.of == "training" and len(data.losses) > 1:
            figure = _apart(data)
        else:
            figure = _together(data)
        add_note(figure, _note(data))
    return figure


def _together(data: Landscapes) -> "Figure":
    figure = new_figure("column", 2.7)
    axes = figure.subplots()
    _draw_lines(axes, data, data.losses)
    axes.set_ylabel(data.height_name)
    axes.set_xlabel(_POSITION)
    add_legend(figure, axes)
    return figure


def _apart(data: Landscapes) -> "Figure":
    figure, grid = panels(len(data.losses), most=_MOST_BESIDE, height=1.9, sharex=True)
    for number, (axes, landscape) in enumerate(zip(grid, data.losses, strict=True)):
        _draw_lines(axes, data, [landscape], first=number)
        axes.set_title(shown_name(landscape.name))
    grid[0].set_ylabel(data.height_name)
    for axes in grid[-_MOST_BESIDE:]:
        axes.set_xlabel("position (filter norms)")
    return figure


def _draw_lines(axes: "Axes", data: Landscapes, found: Sequence[Landscape], first: int = 0) -> None:
    bands = [Band(landscape.name, data.positions, landscape.mean, landscape.deviation) for landscape in found]
    draw_bands(axes, bands, first=first, far_apart=_FAR_APART)
    axes.set_xlim(data.positions[0], data.positions[-1])
    axes.locator_params(axis="x", nbins=4)


def _contours(data: Landscapes) -> "Figure":
    figure, grid = panels(
        len(data.losses),
        most=_MOST_BESIDE,
        height=2.4 if len(data.losses) < _MOST_BESIDE else 2.05,
        sharex=True,
        sharey=True,
    )
    shared = data.of == "task"
    everything = np.stack([landscape.mean for landscape in data.losses])
    filled = None
    for axes, landscape in zip(grid, data.losses, strict=True):
        filled = _draw_contours(axes, data.positions, landscape.mean, _levels(everything if shared else landscape.mean))
        axes.set_title(shown_name(landscape.name))
        axes.set_xlabel(_FIRST)
        axes.label_outer()
        if not shared and filled is not None:
            _add_colour_bar(figure, filled, [axes], data.height_name)
    grid[0].set_ylabel(_SECOND)
    if shared and filled is not None:
        _add_colour_bar(figure, filled, grid, data.height_name)
    return figure


def _draw_contours(axes: "Axes", positions: FloatArray, heights: FloatArray, levels: FloatArray) -> "QuadContourSet":
    from matplotlib.colors import BoundaryNorm, ListedColormap

    # One colour a step, so that equal colours are equal heights whatever the scale.
    steps = len(levels) - 1
    colours = ListedColormap(_perceptual(np.linspace(0.05, 0.95, steps)))
    finite = np.ma.masked_invalid(heights)
    norm = BoundaryNorm(levels, steps)
    filled = axes.contourf(positions, positions, finite, levels=levels, cmap=colours, norm=norm)
    axes.contour(positions, positions, finite, levels=levels, colors="white", linewidths=0.3)
    axes.plot([0], [0], marker="+", color="white", markersize=5, linestyle="none")
    axes.set_aspect("equal")
    axes.locator_params(nbins=4)
    return filled


def _perceptual(places: FloatArray) -> FloatArray:
    from matplotlib import colormaps

    found: FloatArray = colormaps["viridis"](places)
    return found


def _add_colour_bar(figure: "Figure", filled: "QuadContourSet", grid: list["Axes"], label: str) -> None:
    ticks = list(filled.levels)[::2]
    bar = figure.colorbar(filled, ax=grid, label=label, shrink=0.9, ticks=ticks, spacing="uniform")
    bar.ax.set_yticklabels([f"{level:.3g}" for level in ticks])
    bar.ax.minorticks_off()
    bar.outline.set_linewidth(0)


def _levels(heights: FloatArray) -> FloatArray:
    found = heights[np.isfinite(heights)]
    if not found.size:
        return np.linspace(0, 1, _LEVELS)
    low, high = float(found.min()), float(found.max())
    if low == high:
        return np.linspace(low - 0.5, high + 0.5, _LEVELS)
    spaced = np.geomspace if is_far_apart(found) else np.linspace
    levels: FloatArray = spaced(low, high, _LEVELS)
    levels[[0, -1]] = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)  # rounding must not leave out an end
    return levels


def _note(data: Landscapes) -> str:
    most = max(len(landscape.seeds) for landscape in data.losses)
    words = band_words(most) if not data.two_d or most == 1 else f"mean of {most} seeds"
    return note_with(
        data.sentences, f"{data.task}, {schedule_words(data.steps, data.milestones)}, {data.row_words}", words
    )
