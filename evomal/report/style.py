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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evomal.errors import InputError
from evomal.report.harmless import printable
from evomal.whole_files import write_whole

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
