"""The ancestors of the best candidate: generation against fitness, with the changes of the main line as text."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evomal.analysis.ancestry import Ancestor, Ancestry, Change
from evomal.analysis.counting import counted
from evomal.report.harmless import cut
from evomal.report.style import BLUE, GREY, VERMILLION, figure_style, in_figure, new_figure, sentence_figure
from evomal.report.value_axis import counting_axis, cut_axis, label_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_HEIGHT, _LINE_HEIGHT = 2.7, 0.135
_MOST_STEPS = 12
_LINE_LENGTH = 118
_TEXT_SIZE = 6.0
_LONGEST_TITLE = 90
_LEAST_PART = 12  # characters


def draw_ancestry(data: Ancestry) -> "Figure":
    """A figure of page width: ancestors above, the main line's changes below."""
    if not data.ancestors:
        return sentence_figure(data.sentence, "page")
    lines = change_lines(data.changes(), most=_MOST_STEPS, length=_LINE_LENGTH)
    if data.sentence:
        lines.insert(0, cut(data.sentence, _LINE_LENGTH))
    text_height = _LINE_HEIGHT * (len(lines) + 1)
    figure = new_figure("page", _PANEL_HEIGHT + text_height)
    with figure_style():
        axes, below = figure.subplots(2, 1, gridspec_kw={"height_ratios": [_PANEL_HEIGHT, text_height]})
        below.set_axis_off()
        text = "\n".join(map(in_figure, lines))
        written = below.text(0, 1, text, family="DejaVu Sans Mono", fontsize=_TEXT_SIZE, va="top")
        written.set_in_layout(False)  # it is cut to fit, and must not narrow the panel above
        axes.set_title(in_figure(cut(f"{data.method}, {data.task}", _LONGEST_TITLE)), loc="left")
        _draw(axes, data)
        figure.legend(loc="outside upper center", ncols=4)
    return figure


def change_lines(changes: Sequence[Change], *, most: int, length: int) -> list[str]:
    """The steps of a main line in at most so many lines of at most that length: the first, then the last ones."""
    shown: list[Change | int] = [*changes]
    if len(changes) > most:
        shown = [changes[0], len(changes) - most + 1, *changes[len(changes) - most + 2 :]]
    return [
        f"… {counted(entry, 'step')} …" if isinstance(entry, int) else _line(entry, length=length) for entry in shown
    ]


def _line(change: Change, *, length: int) -> str:
    row = change.ancestor
    value = "none" if math.isnan(row.value) else f"{row.value:.4g}"
    head = f"{row.generation:>4} {cut(row.origin, 9):<9} {value:>9}  "
    if not change.replaced:
        return head + cut(change.replacement, length - len(head))
    room = length - len(head) - len(" → ")
    # Either part may have what the other leaves, but neither takes all.
    for_old = max(_LEAST_PART, min(len(change.replaced), room - min(len(change.replacement), room // 2)))
    return f"{head}{cut(change.replaced, for_old)} → {cut(change.replacement, room - for_old)}"


def _draw(axes: "Axes", data: Ancestry) -> None:
    from matplotlib.collections import LineCollection

    rows = data.ancestors
    low, high = cut_axis(axes, [row.value for row in rows], higher_is_better=data.higher_is_better)
    worst = low if data.higher_is_better else high

    def place(row: Ancestor) -> tuple[float, float]:
        # What has no value, or lies beyond the axis, stands at its edge.
        return row.generation, worst if math.isnan(row.value) else min(max(row.value, low), high)

    places = [place(row) for row in rows]
    lines = [(places[parent], places[child]) for parent, child in data.edges]
    axes.add_collection(LineCollection(lines, colors=GREY, linewidths=0.4, alpha=0.5, zorder=1))
    is_beyond = [not low <= row.value <= high for row in rows]
    for beyond, marker, what in (
        (False, "o", f"{counted(len(rows) - 1, 'ancestor')} ({data.left_out} copies left out)"),
        (True, "v" if data.higher_is_better else "^", f"{sum(is_beyond)} without a value or beyond the axis"),
    ):
        found = [at for at, is_so in zip(places[:-1], is_beyond[:-1], strict=True) if is_so == beyond]
        if found:
            axes.plot(
                *_columns(found), color=GREY, linestyle="", marker=marker, markersize=3.5 if beyond else 2.5, zorder=2,
                clip_on=not beyond, label=what,
            )  # fmt: skip
    line = [places[position] for position in data.main_line]
    if len(line) > 1:
        axes.plot(*_columns(line), color=BLUE, marker="o", markersize=3.5, zorder=3, label="fittest parents")
    axes.plot(*_columns(line[-1:]), color=VERMILLION, linestyle="", marker="D", markersize=5, zorder=4, label="best")
    axes.set_xlabel("generation")
    axes.set_ylabel(label_of(data.metric, higher_is_better=data.higher_is_better))
    axes.set_xlim(0.5, rows[-1].generation + 0.5)
    counting_axis(axes)


def _columns(places: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in places], [y for _, y in places]
