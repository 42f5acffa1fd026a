"""Trials, the rungs at which they are compared, and their results: how outputs become a fitness or a score."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evomal.engine.left_out import left_out_metrics
from evomal.losses.loss import WeightedTree
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
    left_out: tuple[float, ...] = field(default=(), repr=False)
    """The task's metric on the test split without each of its blocks: see `left_out_metrics`."""
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
    left_out: tuple[float, ...] = field(default=(), repr=False)
    """The value without each block of validation samples, where asked for: see `left_out_metrics`."""

    @property
    def diverged(self) -> bool:
        """Whether the training diverged."""
        return self.outcome == "diverged"


def _diverged(fitness: Fitness) -> bool:
    return fitness.diverged


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
    """Returns the task's metric on the validation split, or NaN if outputs are not finite: some would hide it."""
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
    blocks = {len(fitness.left_out) for fitness in fitnesses}
    # The samples of the tasks are independent, so that a block of each can be left out at once.
    left_out = zip(*(fitness.left_out for fitness in fitnesses), strict=True) if len(blocks) == 1 else ()
    means = [sum(values) / len(values) for values in ([fitness.value for fitness in fitnesses], *left_out)]
    return Fitness(means[0], by_task=by_task, left_out=tuple(means[1:]))


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
    validation = task.metric.cost(fitness.value)  # `cost` is its own inverse
    usual = {} if test is None else usual_metrics(task.kind, test.outputs, test.targets, weights=test.weights)
    left_out = () if test is None else left_out_metrics(task, test)
    return Score(tested, validation, usual, left_out=left_out, **common)  # type: ignore[arg-type]


TrialLoss = nn.Module | WeightedTree
"""A loss that a model can be trained with: a module, or an expression with its weights."""


@dataclass(frozen=True)
class Trial:
    """One training: a loss, a learning rate, a weight decay, a seed and a split.

    Args:
        loss: A module, or an expression with its weights.
        lr: The learning rate.
        seed: Determines initial weights, batches, augmentation and dropout.
        factor: What the loss is multiplied by.
        split: The number of another split of training and validation rows; 0 is the task's own.
        decay: What the recipe's weight decay is multiplied by.
    """

    loss: TrialLoss
    lr: float
    seed: int
    factor: float = 1.0
    split: int = 0
    decay: float = 1.0


@dataclass(frozen=True)
class Reached:
    """The result of a trial after some steps."""

    fitness: Fitness
    tested: Evaluated | None = None
    """The model's outputs on the test split, where asked for."""
    validation: Evaluated | None = None
    """Those on the validation split, where asked for; None where the training diverged."""


@dataclass(frozen=True)
class Rung:
    """How losses are compared: the steps of a trial, and one seed and one split per trial of a learning rate.

    Args:
        steps: Training steps.
        seeds: One trial per seed.
        splits: The split of each trial; empty: the task's own.
        milestones: Steps at which the learning rate is divided by ten.
        milestones_by_task: The same for each of several tasks; empty: `milestones` for all.
        reference: A known loss: each expression is multiplied by the factor that gives its gradient at the start the
            norm of this one's, so that a loss and a multiple of it are the same. Empty: the baseline; None: expressions
            are trained as they are.
        is_final: Whether losses are compared in the finals, on rows of their own where a task has some.
        leaves_out: Whether to compute each cost without each block of validation samples, too.
    """

    steps: int
    seeds: tuple[int, ...]
    splits: tuple[int, ...] = ()
    milestones: tuple[int, ...] = ()
    reference: str | None = ""
    milestones_by_task: tuple[tuple[int, ...], ...] = ()
    is_final: bool = False
    leaves_out: bool = False


@dataclass(frozen=True)
class RungScores:
    """The costs of one loss at a rung: lower is better, infinite where the training diverged.

    Args:
        costs: By learning rate, as a multiple of the task's own, one cost per seed.
        factor: What the loss was multiplied by.
        sentence: Why a training at the best learning rate diverged; empty where none did.
    """

    costs: Mapping[float, tuple[float, ...]]
    factor: float = 1.0
    sentence: str = ""
    is_undefined: bool = False
    """Whether outputs were finite, but the metric was not."""
    by_task: tuple["RungScores", ...] = ()
    """The scores on each task, where there are several."""
    lost: Mapping[float, Fitness] = field(default_factory=dict, repr=False, compare=False)
    """By learning rate, the first training that diverged."""
    left_out: Mapping[float, tuple[tuple[float, ...], ...]] = field(default_factory=dict, repr=False)
    """By learning rate, `Fitness.left_out` of each seed; empty where it was not asked for."""

    @classmethod
    def of(cls, fitnesses: Mapping[float, Sequence[Fitness]], factor: float) -> "RungScores":
        """The costs of trainings by learning rate, and why one at the best learning rate diverged."""
        tasks = max(len(fitness.by_task) for row in fitnesses.values() for fitness in row)
        by_task = tuple(
            cls.of({rate: [fitness.by_task[task] for fitness in row] for rate, row in fitnesses.items()}, factor)
            for task in range(tasks)
        )
        costs = {rate: tuple(fitness.value for fitness in row) for rate, row in fitnesses.items()}
        lost = {rate: next(filter(_diverged, row)) for rate, row in fitnesses.items() if any(map(_diverged, row))}
        left_out = {
            rate: tuple(fitness.left_out for fitness in row)
            for rate, row in fitnesses.items()
            if any(fitness.left_out for fitness in row)
        }
        return cls(costs, factor, by_task=by_task, lost=lost, left_out=left_out)._explained()

    @classmethod
    def joined(cls, parts: Sequence["RungScores"]) -> "RungScores":
        """The scores of one loss with the seeds of all parts, in this order: those of one run with all seeds."""
        costs = {rate: tuple(itertools.chain(*(part.costs[rate] for part in parts))) for rate in parts[0].costs}
        left_out = {
            rate: tuple(itertools.chain(*(part.left_out_at(rate) for part in parts)))
            for rate in costs
            if any(rate in part.left_out for part in parts)
        }
        by_task = tuple(map(cls.joined, zip(*(part.by_task for part in parts), strict=True)))
        lost = dict(itertools.chain(*(part.lost.items() for part in reversed(parts))))  # of equal rates the first part
        return cls(costs, parts[0].factor, by_task=by_task, lost=lost, left_out=left_out)._explained()

    def _explained(self) -> "RungScores":
        """The scores with the reason why a training at the best learning rate diverged, if one did."""
        lost = self.lost.get(self.rate)
        if lost is None:
            return self
        return dataclasses.replace(self, sentence=lost.sentence, is_undefined=lost.is_undefined)

    def left_out_at(self, rate: float) -> tuple[tuple[float, ...], ...]:
        """For each seed, the cost at a learning rate without each block of validation samples; empty if not known."""
        return self.left_out.get(rate, ((),) * len(self.costs[rate]))

    @property
    def rate(self) -> float:
        """The learning rate with the lowest mean cost; of equal ones the one nearest to the task's own."""
        return min(self.costs, key=lambda rate: (self.mean(rate), abs(math.log(rate)), rate))

    @property
    def cost(self) -> float:
        """The mean cost at the best learning rate."""
        return self.mean(self.rate)

    def mean(self, rate: float) -> float:
        """The mean cost at one of the learning rates; infinite if a training diverged."""
        values = self.costs[rate]
        return sum(values) / len(values)
