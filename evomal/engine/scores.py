"""What came of a training."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from evomal.tasks.metrics import Metric, usual_metrics
from evomal.tasks.task import Task


@dataclass(frozen=True)
class CurvePoint:
    """Where training stood after so many steps."""

    step: int
    training_loss: float
    validation: float


@dataclass(frozen=True)
class Score:
    """The task's metric on test and validation, the usual metrics on test, and the way there."""

    test: float
    validation: float
    metrics: dict[str, float] = field(repr=False)
    curve: list[CurvePoint] = field(repr=False)
    seed: int
    steps: int
    outcome: str = "trained"
    """`trained`, or `diverged` with the worst possible values."""
    sentence: str = ""
    milestones: tuple[int, ...] = ()
    """Steps at which the learning rate was divided by ten."""

    @property
    def diverged(self) -> bool:
        return self.outcome == "diverged"

    def __repr__(self) -> str:
        found = self.sentence if self.diverged else f"test={self.test:.4g}, validation={self.validation:.4g}"
        return f"Score({found}, seed={self.seed}, steps={self.steps})"


@dataclass(frozen=True)
class Fitness:
    """What a candidate's training came to: the metric as a cost, lower is better."""

    value: float
    outcome: str = "evaluated"
    """`evaluated`, or `diverged` with an infinite value."""
    sentence: str = ""
    is_undefined: bool = False
    """Whether the trained model's outputs were finite, but the metric was not."""


def diverged_score(metric: Metric, curve: list[CurvePoint], *, seed: int, step: int, sentence: str) -> Score:
    """The score of a training that came to nothing at that step."""
    worst = metric.cost(math.inf)
    return Score(worst, worst, {}, curve, seed, step, outcome="diverged", sentence=sentence)


def score_of_outputs(
    task: Task, fitness: Fitness, tested: tuple[Tensor, Tensor] | None, *, seed: int, steps: int
) -> Score:
    """The score of a training that came to this fitness, and to these outputs for these targets of the test split."""
    if fitness.outcome == "diverged":
        return diverged_score(task.metric, [], seed=seed, step=steps, sentence=fitness.sentence)
    validation = task.metric.cost(fitness.value)  # a cost's cost is the value
    if tested is None:
        return Score(math.nan, validation, {}, [], seed, steps)
    outputs, targets = tested
    if not bool(torch.isfinite(outputs).all()):
        sentence = "the trained model's outputs are not finite"
        return diverged_score(task.metric, [], seed=seed, step=steps, sentence=sentence)
    metrics = usual_metrics(task.kind, outputs, targets)
    return Score(task.metric(outputs, targets), validation, metrics, [], seed, steps)
