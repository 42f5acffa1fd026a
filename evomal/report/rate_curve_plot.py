"""Error against learning rate, with what diverged at the top edge."""

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from evomal.analysis.counting import counted
from evomal.analysis.rate_curves import RateCurves, RateLine
from evomal.analysis.trained_models import metric_scale, metric_words
from evomal.report.bands import (
    Band,
    add_legend,
    add_note,
    draw_bands,
    line_style,
)
from evomal.report.style import figure_style, in_figure, new_figure, sentence_figure
from evomal.verdict.words import schedule_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINE_OF_MARKERS = 0.055  # of the panel's height


def draw_rate_curves(data: RateCurves) -> "Figure":
    """A figure of column width; a line is over the trainings that did not diverge, a cross says that some did."""
    if not data.lines:
        return sentence_figure("; ".join(data.sentences))
    figure = new_figure("column", 2.8)
    with figure_style():
        axes = figure.subplots()
        axes.set_xscale("log")
        _set_rate_ticks(axes, data)
        axes.set_xlabel("base learning rate")
        axes.set_ylabel(f"test {in_figure(metric_words(data.metric))}")
        draw_bands(axes, [_band(data, line) for line in data.lines], marker="o")
        _make_room(axes, data)
        for row, number in enumerate(_crossed(data)):
            _draw_diverged(axes, data.lines[number], number, 1 - _LINE_OF_MARKERS * (row + 0.5))
        add_legend(figure, axes)
        add_note(figure, _note(data))
    return figure


def _band(data: RateCurves, line: RateLine) -> Band:
    scale = metric_scale(data.metric)
    mean, deviation = (
        scale * np.array([getattr(point, what) for point in line.points]) for what in ("mean", "deviation")
    )
    return Band(line.name, [point.rate for point in line.points], mean, deviation)


def _make_room(axes: "Axes", data: RateCurves) -> None:
    """Room above the lines for the crosses."""
    if not any(point.values for line in data.lines for point in line.points):
        axes.set_yticks([])
        return
    share = _LINE_OF_MARKERS * (len(_crossed(data)) + 0.5) if _crossed(data) else 0.0
    low, high = axes.get_ylim()
    more = share / (1 - share)
    axes.set_ylim(low, high * (high / low) ** more if axes.get_yscale() == "log" else high + (high - low) * more)


def _crossed(data: RateCurves) -> list[int]:
    """The lines that diverged somewhere, by their numbers."""
    return [number for number, line in enumerate(data.lines) if any(point.diverged for point in line.points)]


def _draw_diverged(axes: "Axes", line: RateLine, number: int, height: float) -> None:
    """Crosses near the top edge, at a height of their own so that none covers another; how many, where not all did."""
    colour, _ = line_style(number)
    across = axes.get_xaxis_transform()
    crossed = [point for point in line.points if point.diverged]
    axes.plot(
        [point.rate for point in crossed], [height] * len(crossed), transform=across, color=colour, marker="x",
        markersize=4, linestyle="none", label="_diverged", zorder=4,
    )  # fmt: skip
    for point in crossed:
        if point.values:
            axes.annotate(
                f"{point.diverged}/{len(point.trainings)}", (point.rate, height), xycoords=across, xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=6, color=colour,
            )  # fmt: skip


def _set_rate_ticks(axes: "Axes", data: RateCurves) -> None:
    rates = sorted({point.rate for line in data.lines for point in line.points})
    span = math.log10(rates[-1] / rates[0]) or 1.0
    axes.set_xlim(rates[0] / 10 ** (0.06 * span), rates[-1] * 10 ** (0.1 * span))
    apart = min((math.log10(high / low) for low, high in itertools.pairwise(rates)), default=1.0)
    if len(rates) <= 6 and apart > 0.12 * span:
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.set_xticks([], minor=True)


def _note(data: RateCurves) -> str:
    parts = [f"{data.task}, {schedule_words(data.steps, data.milestones)}"]
    if data.searches > 1:
        parts.append(
            f"mean of {data.seeds} seeds (methods: of {data.searches} searches, each by its mean), band: ±1 standard "
            "deviation"
        )
    else:
        parts.append(counted(data.seeds, "seed") + (", mean and ±1 standard deviation" if data.seeds > 1 else ""))
    if _crossed(data):
        parts.append("crosses: trainings that diverged, all or so many")
    return "; ".join(parts)
