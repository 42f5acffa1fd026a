"""The best distinct losses of some runs, with their shapes."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evomal.figures.front import formula_of
from evomal.figures.loss_shape import loss_curves, shape_positions
from evomal.figures.scans import FloatArray, single_precision
from evomal.losses.contract import Loss
from evomal.runs import RecordedCandidate
from evomal.runs.finals import Scores
from evomal.runs.reading import Run, Runs, classes_of, loss_of, units_of

MOST = 20
_POINTS = 41
_SAME = 1e-5  # of the span of the values


@dataclass(frozen=True)
class LossShapeSketch:
    """A loss at a few positions: enough to tell it from others, and to draw it small."""

    position_name: str
    positions: FloatArray
    values: tuple[FloatArray, ...]
    """What a sample costs: one curve, or one for each y."""
    others: tuple[FloatArray, ...]
    """What single outputs add, where that can be told."""

    def is_same(self, other: "LossShapeSketch") -> bool:
        """Whether the two lie upon each other."""
        mine, theirs = (*self.values, *self.others), (*other.values, *other.others)
        if self.position_name != other.position_name or len(mine) != len(theirs):
            return False
        return all(
            np.allclose(one, two, rtol=0, atol=_SAME * _span(one), equal_nan=True)
            for one, two in zip(mine, theirs, strict=True)
        )


@dataclass(frozen=True)
class RankedLoss:
    """One of the best, as first recorded."""

    run: Run
    candidate: RecordedCandidate
    formula: str
    """Simplified, with its weights rounded; as recorded where the formula says something else."""
    sketch: LossShapeSketch | None
    """None where a stranger recorded what is no loss."""
    again: int
    """How many further ones are the same, among those that came before the last of the ranking."""
    scores: Scores | None = None
    """What it came to in the final of its search; None where it was not in one."""

    @property
    def value(self) -> float:
        """The metric itself."""
        return self.run.value(self.candidate.fitness)

    @property
    def mean(self) -> float | None:
        """The mean of the metric in the final; None where it was not in one, or diverged there."""
        if self.scores is None or not math.isfinite(self.scores.mean):
            return None
        return self.run.value(self.scores.mean)

    @property
    def size(self) -> int | None:
        """Nodes of its tree; None where it cannot be told."""
        return self.candidate.size

    @property
    def generation(self) -> int:
        """Counted from 1."""
        return self.candidate.generation + 1

    def loss(self) -> Loss | None:
        """To use again, in the units it was learned in, where it can be made."""
        loss = loss_of(self.run, self.candidate)
        return loss.in_units(units_of(self.run)) if loss is not None and loss.kind == "regression" else loss


@dataclass(frozen=True)
class BestLosses:
    """The best of the runs on one task."""

    task: str
    metric: str
    higher_is_better: bool
    trained: int
    """How many losses were trained with in all."""
    rows: tuple[RankedLoss, ...]
    """Best first; none where nothing was trained."""

    def columns(self) -> dict[str, list[Any]]:
        """A row for each loss."""
        return {
            "rank": list(range(1, len(self.rows) + 1)),
            self.metric: [row.value for row in self.rows],
            "size": [row.size for row in self.rows],
            "formula": [row.formula for row in self.rows],
            "method": [row.run.method for row in self.rows],
            "seed": [row.run.seed for row in self.rows],
            "generation": [row.generation for row in self.rows],
            "final mean": [row.mean for row in self.rows],
            "origin": [row.candidate.origin for row in self.rows],
            "genome": [row.candidate.genome for row in self.rows],
        }


def best_losses(runs: Runs, *, most: int = MOST) -> tuple[BestLosses, ...]:
    """For each task first the losses that were in a final, by their mean there, then those of least fitness.

    Ties go to the smaller, then the earlier. Losses whose shapes lie upon each other are one, and so are those whose
    formulas read alike.
    """
    return tuple(
        _ranked(task, metric, [run for group in methods.values() for run in group], most)
        for (task, metric), methods in runs.by_method().items()
    )


def _ranked(task: str, metric: str, runs: Sequence[Run], most: int) -> BestLosses:
    found = [(run, candidate) for run in runs for candidate in run.trained]
    found.sort(key=lambda pair: _rank(*pair))
    rows: list[RankedLoss] = []
    for run, candidate in found:
        row = _row(run, candidate, rows)
        if isinstance(row, int):
            rows[row] = _seen_again(rows[row])
        elif len(rows) == most:
            break
        else:
            rows.append(row)
    return BestLosses(task, metric, runs[0].higher_is_better, len(found), tuple(rows))


def _row(run: Run, candidate: RecordedCandidate, rows: Sequence[RankedLoss]) -> RankedLoss | int:
    """A new row, or the place of the one that says the same."""
    # Texts are compared before shapes, and those before formulas, from the cheapest to the dearest.
    for place, row in enumerate(rows):
        if (row.candidate.genome, row.candidate.weights) == (candidate.genome, candidate.weights):
            return place
    sketch = _sketch(run, candidate)
    for place, row in enumerate(rows):
        if sketch is not None and row.sketch is not None and sketch.is_same(row.sketch):
            return place
    formula = _formula(candidate, sketch)
    for place, row in enumerate(rows):
        if _is_told_by_formula(candidate) and row.formula == formula:
            return place
    return RankedLoss(run, candidate, formula, sketch, 0, _scores(run, candidate))


def _rank(run: Run, candidate: RecordedCandidate) -> tuple[float, ...]:
    scores = _scores(run, candidate)
    cost = (0.0, scores.mean) if scores is not None else (1.0, candidate.fitness)
    return (*cost, candidate.fitness, _size(candidate), candidate.generation, candidate.index)


def _scores(run: Run, candidate: RecordedCandidate) -> Scores | None:
    entries = () if run.final is None else run.final.candidates
    place = (candidate.generation, candidate.index)
    return next((scores for row, scores in entries if (row.generation, row.index) == place), None)


def _seen_again(row: RankedLoss) -> RankedLoss:
    return dataclasses.replace(row, again=row.again + 1)


def _is_told_by_formula(candidate: RecordedCandidate) -> bool:
    """Whether its numbers stand in its formula; those of a network do not."""
    return "(" in candidate.genome or candidate.genome.startswith("[")


def _sketch(run: Run, candidate: RecordedCandidate) -> LossShapeSketch | None:
    loss = loss_of(run, candidate)
    if loss is None:
        return None
    classes = classes_of(run)
    positions = shape_positions(loss.kind, points=_POINTS, classes=classes)
    curves, outputs = loss_curves(loss, positions, classes=classes)
    return LossShapeSketch(
        "f - y" if loss.kind == "regression" else "p",
        positions,
        tuple(single_precision(curve.value) for curve in curves),
        tuple(single_precision(curve.value) for curve in outputs),
    )


def _formula(candidate: RecordedCandidate, sketch: LossShapeSketch | None) -> str:
    formula = formula_of(candidate)
    is_number = formula.replace(".", "", 1).lstrip("-").isdigit() or formula == "nan"
    is_flat = sketch is not None and all(_span(values) == 0 for values in sketch.values)
    # Rounded away, or a limit that does not hold: what is trained with has a shape, so it is no number.
    return candidate.genome if is_number and not is_flat else formula


def _span(values: FloatArray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite)) if finite.size else 0.0


def _size(candidate: RecordedCandidate) -> float:
    return candidate.size or math.inf
