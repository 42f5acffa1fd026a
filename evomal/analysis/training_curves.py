"""Training curves of several losses: the validation metric with the training loss, step by step."""

import math
import statistics
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evomal.analysis.line_scans import FloatArray
from evomal.analysis.trained_models import FIRST_SEED, Told, mean_and_deviation, trained_models
from evomal.engine import Score
from evomal.tasks.task import Task
from evomal.verdict.contestants import Losses

Quantity = Literal["validation", "training_loss"]


@dataclass(frozen=True)
class TrainingCurve:
    """The trainings with one loss, a score for each seed."""

    name: str
    scores: tuple[Score, ...]

    @property
    def trained(self) -> tuple[Score, ...]:
        """Those that did not diverge."""
        return tuple(score for score in self.scores if not score.diverged)

    @property
    def steps(self) -> list[int]:
        """After how many steps the curve was noted; empty where every training diverged."""
        return [point.step for point in self.trained[0].curve] if self.trained else []

    def over_seeds(self, quantity: Quantity) -> tuple[FloatArray, FloatArray]:
        """Mean and deviation at each step, over the trainings that did not diverge; no deviation (NaN) of one alone."""
        rows = [[getattr(point, quantity) for point in score.curve] for score in self.trained]
        return mean_and_deviation(np.array(rows).reshape(len(rows), len(self.steps)))

    @property
    def test(self) -> float:
        """The mean metric on the test split, over the trainings that did not diverge; NaN where all did."""
        return statistics.fmean(score.test for score in self.trained) if self.trained else math.nan

    @property
    def test_deviation(self) -> float:
        """The sample's deviation of that; NaN for fewer than two."""
        return statistics.stdev(score.test for score in self.trained) if len(self.trained) > 1 else math.nan


@dataclass(frozen=True)
class TrainingCurves:
    """The curves of several losses, from the same seeds."""

    task: str
    metric: str
    steps: int
    seeds: tuple[int, ...]
    losses: tuple[TrainingCurve, ...]
    sentences: tuple[str, ...]
    """What diverged."""
    milestones: tuple[int, ...] = ()
    """Steps at which the learning rate was divided by ten."""

    def columns(self) -> dict[str, list[object]]:
        """A row for each step noted, with what the training came to in the end."""
        names = ("loss", "seed", "step", "validation", "training_loss", "outcome", "test")
        columns: dict[str, list[object]] = {name: [] for name in names}
        for curve in self.losses:
            for score in curve.scores:
                for point in score.curve:
                    row = (
                        curve.name, score.seed, point.step, point.validation, point.training_loss, score.outcome,
                        score.test,
                    )  # fmt: skip
                    for name, value in zip(names, row, strict=True):
                        columns[name].append(value)
        return columns


def training_curves(
    task: Task,
    losses: Losses,
    *,
    points: int = 50,
    seeds: int = 5,
    seed: int = FIRST_SEED,
    steps: int | None = None,
    milestones: tuple[int, ...] | None = None,
    device: str = "auto",
    told: Told | None = None,
) -> TrainingCurves:
    """Train with each loss; its curve is noted at about so many points, the training loss being that of one batch."""
    scores: dict[str, list[Score]] = {}
    sentences = []
    for trained in trained_models(
        task,
        losses,
        seeds=seeds,
        seed=seed,
        steps=steps,
        milestones=milestones,
        device=device,
        curve_points=points,
        told=told,
    ):
        scores.setdefault(trained.name, []).append(trained.score)
        sentences += [trained.sentence] if trained.sentence else []
    return TrainingCurves(
        task=task.name,
        metric=task.metric.name,
        steps=task.recipe.steps if steps is None else steps,
        milestones=task.recipe.schedule(steps, milestones).milestones,
        seeds=tuple(range(seed, seed + seeds)),
        losses=tuple(TrainingCurve(name, tuple(found)) for name, found in scores.items()),
        sentences=tuple(sentences),
    )
