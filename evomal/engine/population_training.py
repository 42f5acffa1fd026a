"""The base model trained with each of many expressions, for their fitness (EvoMAL, section 3.4, Algorithm 2).

Every candidate's model starts from the seed's weights and sees the same batches, augmentation and dropout masks, which
are those of `evomal.train` with that seed.
"""

import math
from collections.abc import Sequence
from typing import Protocol, Unpack

import torch
from torch import Tensor

from evomal.engine.forest import FILLER, Forest
from evomal.engine.scores import Fitness
from evomal.engine.stacked_models import StackedModels, StackOptions, every_few, judged
from evomal.engine.training import Manners, Training
from evomal.engine.tree_loss import TreeLoss
from evomal.expression import Expression
from evomal.progress import StepsDone
from evomal.tasks.task import Part, Recipe, Task


class PopulationTraining(Protocol):
    """Trains as many candidates as it has room for, or fewer."""

    def run(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, report: StepsDone | None = None
    ) -> list[Fitness]: ...


class LoopedTraining:
    """One candidate after the other, each as `evomal.train` would."""

    def __init__(
        self, task: Task, *, outputs: int, width: int, recipe: Recipe, optimizer: str, seed: int, manners: Manners,
        activation: str = "identity", parts: tuple[Part, Part] | None = None,
    ) -> None:  # fmt: skip
        forest = Forest(
            [FILLER], kind=task.kind, outputs=outputs, activation=activation, device=manners.device, width=width
        )
        self._loss = TreeLoss(forest, dtype=manners.dtype)
        self._training = Training(task, self._loss, recipe, optimizer, seed, manners, parts=parts)

    def run(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, report: StepsDone | None = None
    ) -> list[Fitness]:
        return [self._fitness(*candidate, report) for candidate in zip(expressions, weights, strict=True)]

    def _fitness(self, expression: Expression, weights: Sequence[float], report: StepsDone | None) -> Fitness:
        self._loss.load(expression, weights)
        self._training.restart()
        return trained(self._training, report)


class StackedTraining(StackedModels):
    """All candidates at once: their models stacked, their losses a forest."""

    def __init__(
        self, task: Task, *, outputs: int, count: int, width: int, manners: Manners, activation: str = "identity",
        **options: Unpack[StackOptions],
    ) -> None:  # fmt: skip
        self._forest = Forest(
            [FILLER] * count, kind=task.kind, outputs=outputs, activation=activation, device=manners.device, width=width
        )
        self._weights = torch.ones(count, width, dtype=manners.dtype, device=manners.device)
        super().__init__(task, self._gradients, count=count, manners=manners, **options)

    def run(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, report: StepsDone | None = None
    ) -> list[Fitness]:
        self._forest.replace(expressions)
        self._weights.copy_(self._forest.programs.packed(weights, dtype=self._weights.dtype))
        return self.train(len(expressions), report)

    def _gradients(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self._forest.gradients(outputs, targets, self._weights)


def trained(training: Training, report: StepsDone | None = None) -> Fitness:
    """All steps of a training at its start, and the fitness of what it came to."""
    steps = training.recipe.steps
    if lost := training.advance(range(steps), None if report is None else every_few(report, steps)):
        if report is not None:
            report(steps - lost.step)  # steps that will not be taken are over, too
        return Fitness(math.inf, "diverged", lost.sentence)
    return judged(training.task, *training.validation_outputs())
