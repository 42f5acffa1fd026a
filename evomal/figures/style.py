"""One style for all figures, for print and for the screen, and the drawing helpers that figures share.

Figures are 3.4 or 7 inches wide, a column or a page of a paper, with text that is readable at that size. Colours are
those of Okabe and Ito, which colour-blind readers can tell apart. Letters in SVG are drawn as paths, so that a file
looks the same where the font is missing; in PDF the font is embedded. matplotlib is imported only when something is
drawn, and pyplot never.
"""

import csv
import io
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from evomal.checks import one_of
from evomal.errors import InputError
from evomal.extras import optional_library
from evomal.files import write_atomically
from evomal.text import printable, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    Axes = Figure = Any  # for annotations alone

FloatArray = npt.NDArray[np.float64]
Width = Literal["column", "page"]

WIDTHS = {"column": 3.4, "page": 7.0}
"""In inches."""

INK, GREY = "#1b1f24", "#8c8c8c"
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
YELLOW = "#f0e442"  # for areas: too pale for lines
PALE = "#d9d9d9"  # for what needs no attention
COLOUR_NAMES = {
    BLUE: "blue", VERMILLION: "vermillion", GREEN: "green", PURPLE: "purple", ORANGE: "orange", SKY: "sky",
    YELLOW: "yellow", GREY: "grey", PALE: "pale",
}  # fmt: skip
"""The names under which a page can replace the colours, for a dark theme."""
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
_CHARACTERS_PER_INCH = 14
_LAST_LATIN, _ALSO_DRAWN = "ſ", "αβγδεζηθλμνξπρστφχψωΔΣΦΩ–—‘’“”…−×·±≤≥≈→∞∂"
_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "mathtext.fontset": "dejavusans",
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "axes.facecolor": "none",
    "axes.formatter.limits": (-4, 5),
    "lines.linewidth": 1.4,
    "legend.fontsize": 7.5,
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
"""No date and no version, so that equal figures are equal files."""

_FAR_APART = 30.0
_BELOW_ALL = 1.3  # a logarithmic axis begins this factor below the smallest mean
_FAR_OUT = 4.0  # times the span of the inner values
_MARGIN = 0.05
_FARTHEST = 1e100
_LONGEST_NAME, _LONGEST_METRIC = 26, 24
_NOTE_SIZE, _NOTE_CHARACTERS_PER_INCH = 6.5, 17
_HANDLE = 7  # characters that a line takes in the legend, with the space around it


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw in this style within the context, or the decorated function, whatever the user's own settings are.

    Example:
        >>> figure = new_figure()
        >>> with figure_style():
        ...     axes = figure.subplots()
    """
    style = optional_library("matplotlib.style", "drawing", "'evomal[report]'")
    with style.context(["default", _RC]):
        yield


@figure_style()
def new_figure(width: Width = "column", height: float = 2.4) -> Figure:
    """Return an empty figure; draw on it within `figure_style()`.

    Args:
        width: `column` (3.4 inches) or `page` (7 inches).
        height: The height in inches.

    Returns:
        A figure without a window, so that nothing has to be closed.

    Raises:
        InputError: If the width is neither.

    Example:
        >>> new_figure("page", 2.0).get_size_inches().tolist()
        [7.0, 2.0]
    """
    from matplotlib.figure import Figure

    one_of("width", width, WIDTHS)
    return Figure(figsize=(WIDTHS[width], height), layout="constrained")


def panels(
    count: int, *, most: int, height: float, rest: float = 0.45, width: Width | None = None, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels, at most `most` side by side; one alone is as wide as a column."""
    columns = min(count, most)
    rows = math.ceil(count / columns)
    figure = new_figure(width or ("column" if count == 1 else "page"), rest + rows * height)
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for unused in grid.flat[count:]:
        unused.set_axis_off()
    return figure, list(grid.flat[:count])


@figure_style()
def sentence_figure(sentence: str, width: Width = "column") -> Figure:
    """Return what stands in for a figure where there is nothing to draw: a sentence that says why."""
    lines = textwrap.wrap(figure_text(sentence), round(_CHARACTERS_PER_INCH * WIDTHS[width]))
    figure = new_figure(width, 0.3 + 0.15 * len(lines))
    figure.text(0.5, 0.5, "\n".join(lines), ha="center", va="center")
    return figure


def save_figure(figure: Figure, path_without_suffix: Path, data: Mapping[str, Sequence[Any]]) -> list[Path]:
    """Write a figure as SVG, PDF and PNG, and its data as CSV.

    Args:
        figure: The figure.
        path_without_suffix: The path of the files, to which `.svg`, `.pdf`, `.png` and `.csv` are added.
        data: The columns of the data by name, all of one length; NaN is written as an empty cell.

    Returns:
        The paths of the four files. Equal figures are written as equal files.

    Raises:
        InputError: If the columns differ in length.

    Example:
        >>> files = save_figure(new_figure(), Path("front"), {"size": [1, 3]})  # doctest: +SKIP
    """
    contents = {suffix: _rendered(figure, suffix) for suffix in _METADATA} | {
        # A name may hold lone surrogates, which stand for bytes of a file name.
        "csv": _as_csv(data).encode(errors="backslashreplace")
    }
    paths = [path_without_suffix.with_name(f"{path_without_suffix.name}.{suffix}") for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomically(path, content)
    return paths


def inline_svg(figure: Figure, description: str, prefix: str = "") -> str:
    """Return the figure as an SVG element for a page, without background and with its ink in the page's text colour.

    Screen readers read the description. The prefix is added to the ids inside the element, so that those of several
    figures on one page differ.
    """
    text = _rendered(figure, "svg", facecolor="none").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->| xmlns(:\w+)?=\"[^\"]*\"", "", text, flags=re.DOTALL)
    text = _with_prefix(text.replace("xlink:href", "href"), prefix).replace(INK, "currentColor")
    for colour, name in COLOUR_NAMES.items():
        text = text.replace(colour, f"var(--{name}, {colour})")
    return text.replace("<svg", f'<svg role="img" aria-label="{description}"', 1).strip()


def _with_prefix(text: str, prefix: str) -> str:
    """The SVG with the prefix added to each id that is referred to, and without the other ids."""
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", text)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", text)


@figure_style()
def _rendered(figure: Figure, suffix: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, dpi=_PNG_DOTS_PER_INCH, metadata=_METADATA[suffix], **options)
    return buffer.getvalue()


def _as_csv(data: Mapping[str, Sequence[Any]]) -> str:
    if len({len(column) for column in data.values()}) > 1:
        lengths = ", ".join(f"{name!r} {len(column)}" for name, column in data.items())
        raise InputError(f"the columns of a figure's data must be of one length but have {lengths}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(data)
    for row in zip(*data.values(), strict=True):
        writer.writerow(["" if isinstance(value, float) and math.isnan(value) else value for value in row])
    return text.getvalue()


def figure_text(text: str, longest: int | None = None) -> str:
    """Return any text for a figure: without mathematics, and with a question mark where the font lacks a glyph."""
    text = text if longest is None else shorten(text, longest)
    known = (character if character <= _LAST_LATIN or character in _ALSO_DRAWN else "?" for character in text)
    return printable("".join(known)).replace("$", r"\$")


def shown_name(name: str) -> str:
    """Return the name of a loss or a method for a legend or a title."""
    shown = figure_text(name, _LONGEST_NAME)
    return f" {shown}" if shown.startswith("_") else shown  # matplotlib leaves out labels that begin so


def line_style(number: int) -> tuple[str, Any]:
    """Return colour and dashes by the order of the lines; the first 36 pairs differ."""
    kinds = len(LINE_STYLES)
    return LINE_STYLES[number % kinds][0], LINE_STYLES[(number + number // kinds) % kinds][1]


def whole_number_axis(axes: Axes) -> None:
    """Give the x axis whole numbers as ticks, even if it shows a single one."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    low, high = axes.get_xlim()
    if high - low < 1:
        axes.set_xlim((low + high) / 2 - 0.5, (low + high) / 2 + 0.5)


def drawable(values: npt.ArrayLike) -> FloatArray:
    """Return the values, clipped to what matplotlib can compute with."""
    return np.clip(np.asarray(values, dtype=np.float64), -_FARTHEST, _FARTHEST)


def axis_limits(values: npt.ArrayLike, inner: tuple[float, float] = (0.02, 0.98)) -> tuple[float, float]:
    """Return limits around all finite values, or only around the inner quantiles if outliers would flatten the rest."""
    found = drawable(values)
    found = found[np.isfinite(found)]
    if not found.size:
        return 0.0, 1.0
    low, high = float(found.min()), float(found.max())
    inner_low, inner_high = (float(bound) for bound in np.quantile(found, inner))
    if high - low > _FAR_OUT * (inner_high - inner_low) > 0:
        low, high = inner_low, inner_high
    margin = _MARGIN * (high - low) or _MARGIN * max(abs(low), 1.0)
    return low - margin, high + margin


def metric_axis(axes: Axes, metric: str, values: npt.ArrayLike, *, higher_is_better: bool) -> tuple[float, float]:
    """Label the y axis with the metric; limit it to all values, or to the best nine tenths if the rest is far away."""
    name, better = figure_text(metric.replace("_", " "), _LONGEST_METRIC), "higher" if higher_is_better else "lower"
    axes.set_ylabel(f"validation {name}\n({better} is better)")
    limits = axis_limits(values, (0.1, 1.0) if higher_is_better else (0.0, 0.9))
    axes.set_ylim(*limits)
    return limits


@dataclass(frozen=True)
class Band:
    """A mean and its standard deviation along some positions; NaN where there is no deviation."""

    name: str
    positions: Sequence[float] | FloatArray
    mean: FloatArray
    deviation: FloatArray


def draw_bands(
    axes: Axes, bands: Sequence[Band], *, first: int = 0, far_apart: float = _FAR_APART, marker: str | None = None
) -> None:
    """Draw the means as lines, each with a band of one standard deviation to either side.

    The y axis becomes logarithmic if the means are positive and the largest is more than `far_apart` times the
    smallest; a band ends where such an axis does. `first` is the number of the first line's style.
    """
    means = np.concatenate([band.mean for band in bands])
    floor = -np.inf
    if is_far_apart(means, far_apart):
        axes.set_yscale("log")
        floor = float(means[np.isfinite(means)].min()) / _BELOW_ALL
    for number, band in enumerate(bands, first):
        colour, dashes = line_style(number)
        # One value that is not finite would leave the whole panel empty.
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


def is_far_apart(values: FloatArray, ratio: float = _FAR_APART) -> bool:
    """Return whether all finite values are positive and the largest is more than `ratio` times the smallest."""
    found = values[np.isfinite(values)]
    return bool(found.size and found.min() > 0 and found.max() > ratio * found.min())


def band_words(seeds: int) -> str:
    """Return what lines and bands show."""
    return "one seed" if seeds == 1 else f"mean of {seeds} seeds, band: ±1 standard deviation"


def add_legend(figure: Figure, axes: Axes) -> None:
    """Add the names of the lines above everything, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    room = figure.get_size_inches()[0] * _CHARACTERS_PER_INCH
    columns = max(1, int(room // (_HANDLE + max(map(len, labels)))))
    figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)))


def add_patch_legend(figure: Figure, colours: Mapping[str, str]) -> None:
    """Add a coloured patch for each label above everything; nothing if there is no label."""
    from matplotlib.patches import Patch

    if colours:
        handles = [Patch(color=colour, linewidth=0, label=label) for label, colour in colours.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(7, len(handles)), handlelength=1.0)


def add_note(figure: Figure, *parts: str, diverged: Sequence[str] = ()) -> None:
    """Add a note below everything, such as what was averaged and how many trainings diverged, if any."""
    lost = f"{len(diverged)} of the trainings diverged" if diverged else ""
    characters = round(figure.get_size_inches()[0] * _NOTE_CHARACTERS_PER_INCH)
    lines = textwrap.wrap(figure_text("; ".join(filter(None, (*parts, lost)))), characters)
    figure.supxlabel("\n".join(lines), fontsize=_NOTE_SIZE, color=GREY)
