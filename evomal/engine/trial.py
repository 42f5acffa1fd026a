"""One training of a task's model, and its result; rungs, at which the trials of several losses are compared."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from evomal.engine.scores import Evaluated, Fitness
from evomal.losses.loss import WeightedTree


@dataclass(frozen=True)
class Trial:
    """One training: a loss, a learning rate, a seed and a split.

    Args:
        loss: A module, or an expression with its weights.
        lr: The learning rate.
        seed: Determines initial weights, batches, augmentation and dropout.
        factor: What the loss is multiplied by.
        split: The number of another split of training and validation rows; 0 is the task's own.
    """

    loss: nn.Module | WeightedTree
    lr: float
    seed: int
    factor: float = 1.0
    split: int = 0


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
        is_matched: Whether each expression is multiplied by the factor that gives its gradient at the start the
            baseline's norm, so that a loss and a multiple of it are the same.
        is_final: Whether losses are compared in a final, on its own rows where a task has some.
    """

    steps: int
    seeds: tuple[int, ...]
    splits: tuple[int, ...] = ()
    milestones: tuple[int, ...] = ()
    is_matched: bool = True
    milestones_by_task: tuple[tuple[int, ...], ...] = ()
    is_final: bool = False


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

    @classmethod
    def of(cls, fitnesses: Mapping[float, Sequence[Fitness]], factor: float) -> "RungScores":
        """The costs of trainings by learning rate, and why one at the best learning rate diverged."""
        tasks = max(len(fitness.by_task) for row in fitnesses.values() for fitness in row)
        by_task = tuple(
            cls.of({rate: [fitness.by_task[task] for fitness in row] for rate, row in fitnesses.items()}, factor)
            for task in range(tasks)
        )
        costs = {rate: tuple(fitness.value for fitness in row) for rate, row in fitnesses.items()}
        scores = cls(costs, factor, by_task=by_task)
        lost = next((fitness for fitness in fitnesses[scores.rate] if fitness.diverged), None)
        if lost is None:
            return scores
        return dataclasses.replace(scores, sentence=lost.sentence, is_undefined=lost.is_undefined)

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
