"""Meta-training curves: the best so far against generations, or against evaluations (EvoMAL, figure 4)."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evomal.analysis.chosen_runs import Run, Runs
from evomal.analysis.line_scans import FloatArray
from evomal.strategies import State

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
