"""The best distinct losses of runs, with their shapes."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evomal.errors import EvomalError
from evomal.expression import Expression
from evomal.expression.variation import scaled
from evomal.figures.data import single_precision, span, table
from evomal.figures.front import formula_of
from evomal.figures.loss_shape import loss_curves, shape_positions
from evomal.figures.style import FloatArray
from evomal.losses.loss import Loss
from evomal.methods.candidates import Candidate
from evomal.runs.leads import Scores
from evomal.runs.recorded_run import Run, Runs

_MOST_ROWS = 20
_POINTS = 41
_SAME = 1e-5  # of the span of the values


@dataclass(frozen=True)
class LossShapeSketch:
    """A loss at a few positions: enough to tell it from others, and for a small drawing."""

    position_name: str
    positions: FloatArray
    values: tuple[FloatArray, ...]
    """The loss of a sample: one curve, or one for each y."""
    others: tuple[FloatArray, ...]
    """The contributions of single outputs, for losses that are sums over outputs."""

    def is_same(self, other: "LossShapeSketch") -> bool:
        """Returns whether both have the same values, up to rounding."""
        mine, theirs = (*self.values, *self.others), (*other.values, *other.others)
        if self.position_name != other.position_name or len(mine) != len(theirs):
            return False
        return all(
            np.allclose(one, two, rtol=0, atol=_SAME * span(one), equal_nan=True)
            for one, two in zip(mine, theirs, strict=True)
        )


@dataclass(frozen=True)
class RankedLoss:
    """One of the best losses; of equal ones, the best candidate."""

    run: Run
    candidate: Candidate
    formula: str
    """Simplified, with rounded weights; as recorded if rounding changes the loss."""
    sketch: LossShapeSketch | None
    """None if the record holds no valid loss."""
    again: int
    """How many equal losses come after it in the ranking."""
    scores: Scores | None = None
    """Its scores in the final of its search; None if it was not in one."""

    @property
    def value(self) -> float:
        """The metric."""
        return self.run.value(self.candidate.fitness)

    @property
    def mean(self) -> float | None:
        """The mean of the metric in the final; None if it was not in one, or diverged there."""
        if self.scores is None or not math.isfinite(self.scores.mean):
            return None
        return self.run.value(self.scores.mean)

    @property
    def size(self) -> int | None:
        """The number of nodes of its tree; None if it has none."""
        return self.candidate.size

    @property
    def generation(self) -> int:
        """Counted from 1."""
        return self.candidate.generation + 1

    def loss(self) -> Loss | None:
        """Returns the loss as the search saves it; None if the record holds no valid one."""
        return candidate_loss(self.run, self.candidate)


@dataclass(frozen=True)
class BestLosses:
    """The best of the runs on one task."""

    task: str
    metric: str
    higher_is_better: bool
    trained: int
    """How many losses were trained."""
    rows: tuple[RankedLoss, ...]
    """Best first."""

    def columns(self) -> dict[str, list[Any]]:
        """Returns a table with one row per loss."""
        return table(
            ("rank", self.metric, "size", "formula", "method", "seed", "generation", "final mean", "origin", "genome"),
            (
                (
                    rank, row.value, row.size, row.formula, row.run.method, row.run.seed, row.generation, row.mean,
                    row.candidate.origin, row.candidate.genome,
                )
                for rank, row in enumerate(self.rows, 1)
            ),
        )  # fmt: skip


def candidate_loss(run: Run, candidate: Candidate) -> Loss | None:
    """The loss of a candidate as the search would save it: scaled as it was trained, in the units of the task."""
    try:
        if isinstance(form := candidate.form, Expression) and candidate.factor > 0:
            tree, weights = scaled(form, candidate.weights, candidate.factor)
            candidate = dataclasses.replace(candidate, genome=str(tree), weights=weights, factor=1.0)
    except (EvomalError, ArithmeticError, LookupError, ValueError):
        return None
    loss = run.loss(candidate)
    return loss.in_units(run.units) if loss is not None and loss.kind == "regression" else loss


def best_losses(runs: Runs) -> tuple[BestLosses, ...]:
    """Rank the losses of each task: first those that were in a final, by their mean there, then the others by fitness.

    Ties go to the smaller loss, then to the earlier one. Losses with equal shapes count as one, and so do losses with
    equal formulas.
    """
    return tuple(
        _ranked(task, metric, [run for group in methods.values() for run in group])
        for (task, metric), methods in runs.by_method().items()
    )


def _ranked(task: str, metric: str, runs: Sequence[Run]) -> BestLosses:
    found = [(run, candidate) for run in runs for candidate in run.trained]
    found.sort(key=lambda pair: _rank(*pair))
    rows: list[RankedLoss] = []
    for run, candidate in found:
        row = _row(run, candidate, rows)
        if isinstance(row, int):
            rows[row] = dataclasses.replace(rows[row], again=rows[row].again + 1)
        elif len(rows) == _MOST_ROWS:
            break
        else:
            rows.append(row)
    return BestLosses(task, metric, runs[0].higher_is_better, len(found), tuple(rows))


def _row(run: Run, candidate: Candidate, rows: Sequence[RankedLoss]) -> RankedLoss | int:
    """A new row, or the index of a row with an equal loss."""
    # From the cheapest comparison to the most expensive one.
    for place, row in enumerate(rows):
        if (row.candidate.genome, row.candidate.weights) == (candidate.genome, candidate.weights):
            return place
    sketch = _sketch(run, candidate)
    for place, row in enumerate(rows):
        if sketch is not None and row.sketch is not None and sketch.is_same(row.sketch):
            return place
    formula = _formula(candidate, sketch)
    for place, row in enumerate(rows):
        if _has_numbers_in_formula(candidate) and row.formula == formula:
            return place
    return RankedLoss(run, candidate, formula, sketch, 0, _scores(run, candidate))


def _rank(run: Run, candidate: Candidate) -> tuple[Any, ...]:
    scores = _scores(run, candidate)
    cost = (0.0, scores.mean) if scores is not None else (1.0, 0.0)
    return (*cost, *candidate.rank)


def _scores(run: Run, candidate: Candidate) -> Scores | None:
    entries = () if run.final is None else run.final.candidates
    place = (candidate.generation, candidate.index)
    return next((scores for row, scores in entries if (row.generation, row.index) == place), None)


def _has_numbers_in_formula(candidate: Candidate) -> bool:
    """Whether its formula contains its numbers; that of a network does not."""
    return "(" in candidate.genome or candidate.genome.startswith("[")


def _sketch(run: Run, candidate: Candidate) -> LossShapeSketch | None:
    loss = run.loss(candidate)
    if loss is None:
        return None
    classes = run.classes
    positions = shape_positions(loss.kind, points=_POINTS, classes=classes)
    curves, outputs = loss_curves(loss, positions, classes=classes)
    return LossShapeSketch(
        "f - y" if loss.kind == "regression" else "p",
        positions,
        tuple(single_precision(curve.value) for curve in curves),
        tuple(single_precision(curve.value) for curve in outputs),
    )


def _formula(candidate: Candidate, sketch: LossShapeSketch | None) -> str:
    formula = formula_of(candidate)
    is_number = formula.replace(".", "", 1).lstrip("-").isdigit() or formula == "nan"
    is_flat = sketch is not None and all(span(values) == 0 for values in sketch.values)
    # A loss that has a shape is not a number: rounding or the limit of ε has removed the rest.
    return candidate.genome if is_number and not is_flat else formula
