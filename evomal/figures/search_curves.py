"""Search curves: the best value so far against generations, and against evaluations (EvoMAL, figure 4)."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evomal.figures import style
from evomal.figures.data import table
from evomal.figures.style import Axes, Figure, FloatArray
from evomal.methods import METHODS
from evomal.methods.candidates import State
from evomal.runs.generations import best_so_far
from evomal.runs.recorded_run import Run, Runs

Axis = Literal["generation", "evaluations"]


@dataclass(frozen=True)
class SearchCurve:
    """The best value so far of the searches of one method on one task."""

    task: str
    metric: str
    higher_is_better: bool
    method: str
    against: Axis
    positions: npt.NDArray[np.int64]
    """Counted from 1; those at which any search has a value."""
    mean: FloatArray
    """Over the searches that had trained something by then. A complete search keeps its best value to the end of the
    curve; an incomplete one, which might have found better, leaves the mean where its record ends."""
    deviation: FloatArray
    """The standard deviation; NaN for a single search."""
    searches: npt.NDArray[np.int64]
    """The number of searches in the mean at each position."""
    carried: npt.NDArray[np.int64]
    """How many of them had ended by then."""
    total: int
    """The number of searches."""

    @property
    def band(self) -> tuple[FloatArray, FloatArray]:
        """One standard deviation below the mean, and one above."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.mean - self.deviation, self.mean + self.deviation


@dataclass(frozen=True)
class RivalLevel:
    """The value of a known loss, trained in the same way as candidates, over the searches on one task."""

    task: str
    metric: str
    name: str
    is_baseline: bool
    mean: float
    """Over the searches in which it did not diverge."""
    deviation: float
    """The standard deviation; NaN for a single search."""
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
        """Return a table with one row per position of each curve, and one per rival, which has no position."""
        rows: list[tuple[Any, ...]] = []
        for curve in self.curves:
            parts = (curve.positions, curve.mean, curve.deviation, curve.searches, curve.carried)
            for row in zip(*(part.tolist() for part in parts), strict=True):
                rows.append((curve.task, curve.metric, curve.method, curve.against, *row))
        rows += [
            (level.task, level.metric, level.name, "rival", None, level.mean, level.deviation, level.searches, 0)
            for level in self.rivals
        ]
        names = "task", "metric", "method", "against", "position", "mean", "standard deviation", "searches"
        return table((*names, "carried on"), rows)


def search_curves(runs: Runs) -> SearchCurves:
    """Average the best values of searches, for each task and method, against generations and against evaluations.

    An evaluation is a training that was computed, even if it diverged. Those of one generation, which were computed
    together, count in the order of their places.
    """
    curves, rivals = [], []
    for methods in runs.by_method().values():
        found = [_curve(group, "generation", map(best_by_generation, group)) for group in methods.values()]
        found += [_curve(group, "evaluations", map(best_by_evaluation, group)) for group in methods.values()]
        curves += [curve for curve in found if curve is not None]
        rivals += _levels([run for group in methods.values() for run in group])
    sentence = runs.sentence or ("" if curves else "nothing was trained in these runs")
    return SearchCurves(tuple(curves), sentence, runs.notes, tuple(rivals) if curves else ())


def best_by_generation(run: Run) -> FloatArray:
    """Return the best value on the longest rung after each generation; NaN until something is trained on it."""
    found = run.comparable
    least = best_so_far([one.generation for one in found], [one.fitness for one in found], run.generations)
    return _values(run, least)


def best_by_evaluation(run: Run) -> FloatArray:
    """Return the best value on the longest rung after each training; NaN until one on it does not diverge."""
    comparable = {one.place for one in run.comparable}
    fitnesses = [
        one.fitness if one.place in comparable else math.inf
        for one in run.computed
        if one.state is State.EVALUATED or "evaluate" in one.seconds
    ]
    return _values(run, np.minimum.accumulate(np.array(fitnesses, dtype=np.float64)))


def _values(run: Run, fitness: FloatArray) -> FloatArray:
    return np.where(np.isfinite(fitness), run.value(1.0) * fitness, np.nan)


def _curve(group: Sequence[Run], against: Axis, best: Iterable[FloatArray]) -> SearchCurve | None:
    values = list(best)
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


def _levels(runs: Sequence[Run]) -> list[RivalLevel]:
    """The rivals that any of these runs on one task recorded, without those that always diverged."""
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


_ROW_HEIGHT, _REST_HEIGHT = 2.1, 0.65
_LONGEST_TITLE = 60
_FLATTENING = 2.5  # times the span of the later values
_LABELS: dict[Axis, str] = {"generation": "generation", "evaluations": "losses trained"}
_NOTE = (
    "mean of the searches, band: ±1 standard deviation; "
    "complete searches keep their best, others leave the mean at a dot"
)
_LEVEL_COLOUR = "0.35"


@style.figure_style()
def draw_search_curves(data: SearchCurves) -> Figure:
    """Draw one line per method, in a row of two panels for each task; rivals are horizontal lines."""
    if not data.curves:
        return style.sentence_figure(data.sentence, "page")
    tasks = list(dict.fromkeys((curve.task, curve.metric) for curve in data.curves))
    styles = method_styles([curve.method for curve in data.curves])
    figure = style.new_figure("page", _ROW_HEIGHT * len(tasks) + _REST_HEIGHT)
    grid = figure.subplots(len(tasks), 2, squeeze=False, sharey="row", gridspec_kw={"wspace": 0.06})
    is_cut = False
    for row, task in zip(grid, tasks, strict=True):
        curves = [curve for curve in data.curves if (curve.task, curve.metric) == task]
        higher_is_better = curves[0].higher_is_better
        levels = _shown_rivals(data.rivals, task, higher_is_better=higher_is_better)
        for axes, (against, label) in zip(row, _LABELS.items(), strict=True):
            axes.set_xlabel(label)
            _draw(axes, [curve for curve in curves if curve.against == against], levels, styles)
        row[0].set_title(style.figure_text(task[0], _LONGEST_TITLE), loc="left")
        shown = _with_near_levels(_shown_values(curves), [level.mean for level in levels])
        low, high = style.metric_axis(row[0], task[1], shown, higher_is_better=higher_is_better)
        _name_hidden(row[1], levels, low, high)
        edges = (edge for curve in curves for edge in (curve.mean, *curve.band))
        drawn = _finite([*edges, np.array([level.mean for level in levels])])
        is_cut = is_cut or bool(np.any((drawn < low) | (drawn > high)))
    style.add_note(figure, _NOTE, "the worst values lie beyond the axis" if is_cut else "")
    handles = _legend_lines(data, styles)
    figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)))
    return figure


def method_styles(methods: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return colour and dashes of each method; those of evomal's own methods are the same in every figure."""
    order = dict.fromkeys((*METHODS, *methods))
    return {method: style.line_style(place) for place, method in enumerate(order) if method in methods}


def _draw(
    axes: Axes, curves: Sequence[SearchCurve], levels: Sequence[RivalLevel], styles: dict[str, tuple[str, Any]]
) -> None:
    for curve in curves:
        colour, dashes = styles[curve.method]
        mean, marker = style.drawable(curve.mean), "o" if len(curve.positions) == 1 else ""
        label = style.shown_name(curve.method)
        axes.plot(curve.positions, mean, color=colour, linestyle=dashes, label=label, marker=marker)
        low, high = (style.drawable(edge) for edge in curve.band)
        axes.fill_between(curve.positions, low, high, color=colour, alpha=0.12, linewidth=0)
        ends = np.flatnonzero(np.diff(curve.searches) < 0)
        axes.plot(curve.positions[ends], mean[ends], color=colour, linestyle="", marker="o", markersize=3)
    style.whole_number_axis(axes)
    for level in levels:
        dashes = "--" if level.is_baseline else ":"
        axes.axhline(level.mean, color=_LEVEL_COLOUR, linestyle=dashes, linewidth=0.9, zorder=1)
        if not level.is_baseline:
            axes.text(
                0.99, level.mean, style.figure_text(level.name, _LONGEST_TITLE), transform=axes.get_yaxis_transform(),
                ha="right", va="bottom", fontsize=6, color=_LEVEL_COLOUR, clip_on=True,
            )  # fmt: skip


def _name_hidden(axes: Axes, levels: Sequence[RivalLevel], low: float, high: float) -> None:
    """Write the levels beyond the axis above a panel: the legend would name lines that nobody sees."""
    hidden = [level for level in levels if not low <= level.mean <= high]
    if hidden:
        names = ", ".join(f"{style.figure_text(level.name, _LONGEST_TITLE)} {level.mean:.3g}" for level in hidden)
        axes.set_title(f"beyond the axis: {names}", loc="right", fontsize=6, color=_LEVEL_COLOUR)


def _shown_rivals(rivals: Sequence[RivalLevel], task: tuple[str, str], *, higher_is_better: bool) -> list[RivalLevel]:
    """The baseline of a task and its best rival: more lines would hide the curves."""
    of_task = [level for level in rivals if (level.task, level.metric) == task]
    best = (max if higher_is_better else min)(of_task, key=lambda level: level.mean, default=None)
    return [level for level in of_task if level.is_baseline or level is best]


def _shown_values(curves: Sequence[SearchCurve]) -> FloatArray:
    """What the axis must show: all values, or the better ones after the first quarter if the others flatten these."""
    later: list[FloatArray] = []
    for curve in curves:
        below, above = curve.band
        better, begin = above if curve.higher_is_better else below, len(curve.positions) // 4
        later += [curve.mean[begin:], better[begin:]]
    of_all = _finite(part for curve in curves for part in (curve.mean, *curve.band))
    of_later = _finite(later)
    return of_all if np.ptp(of_all) <= _FLATTENING * np.ptp(of_later) else of_later


def _with_near_levels(values: FloatArray, levels: Sequence[float]) -> FloatArray:
    """The values, and those levels that would not flatten them."""
    if not len(values):
        return np.array(levels)
    reach = (_FLATTENING - 1) * np.ptp(values)
    near = [level for level in levels if values.min() - reach <= level <= values.max() + reach]
    return np.concatenate([values, near])


def _finite(parts: Iterable[FloatArray]) -> FloatArray:
    values = style.drawable(np.concatenate(list(parts)))
    return values[np.isfinite(values)]


def _legend_lines(data: SearchCurves, styles: dict[str, tuple[str, Any]]) -> list[Any]:
    from matplotlib.lines import Line2D

    lines = []
    for method, (colour, dashes) in styles.items():
        totals = sorted({curve.total for curve in data.curves if curve.method == method})
        counts = str(totals[0]) if len(totals) == 1 else f"{totals[0]} to {totals[-1]}"
        lines.append((colour, dashes, f"{style.shown_name(method)} (n = {counts})"))
    baselines = list(dict.fromkeys(style.shown_name(level.name) for level in data.rivals if level.is_baseline))
    if baselines:
        lines.append((_LEVEL_COLOUR, "--", f"baseline ({', '.join(baselines)})"))
        if any(not level.is_baseline for level in data.rivals):
            lines.append((_LEVEL_COLOUR, ":", "best rival"))
    return [Line2D([], [], color=colour, linestyle=dashes, label=label) for colour, dashes, label in lines]
