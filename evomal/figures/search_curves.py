"""Meta-training curves: the best so far against generations, or against evaluations (EvoMAL, figure 4)."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from evomal.figures.scans import FloatArray
from evomal.figures.style import (
    add_note,
    counting_axis,
    cut_axis,
    drawable,
    figure_style,
    in_figure,
    label_of,
    line_style,
    new_figure,
    sentence_figure,
    shown_name,
)
from evomal.methods import METHODS
from evomal.methods.outcomes import State
from evomal.runs.reading import Run, Runs
from evomal.text import shorten

Axis = Literal["generation", "evaluations"]


@dataclass(frozen=True)
class SearchCurve:
    """The best so far, of the searches of one method on one task."""

    task: str
    metric: str
    higher_is_better: bool
    method: str
    against: Axis
    positions: npt.NDArray[np.int64]
    """From 1 on, those at which any search has a value."""
    mean: FloatArray
    """Of the searches that had trained something by then. One that is complete keeps its best to the end of the curve,
    as it is over; one that is not leaves the mean where its record ends, as it might have found better."""
    deviation: FloatArray
    """Standard deviation; NaN where there is one search alone."""
    searches: npt.NDArray[np.int64]
    """How many the mean is of, at each position."""
    carried: npt.NDArray[np.int64]
    """How many of them were over by then."""
    total: int
    """How many there are at all."""

    @property
    def band(self) -> tuple[FloatArray, FloatArray]:
        """A standard deviation below the mean, and one above."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.mean - self.deviation, self.mean + self.deviation


@dataclass(frozen=True)
class RivalLevel:
    """What training with a known loss came to under the protocol of candidates, over the searches on one task."""

    task: str
    metric: str
    name: str
    is_baseline: bool
    mean: float
    """Of the searches in which it did not diverge."""
    deviation: float
    """Standard deviation; NaN where there is one search alone."""
    searches: int


@dataclass(frozen=True)
class SearchCurves:
    """All curves, by task, axis and method."""

    curves: tuple[SearchCurve, ...]
    sentence: str
    """Why there is no curve."""
    notes: tuple[str, ...] = ()
    rivals: tuple[RivalLevel, ...] = ()
    """The baseline of each task first, then its rivals."""

    def columns(self) -> dict[str, list[Any]]:
        """A row for each position of each curve, and one for each rival, which has no position."""
        columns: dict[str, list[Any]] = {
            name: []
            for name in (
                "task",
                "metric",
                "method",
                "against",
                "position",
                "mean",
                "standard deviation",
                "searches",
                "carried on",
            )
        }
        for curve in self.curves:
            rows = zip(
                *(
                    values.tolist()
                    for values in (curve.positions, curve.mean, curve.deviation, curve.searches, curve.carried)
                ),
                strict=True,
            )
            for row in rows:
                described = (curve.task, curve.metric, curve.method, curve.against, *row)
                for column, value in zip(columns.values(), described, strict=True):
                    column.append(value)
        for rival in self.rivals:
            row = (rival.mean, rival.deviation, rival.searches, 0)
            described = (rival.task, rival.metric, rival.name, "rival", None, *row)
            for column, value in zip(columns.values(), described, strict=True):
                column.append(value)
        return columns


def search_curves(runs: Runs) -> SearchCurves:
    """Curves against generations and against evaluations, one of each for every task and method.

    An evaluation is a training that was paid for, also one that diverged. Those of a generation were done together and
    count in the order of their places.
    """
    best: dict[Axis, Callable[[Run], FloatArray]] = {
        "generation": best_by_generation,
        "evaluations": best_by_evaluation,
    }
    curves = [
        curve
        for methods in runs.by_method().values()
        for against, best_by in best.items()
        for group in methods.values()
        if (curve := _curve(group, against, [best_by(run) for run in group])) is not None
    ]
    sentence = runs.sentence or ("" if curves else "nothing was trained in these runs")
    rivals = [
        level
        for methods in runs.by_method().values()
        for level in _levels([run for group in methods.values() for run in group])
    ]
    return SearchCurves(tuple(curves), sentence, runs.notes, tuple(rivals) if curves else ())


def best_by_generation(run: Run) -> FloatArray:
    """The best value after each generation; NaN where nothing had been trained by then."""
    least = np.full(run.generations, np.inf)
    for candidate in run.candidates:
        if candidate.state is State.EVALUATED:
            least[candidate.generation] = min(least[candidate.generation], candidate.fitness)
    return _best_so_far(run, least)


def best_by_evaluation(run: Run) -> FloatArray:
    """The best value after each training; NaN where all had diverged by then."""
    paid = [
        candidate for candidate in run.computed if candidate.state is State.EVALUATED or "evaluate" in candidate.seconds
    ]
    return _best_so_far(
        run, np.array([row.fitness if row.state is State.EVALUATED else math.inf for row in paid], dtype=np.float64)
    )


def _levels(runs: Sequence[Run]) -> list[RivalLevel]:
    """Of each rival that any of these runs on one task recorded, without those that diverged everywhere."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for name, fitness in run.rivals.items():
            found.setdefault(name, []).extend([run.value(fitness)] if math.isfinite(fitness) else [])
    baseline, first = next(iter(found), None), runs[0]
    return [
        RivalLevel(
            first.task, first.metric, name, name == baseline, statistics.fmean(values),
            statistics.stdev(values) if len(values) > 1 else math.nan, len(values),
        )
        for name, values in found.items()
        if values
    ]  # fmt: skip


def _best_so_far(run: Run, fitnesses: FloatArray) -> FloatArray:
    least = np.minimum.accumulate(fitnesses) if len(fitnesses) else fitnesses
    return np.where(np.isfinite(least), run.value(1.0) * least, np.nan)


def _curve(group: Sequence[Run], against: Axis, values: Sequence[FloatArray]) -> SearchCurve | None:
    longest = max(map(len, values))
    table = np.full((len(values), longest), np.nan)
    carried = np.zeros(longest, dtype=np.int64)
    for run, row, found in zip(group, table, values, strict=True):
        row[: len(found)] = found
        if run.is_complete and len(found) and np.isfinite(found[-1]):
            row[len(found) :] = found[-1]
            carried[len(found) :] += 1
    counts = np.isfinite(table).sum(axis=0)
    is_known = counts > 0
    if not is_known.any():
        return None
    table, counts = table[:, is_known], counts[is_known]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.nansum(table, axis=0) / counts
        squares = np.nansum((table - mean) ** 2, axis=0)
        deviation = np.sqrt(np.where(counts > 1, squares, np.nan) / np.maximum(counts - 1, 1))
    first = group[0]
    return SearchCurve(
        first.task, first.metric, first.higher_is_better, first.method, against,
        1 + np.flatnonzero(is_known), mean, deviation, counts, carried[is_known], len(group),
    )  # fmt: skip


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
            row[0].set_title(in_figure(shorten(task[0], _LONGEST_TITLE)), loc="left")
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
            name = in_figure(shorten(level.name, _LONGEST_TITLE))
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
