"""A report on paper: pages of text, then the figures as they are."""

import io
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evomal.figures.best_losses import LossShapeSketch
from evomal.figures.style import BLUE, INK, figure_style, figure_text
from evomal.report.loss_table import ShownFormula, metric_words, shown_value, table_sentence
from evomal.report.run_report import RunReport, ShownFigure
from evomal.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

_PAPER = (8.27, 11.69)  # A4, in inches
_MARGIN = 0.75
_SIZES = {"title": 15.0, "heading": 10.5, "text": 9.0, "small": 7.5, "code": 7.5, "table": 7.0, "formula": 15.0}
_HEIGHTS = {"title": 0.34, "heading": 0.26, "text": 0.17, "small": 0.14, "code": 0.145, "table": 0.14, "formula": 0.85}
"""Inches of a line."""
_CHARACTERS = {"title": 62, "heading": 90, "text": 108, "small": 132, "code": 106, "table": 114}
_LONGEST_TEXT = 4_000
_LONGEST_IN_TABLE = 54
_MOST_COLUMNS, _WIDEST_COLUMN = 6, 30
_SMALLEST_FORMULA = 6.5  # points
_SOFT = "#5d646c"
_MONOSPACED = "DejaVu Sans Mono"


@dataclass(frozen=True)
class _Line:
    """A line of text with what is left free above it."""

    kind: str
    text: str
    above: float = 0.0
    sketch: LossShapeSketch | None = None
    """The shape of a loss, drawn at the line's end."""


def report_pdf(report: RunReport) -> bytes:
    """The same content as the page: text broken into pages, every figure as vectors, no browser needed."""
    from matplotlib.backends.backend_pdf import PdfPages

    buffer = io.BytesIO()
    with figure_style(), PdfPages(buffer, metadata={"CreationDate": None, "Creator": None, "Producer": None}) as pages:
        for lines in _paged(_front_matter(report)):
            pages.savefig(_text_page(lines))
        for shown in report.figures():
            pages.savefig(shown.figure, bbox_inches=_titled(shown))
        for lines in _paged(_back_matter(report)):
            pages.savefig(_text_page(lines))
    return buffer.getvalue()


def _front_matter(report: RunReport) -> Iterator[_Line]:
    yield from _wrapped("title", report.title)
    yield from _wrapped("text", report.subject, above=0.05)
    for sentence in report.warnings:
        yield from _wrapped("text", f"! {sentence}", above=0.06)
    parts = [_best_lines(report), _verdict_lines(report)]
    for part in parts if report.run is not None else reversed(parts):
        yield from part


def _best_lines(report: RunReport) -> Iterator[_Line]:
    if report.runs.runs:
        yield from _wrapped("heading", "Best loss", above=0.25)
        if not report.formulas:
            yield from _wrapped("text", "There is no best loss: nothing was trained.")
    for formula in report.formulas:
        yield from _formula_lines(formula, with_task=len(report.formulas) > 1)


def _formula_lines(formula: ShownFormula, *, with_task: bool) -> Iterator[_Line]:
    if with_task:
        yield from _wrapped("text", formula.best.task, above=0.1)
    if formula.mathtext is not None and _formula_size(formula.mathtext) >= _SMALLEST_FORMULA:
        yield _Line("formula", formula.mathtext)
    yield from _wrapped("code", formula.text, above=0.06)
    yield from _wrapped("small", formula.symbols)
    yield from _wrapped("text", formula.sentence, above=0.06)


def _formula_size(text: str) -> float:
    """Points, at which the formula fits the paper's width."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser

    width = MathTextParser("path").parse(text, dpi=72, prop=FontProperties(size=_SIZES["formula"])).width
    return min(1.0, 72 * (_PAPER[0] - 2 * _MARGIN) / width) * _SIZES["formula"]


def _verdict_lines(report: RunReport) -> Iterator[_Line]:
    if not report.formulas and not report.verdicts.verdicts:
        return
    yield from _wrapped("heading", "Verdict", above=0.25)
    for verdict in report.verdicts.verdicts:
        yield from _wrapped("text", verdict.title, above=0.08)
        for sentence in verdict.sentences:
            yield from _wrapped("text", f"– {sentence.kind}: {sentence.sentence}", above=0.04)
        yield from _markdown_lines(verdict.text)
    if not report.verdicts.verdicts:
        yield from _wrapped("text", "Not compared with the task’s own loss yet, on seeds that no search has seen.")


def _markdown_lines(text: str) -> Iterator[_Line]:
    """Tables in columns, without their last one, which lists every seed; anything else as it stands."""
    lines = [line for line in text.splitlines() if line.strip() and not set(line) <= set("|-: ")]
    rows = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines if line.startswith("|")]
    widths = [max(map(len, column)) for column in itertools.zip_longest(*rows, fillvalue="")][:_MOST_COLUMNS]
    waiting = iter(rows)
    for line in lines:
        if line.startswith("|"):
            cells = zip(next(waiting), (min(width, _WIDEST_COLUMN) for width in widths), strict=False)
            shown = "  ".join(f"{shorten(cell, width):<{width}}" for cell, width in cells)
            yield _Line("table", figure_text(shorten(shown, _CHARACTERS["table"])))
        else:
            yield from _wrapped("small", line, above=0.06)


def _back_matter(report: RunReport) -> Iterator[_Line]:
    for best in report.best:
        yield from _wrapped("heading", f"Best losses: {best.task}", above=0.2)
        yield from _wrapped("small", table_sentence(best) if best.rows else "Nothing was trained.")
        head = f"validation {metric_words(best.metric)}; size; generation; origin; method, seed; formula"
        yield from _wrapped("small", head, above=0.05)
        for place, row in enumerate(best.rows, 1):
            about = (
                f"{place:>2} {shown_value(row.value, best.metric):>8} {row.size or '':>3} {row.generation:>3} "
                f"{shorten(row.candidate.origin, 9):<9} {shorten(row.run.method, 9)},{row.run.seed}  "
            )
            yield _Line("code", about + shorten(row.formula, _LONGEST_IN_TABLE), above=0.06, sketch=row.sketch)
    for title, entries in (
        ("Settings", report.settings.entries()),
        ("Environment", report.settings.environment_entries()),
    ):
        if entries:
            yield from _wrapped("heading", title, above=0.25)
            yield from _wrapped("small", "; ".join(f"{name}: {value}" for name, value in entries))
    commands = [one.text for one in report.shown_commands if one.text is not None]
    if commands:
        yield from _wrapped("heading", "How to repeat it", above=0.25)
        for command in commands:
            yield from _wrapped("code", command, above=0.05)


def _wrapped(kind: str, text: str, *, above: float = 0.0) -> Iterator[_Line]:
    """Lines that fit the paper."""
    for number, line in enumerate(textwrap.wrap(shorten(text, _LONGEST_TEXT), _CHARACTERS[kind])):
        yield _Line(kind, figure_text(line), 0.0 if number else above)


def _paged(lines: Iterable[_Line]) -> Iterator[list[_Line]]:
    room = _PAPER[1] - 2 * _MARGIN
    page: list[_Line] = []
    used = 0.0
    for line in lines:
        height = line.above + _HEIGHTS[line.kind]
        if page and used + height > room:
            yield page
            page, used = [], 0.0
        page.append(line)
        used += height
    if page:
        yield page


def _text_page(lines: Sequence[_Line]) -> "Figure":
    figure, axes = _blank_page()
    y = _PAPER[1] - _MARGIN
    for line in lines:
        y -= line.above + _HEIGHTS[line.kind]
        is_formula = line.kind == "formula"
        axes.text(
            _PAPER[0] / 2 if is_formula else _MARGIN,
            y + (_HEIGHTS["formula"] / 2 if is_formula else 0.03),
            line.text,
            fontsize=_formula_size(line.text) if is_formula else _SIZES[line.kind],
            fontweight="bold" if line.kind in ("title", "heading") else "normal",
            family=_MONOSPACED if line.kind in ("code", "table") else None,
            color=_SOFT if line.kind == "small" else INK,
            ha="center" if is_formula else "left",
            va="center" if is_formula else "baseline",
        )
        if line.sketch is not None:
            _draw_sketch(figure, line.sketch, y)
    return figure


def _draw_sketch(figure: "Figure", sketch: LossShapeSketch, y: float) -> None:
    width, height = 0.7, 0.17
    left, bottom = (_PAPER[0] - _MARGIN - width) / _PAPER[0], y / _PAPER[1]
    small = figure.add_axes((left, bottom, width / _PAPER[0], height / _PAPER[1]))
    small.set_axis_off()
    for values in sketch.values:
        small.plot(sketch.positions, values, linewidth=0.7, color=BLUE)


def _titled(shown: ShownFigure) -> "Bbox":
    """The figure's title written above it, and the page around both: as wide as paper, as high as they need."""
    from matplotlib.transforms import Bbox

    # Laid out before the page is put around it, or legends would move to the edges of the paper.
    shown.figure.draw_without_rendering()
    shown.figure.set_layout_engine("none")
    for legend in shown.figure.legends:
        legend.set_bbox_to_anchor((0.0, 0.0, 1.0, 1.0), transform=shown.figure.transFigure)
    width, height = shown.figure.get_size_inches()
    side = (_PAPER[0] - width) / 2
    shown.figure.text(
        (_MARGIN - side) / width, 1 + 0.2 / height, figure_text(shorten(shown.title, _CHARACTERS["heading"])),
        fontsize=_SIZES["heading"], fontweight="bold", color=INK,
    ).set_in_layout(False)  # fmt: skip
    return Bbox.from_extents(-side, -_MARGIN / 2, width + side, height + _MARGIN)


def _blank_page() -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=_PAPER)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0, _PAPER[0])
    axes.set_ylim(0, _PAPER[1])
    return figure, axes
