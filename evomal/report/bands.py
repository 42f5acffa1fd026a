"""What figures of several losses share: a mean within its band, panels, a legend, a note on what was averaged."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evomal.analysis.line_scans import FloatArray
from evomal.report.harmless import cut
from evomal.report.style import GREY, LINE_STYLES, WIDTHS, in_figure, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAR_APART = 30.0
"""Times: from here on a linear axis would show the largest values only."""
_BELOW_ALL = 1.3  # times that a logarithmic axis begins below the least mean
_LONGEST_NAME = 26
_NOTE_SIZE = 6.5
_NOTE_CHARACTERS_PER_INCH = 17
_LEGEND_CHARACTERS_PER_INCH = 14
_HANDLE = 7  # characters that a line takes in the legend, with the space around it


@dataclass(frozen=True)
class Band:
    """A mean and its standard deviation along some positions; no deviation is NaN."""

    name: str
    positions: Sequence[float] | FloatArray
    mean: FloatArray
    deviation: FloatArray


def shown_name(name: str) -> str:
    """A loss's name for a legend or a title."""
    shown = in_figure(cut(name, _LONGEST_NAME))
    return f" {shown}" if shown.startswith("_") else shown  # matplotlib leaves out labels that begin so


def line_style(number: int) -> tuple[str, Any]:
    """Colour and dashes of the losses by their order, in pairs that do not come back before the thirty-seventh."""
    kinds = len(LINE_STYLES)
    return LINE_STYLES[number % kinds][0], LINE_STYLES[(number + number // kinds) % kinds][1]


def draw_bands(
    axes: "Axes", bands: Sequence[Band], *, first: int = 0, far_apart: float = FAR_APART, marker: str | None = None
) -> None:
    """The means as lines, in the styles from number `first` on, each with a standard deviation to either side.

    The axis is logarithmic where the means are positive and far apart; a band then ends where the axis does.
    """
    means = np.concatenate([band.mean for band in bands])
    floor = -np.inf
    if is_far_apart(means, far_apart):
        axes.set_yscale("log")
        floor = float(means[np.isfinite(means)].min()) / _BELOW_ALL
    for number, band in enumerate(bands, first):
        colour, dashes = line_style(number)
        # What is not finite would make an empty picture of the whole.
        mean = np.where(np.isfinite(band.mean), band.mean, np.nan)
        axes.plot(
            band.positions, mean, color=colour, linestyle=dashes, label=shown_name(band.name), marker=marker,
            markersize=3, zorder=3,
        )  # fmt: skip
        if np.isfinite(band.deviation).any():
            low, high = np.maximum(mean - band.deviation, floor), mean + band.deviation
            axes.fill_between(band.positions, low, high, color=colour, alpha=0.16, linewidth=0, zorder=2)
    if np.isfinite(floor):
        axes.set_ylim(bottom=floor)


def band_words(seeds: int) -> str:
    """What the line and the band are."""
    return "one seed" if seeds == 1 else f"mean of {seeds} seeds, band: ±1 standard deviation"


def is_far_apart(values: FloatArray, times: float = FAR_APART) -> bool:
    """Whether the values are all positive, and one is so many times another."""
    found = values[np.isfinite(values)]
    return bool(found.size and found.min() > 0 and found.max() > times * found.min())


def panels(count: int, *, most: int, height: float, **options: Any) -> tuple["Figure", list["Axes"]]:
    """A figure with so many panels, at most `most` beside each other: one is of column width, several of page width."""
    columns = min(count, most)
    rows = math.ceil(count / columns)
    figure = new_figure("column" if count == 1 else "page", 0.45 + rows * height)
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for unused in grid.flat[count:]:
        unused.set_axis_off()
    return figure, list(grid.flat[:count])


def add_legend(figure: "Figure", axes: "Axes") -> None:
    """The lines' names above everything, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    room = figure.get_size_inches()[0] * _LEGEND_CHARACTERS_PER_INCH
    columns = max(1, int(room // (_HANDLE + max(map(len, labels)))))
    figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)))


def add_note(figure: "Figure", note: str) -> None:
    """What was averaged over what, below everything."""
    width = figure.get_size_inches()[0]
    assert width in WIDTHS.values()
    lines = textwrap.wrap(in_figure(note), round(width * _NOTE_CHARACTERS_PER_INCH))
    figure.supxlabel("\n".join(lines), fontsize=_NOTE_SIZE, color=GREY)


def note_with(sentences: Sequence[str], *parts: str) -> str:
    """The parts of a note, and that there is something that diverged."""
    lacking = f"{len(sentences)} of the trainings diverged" if sentences else ""
    return "; ".join(part for part in (*parts, lacking) if part)
