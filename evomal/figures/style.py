"""One look for all figures, for print as for the screen.

Figures are 3.4 or 7 inches wide, a column or a page of a paper, with text that is readable at that size. Colours are
those of Okabe and Ito, told apart by nearly everybody. Letters in SVG are drawn as paths, so that a file looks the same
where the font is missing; in PDF the font is embedded.
"""

import csv
import io
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from evomal.errors import InputError
from evomal.figures.scans import FloatArray
from evomal.files import write_whole
from evomal.text import printable, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = {"column": 3.4, "page": 7.0}
"""Inches."""

INK, GREY = "#1b1f24", "#8c8c8c"
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
COLOUR_NAMES = {
    BLUE: "blue", VERMILLION: "vermillion", GREEN: "green", PURPLE: "purple", ORANGE: "orange", SKY: "sky",
    GREY: "grey",
}  # fmt: skip
"""By which a page may give them other values, where it is dark."""
LINE_STYLES: tuple[tuple[str, Any], ...] = (
    (BLUE, "-"),
    (VERMILLION, (0, (4, 1.6))),
    (GREEN, (0, (1.2, 1.2))),
    (PURPLE, (0, (5, 1.2, 1.2, 1.2))),
    (ORANGE, (0, (7, 1.5))),
    (SKY, (0, (3, 1.2, 1.2, 1.2, 1.2, 1.2))),
)
"""Colour and dashes together, so that lines also differ in black and white."""

_PNG_DOTS_PER_INCH = 300
_CHARACTERS_PER_INCH = 14  # of a sentence in the font's size
_LAST_LATIN, _ALSO_DRAWN = "ſ", "αβγδεζηθλμνξπρστφχψωΔΣΦΩ–—‘’“”…−×·±≤≥≈→∞∂"
_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "mathtext.fontset": "dejavusans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.limits": (-4, 5),
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "evomal",  # names inside the file would differ from run to run otherwise
    "pdf.fonttype": 42,
}
_METADATA: dict[str, dict[str, Any]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}
"""Nothing about when and by which version, so that equal figures are equal files."""


def figure_style() -> AbstractContextManager[None]:
    """The look, within a `with` statement only and whatever the user's own settings of matplotlib are."""
    import matplotlib.style

    return matplotlib.style.context(["default", _RC])


def new_figure(width: Literal["column", "page"] = "column", height: float = 2.4) -> "Figure":
    """An empty figure of that width, `height` inches high; draw on it within `figure_style()`."""
    from matplotlib.figure import Figure

    if width not in WIDTHS:
        raise InputError(f"width must be one of {', '.join(WIDTHS)} but got {width!r}")
    with figure_style():
        return Figure(figsize=(WIDTHS[width], height), layout="constrained")


def in_figure(text: str) -> str:
    """A stranger's text to stand in a figure: no mathematics, and a question mark for what the font may not have."""
    known = (character if character <= _LAST_LATIN or character in _ALSO_DRAWN else "?" for character in text)
    return printable("".join(known)).replace("$", r"\$")


def sentence_figure(sentence: str, width: Literal["column", "page"] = "column") -> "Figure":
    """What stands in for a figure where there is nothing to draw: a sentence that says why."""
    lines = textwrap.wrap(in_figure(sentence), round(_CHARACTERS_PER_INCH * WIDTHS[width]))
    figure = new_figure(width, 0.3 + 0.15 * len(lines))
    with figure_style():
        figure.text(0.5, 0.5, "\n".join(lines), ha="center", va="center")
    return figure


def save_figure(figure: "Figure", path_without_suffix: Path, data: Mapping[str, Sequence[Any]]) -> list[Path]:
    """Write the figure as SVG, PDF and PNG, and its data, columns by name, as CSV."""
    paths = []
    for suffix in _METADATA:
        paths.append(path_without_suffix.with_name(f"{path_without_suffix.name}.{suffix}"))
        write_whole(paths[-1], _rendered(figure, suffix))
    paths.append(path_without_suffix.with_name(f"{path_without_suffix.name}.csv"))
    write_whole(paths[-1], _as_csv(data).encode())
    return paths


def inline_svg(figure: "Figure", description: str, prefix: str = "") -> str:
    """The figure as an element to stand in a page: without background, its ink in the colour of the page's text.

    Several on one page need prefixes of their own for the names inside them.
    """
    text = _rendered(figure, "svg", facecolor="none").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->| xmlns(:\w+)?=\"[^\"]*\"", "", text, flags=re.DOTALL)
    text = _renamed(text.replace("xlink:href", "href"), prefix).replace(INK, "currentColor")
    for colour, name in COLOUR_NAMES.items():
        text = text.replace(colour, f"var(--{name}, {colour})")
    return text.replace("<svg", f'<svg role="img" aria-label="{description}"', 1).strip()


def _renamed(text: str, prefix: str) -> str:
    """Only names that something refers to, under the prefix."""
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", text)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", text)


def _rendered(figure: "Figure", suffix: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with figure_style():
        figure.savefig(buffer, format=suffix, dpi=_PNG_DOTS_PER_INCH, metadata=_METADATA[suffix], **options)
    return buffer.getvalue()


def _as_csv(data: Mapping[str, Sequence[Any]]) -> str:
    if len({len(column) for column in data.values()}) > 1:
        lengths = ", ".join(f"{name!r} {len(column)}" for name, column in data.items())
        raise InputError(f"the columns of a figure's data must be of one length but have {lengths}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(data)
    writer.writerows([_entry(value) for value in row] for row in zip(*data.values(), strict=True))
    return text.getvalue()


def _entry(value: Any) -> Any:
    return "" if isinstance(value, float) and math.isnan(value) else value


if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAR_OUT = 4.0  # times the span of all but the worst
_INNER = 0.9
_MARGIN = 0.05
_LONGEST_METRIC = 24
_FARTHEST = 1e100


def counting_axis(axes: "Axes") -> None:
    """Whole numbers to the right, also where there is one alone."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    low, high = axes.get_xlim()
    if high - low < 1:
        axes.set_xlim((low + high) / 2 - 0.5, (low + high) / 2 + 0.5)


def label_of(metric: str, *, higher_is_better: bool) -> str:
    """What the axis shows, and which way is good."""
    better = "more" if higher_is_better else "less"
    return f"validation {in_figure(shorten(metric.replace('_', ' '), _LONGEST_METRIC))}\n({better} is better)"


def drawable(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The values, those brought nearer that are too far out for matplotlib to compute with."""
    return np.clip(np.asarray(values, dtype=np.float64), -_FARTHEST, _FARTHEST)


def cut_axis(axes: "Axes", values: npt.ArrayLike, *, higher_is_better: bool) -> tuple[float, float]:
    """Give the axis limits that hold all values, or all but the worst where those lie far out; the limits."""
    found = drawable(values)
    found = found[np.isfinite(found)]
    if not len(found):
        return axes.get_ylim()
    costs = -found if higher_is_better else found
    best, worst, inner = costs.min(), costs.max(), np.quantile(costs, _INNER)
    if worst - best > _FAR_OUT * (inner - best) > 0:
        worst = inner
    margin = _MARGIN * (worst - best) or _MARGIN * max(abs(best), 1.0)
    low, high = float(best - margin), float(worst + margin)
    limits = (-high, -low) if higher_is_better else (low, high)
    axes.set_ylim(*limits)
    return limits


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
    shown = in_figure(shorten(name, _LONGEST_NAME))
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
