"""Results of a training: the score of one loss, the fitness of a candidate, and how outputs become either."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evomal.tasks.metrics import usual_metrics
from evomal.tasks.task import Task
from evomal.users_code import place_of_function


@dataclass(frozen=True)
class CurvePoint:
    """Training loss of one batch and validation metric after `step` steps."""

    step: int
    training_loss: float
    validation: float


@dataclass(frozen=True)
class Score:
    """The result of training one model with one loss, as returned by `evomal.train`.

    Example:
        >>> import evomal
        >>> score = evomal.train(evomal.load_task("diabetes", "mlp:hidden=4"), "mse", steps=5, device="cpu")
        >>> score.steps, score.diverged
        (5, False)
    """

    test: float
    """The task's metric on the test split; NaN with `test=False`."""
    validation: float
    """The task's metric on the validation split."""
    metrics: dict[str, float] = field(repr=False)
    """The usual metrics of the task's kind on the test split."""
    curve: list[CurvePoint] = field(repr=False)
    """Training loss and validation metric during the training."""
    seed: int
    steps: int
    outcome: str = "trained"
    """`trained`, or `diverged` with the worst possible values."""
    sentence: str = ""
    """Why the training diverged."""
    milestones: tuple[int, ...] = ()
    """Steps at which the learning rate was divided by ten."""
    model: nn.Module | None = field(default=None, repr=False, compare=False)
    """The trained model in evaluation mode, for `train(..., keep_model=True)`; None where the training diverged."""

    @property
    def diverged(self) -> bool:
        """Whether the training diverged."""
        return self.outcome == "diverged"

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields but the model, with nested dataclasses as dictionaries."""
        fields = dataclasses.asdict(dataclasses.replace(self, model=None))
        del fields["model"]
        return fields

    def __repr__(self) -> str:
        found = self.sentence if self.diverged else f"test={self.test:.4g}, validation={self.validation:.4g}"
        return f"Score({found}, seed={self.seed}, steps={self.steps})"


@dataclass(frozen=True)
class Fitness:
    """The result of a candidate's training: the validation metric as a cost, lower is better."""

    value: float
    outcome: str = "evaluated"
    """`evaluated`, or `diverged` with an infinite value."""
    sentence: str = ""
    """Why the training diverged."""
    is_undefined: bool = False
    """Whether the trained model's outputs were finite, but the metric was not."""
    by_task: tuple["Fitness", ...] = ()
    """The fitness on each task, where there are several."""

    @property
    def diverged(self) -> bool:
        """Whether the training diverged."""
        return self.outcome == "diverged"


def diverged_fitness(sentence: str, *, is_undefined: bool = False) -> Fitness:
    """Returns the fitness of a training that diverged, for the reason given."""
    return Fitness(math.inf, "diverged", sentence, is_undefined)


class Evaluated(NamedTuple):
    """A trained model's outputs on a split, one row for each sample or for each position of each sample."""

    outputs: Tensor
    targets: Tensor
    weights: Tensor | None = None
    """Rows of weight 0 are left out."""

    @property
    def is_finite(self) -> bool:
        """Whether all outputs that count are finite."""
        outputs = self.outputs if self.weights is None else self.outputs[self.weights > 0]
        return bool(torch.isfinite(outputs).all())


def metric_or_nan(task: Task, evaluated: Evaluated) -> float:
    """Returns the task's metric on the validation split, or NaN for outputs that are not finite: some metrics would
    return a number."""
    outputs, targets, weights = evaluated
    return task.metric(outputs, targets, weights=weights, part="validation") if evaluated.is_finite else math.nan


def fitness_of_outputs(task: Task, evaluated: Evaluated) -> Fitness:
    """Returns the fitness of a trained model; a metric that is not a finite number counts as divergence."""
    metric = metric_or_nan(task, evaluated)
    cost = task.metric.cost(metric)
    if math.isfinite(cost):
        return Fitness(cost)
    is_undefined = evaluated.is_finite
    return diverged_fitness(f"the validation {task.metric.name} was {metric}", is_undefined=is_undefined)


def mean_fitness(fitnesses: Sequence[Fitness]) -> Fitness:
    """Returns the mean over several tasks; a candidate that diverged on one has diverged."""
    by_task = tuple(fitnesses) if len(fitnesses) > 1 else ()
    for fitness in fitnesses:
        if fitness.diverged:
            return dataclasses.replace(fitness, by_task=by_task)
    return Fitness(sum(fitness.value for fitness in fitnesses) / len(fitnesses), by_task=by_task)


def score_of(
    task: Task, fitness: Fitness, test: Evaluated | None, *, seed: int, steps: int,
    milestones: tuple[int, ...] = (), curve: Sequence[CurvePoint] = (),
) -> Score:  # fmt: skip
    """Returns the score of a training, given its fitness and its outputs on the test split."""
    tested = math.nan
    if test is not None and not fitness.diverged:
        if test.is_finite:
            tested = task.metric(test.outputs, test.targets, weights=test.weights, part="test")
            if not math.isfinite(tested):
                fitness = diverged_fitness(f"the test {task.metric.name} was {tested}", is_undefined=True)
        else:
            fitness = diverged_fitness("the trained model's outputs are not finite")
    common = {"curve": list(curve), "seed": seed, "steps": steps, "milestones": milestones}
    if fitness.diverged:
        worst, sentence = task.metric.cost(math.inf), fitness.sentence
        if fitness.is_undefined:
            place = place_of_function(task.metric.function)
            sentence += f" though the model's outputs are finite: see the metric{f' ({place})' if place else ''}"
        return Score(worst, worst, {}, outcome="diverged", sentence=sentence, **common)  # type: ignore[arg-type]
    validation = task.metric.cost(fitness.value)  # the cost of a cost is the value
    usual = {} if test is None else usual_metrics(task.kind, test.outputs, test.targets, weights=test.weights)
    return Score(tested, validation, usual, **common)  # type: ignore[arg-type]
