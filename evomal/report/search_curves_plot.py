"""Meta-training curves, a row a task: against generations on the left, against evaluations on the right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evomal.analysis.line_scans import FloatArray
from evomal.analysis.search_curves import RivalLevel, SearchCurve, SearchCurves
from evomal.methods import METHODS
from evomal.report.bands import add_note, line_style, shown_name
from evomal.report.harmless import cut
from evomal.report.style import figure_style, in_figure, new_figure, sentence_figure
from evomal.report.value_axis import counting_axis, cut_axis, drawable, label_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_HEIGHT, _HEIGHT_OF_THE_REST = 2.1, 0.65
_LEGEND_COLUMNS = 5
_LONGEST_TITLE = 60
_FAR_OUT = 2.5  # times the span of what must be seen
_LABEL = {"generation": "generation", "evaluations": "losses trained with"}
_CAPTION = (
    "mean of the searches, band: ±1 standard deviation; "
    "complete searches keep their best, others leave the mean at a dot"
)
_LEVEL_COLOUR = "0.35"
_CUT = "; the worst values lie beyond the axis"


def draw_search_curves(data: SearchCurves) -> "Figure":
    """A figure of page width: a line for each method, the same in every panel."""
    if not data.curves:
        return sentence_figure(data.sentence, "page")
    tasks = list(dict.fromkeys((curve.task, curve.metric) for curve in data.curves))
    styles = method_styles([curve.method for curve in data.curves])
    figure = new_figure("page", _ROW_HEIGHT * len(tasks) + _HEIGHT_OF_THE_REST)
    is_cut = False
    with figure_style():
        panels = figure.subplots(len(tasks), 2, squeeze=False, sharey="row", gridspec_kw={"wspace": 0.06})
        for row, task in zip(panels, tasks, strict=True):
            of_task = [curve for curve in data.curves if (curve.task, curve.metric) == task]
            levels = _shown_rivals(data.rivals, task, higher_is_better=of_task[0].higher_is_better)
            for axes, against in zip(row, _LABEL, strict=True):
                axes.set_xlabel(_LABEL[against])
                _draw(axes, [curve for curve in of_task if curve.against == against], styles)
                _draw_levels(axes, levels)
            row[0].set_ylabel(label_of(task[1], higher_is_better=of_task[0].higher_is_better))
            row[0].set_title(in_figure(cut(task[0], _LONGEST_TITLE)), loc="left")
            shown = np.concatenate([_shown(of_task), [level.mean for level in levels]])
            low, high = cut_axis(row[0], shown, higher_is_better=of_task[0].higher_is_better)
            drawn = _finite([edge for curve in of_task for edge in (curve.mean, *curve.band)])
            is_cut = is_cut or bool(np.any((drawn < low) | (drawn > high)))
        add_note(figure, _CAPTION + (_CUT if is_cut else ""))
        handles = [*_handles(data.curves, styles), *_level_handles(data.rivals)]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(_LEGEND_COLUMNS, len(handles)))
    return figure


def method_styles(methods: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Colour and dashes of each method: those of evomal the same in every figure, any others behind them."""
    unknown = [method for method in dict.fromkeys(methods) if method not in METHODS]
    order = [*METHODS, *unknown]
    return {method: line_style(place) for place, method in enumerate(order) if method in methods}


def _draw(axes: "Axes", curves: Sequence[SearchCurve], styles: dict[str, tuple[str, Any]]) -> None:
    for curve in curves:
        colour, dashes = styles[curve.method]
        marker = "o" if len(curve.positions) == 1 else ""
        axes.plot(
            curve.positions,
            drawable(curve.mean),
            color=colour,
            linestyle=dashes,
            label=shown_name(curve.method),
            marker=marker,
        )
        low, high = (drawable(edge) for edge in curve.band)
        axes.fill_between(curve.positions, low, high, color=colour, alpha=0.12, linewidth=0)
        ends = np.flatnonzero(np.diff(curve.searches) < 0)
        axes.plot(
            curve.positions[ends], drawable(curve.mean[ends]), color=colour, linestyle="", marker="o", markersize=3
        )
    counting_axis(axes)


def _shown_rivals(rivals: Sequence[RivalLevel], task: tuple[str, str], *, higher_is_better: bool) -> list[RivalLevel]:
    """The baseline of a task and its best rival: more lines would hide the curves."""
    of_task = [level for level in rivals if (level.task, level.metric) == task]
    if not of_task:
        return []
    best = (max if higher_is_better else min)(of_task, key=lambda level: level.mean)
    return [level for level in of_task if level.is_baseline or level is best]


def _draw_levels(axes: "Axes", levels: Sequence[RivalLevel]) -> None:
    for level in levels:
        axes.axhline(level.mean, color=_LEVEL_COLOUR, linestyle=_level_dashes(level), linewidth=0.9, zorder=1)
        if not level.is_baseline:
            place = axes.get_yaxis_transform()
            name = in_figure(cut(level.name, _LONGEST_TITLE))
            axes.text(0.99, level.mean, name, transform=place, ha="right", va="bottom", fontsize=6, color=_LEVEL_COLOUR)


def _level_dashes(level: RivalLevel) -> str:
    return "--" if level.is_baseline else ":"


def _level_handles(rivals: Sequence[RivalLevel]) -> list[Any]:
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(level.name for level in rivals if level.is_baseline))
    if not names:
        return []
    own = f"own loss ({', '.join(map(shown_name, names))})"
    handles = [Line2D([], [], color=_LEVEL_COLOUR, linestyle="--", label=own)]
    if any(not level.is_baseline for level in rivals):
        handles.append(Line2D([], [], color=_LEVEL_COLOUR, linestyle=":", label="best rival"))
    return handles


def _shown(curves: Sequence[SearchCurve]) -> FloatArray:
    """What the axis must hold: all of the bands, or where some would flatten the rest, what comes after the first
    quarter without the bands' worse edges."""
    whole: list[FloatArray] = []
    later: list[FloatArray] = []
    for curve in curves:
        better, worse = reversed(curve.band) if curve.higher_is_better else curve.band
        begin = len(curve.positions) // 4
        whole += [curve.mean, better, worse]
        later += [curve.mean[begin:], better[begin:]]
    of_whole, of_later = _finite(whole), _finite(later)
    return of_whole if np.ptp(of_whole) <= _FAR_OUT * np.ptp(of_later) else of_later


def _finite(parts: Sequence[FloatArray]) -> FloatArray:
    values = drawable(np.concatenate(parts))
    return values[np.isfinite(values)]


def _handles(curves: Sequence[SearchCurve], styles: dict[str, tuple[str, Any]]) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = []
    for method, (colour, dashes) in styles.items():
        totals = sorted({curve.total for curve in curves if curve.method == method})
        counts = str(totals[0]) if len(totals) == 1 else f"{totals[0]} to {totals[-1]}"
        label = f"{shown_name(method)} (n = {counts})"
        handles.append(Line2D([], [], color=colour, linestyle=dashes, label=label))
    return handles
