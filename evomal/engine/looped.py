"""Trials that are run one after the other, for models that are not stacked."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from evomal.engine.row_losses import RowLoss
from evomal.engine.rows import Rows
from evomal.engine.training import Snapshot, Training, TrainingSetup
from evomal.engine.trial import Reached, Trial
from evomal.expression.operators import PROGRESS
from evomal.forest import Forest
from evomal.losses import ExpressionLoss
from evomal.losses.loss import WeightedTree
from evomal.progress import StepsDone
from evomal.tasks.parts import Part, joined_parts


class _ForestLoss(torch.autograd.Function):
    """The loss, with the gradient that the forest's kernel computes along with it."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, rows: Rows, forest: Forest, weights: Tensor) -> Tensor:
        losses, gradients = forest.gradients(outputs, rows.targets, weights, rows.weights)
        ctx.save_for_backward(gradients[0])
        return losses[0]

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return above[0] * gradient, None, None, None


class TrialLoss:
    """A trial's loss times its factor: a module, or an expression computed by the forest's kernels.

    Another expression and another factor can be loaded into the same memory, which a captured step reads.
    """

    def __init__(self, forest: Forest, *, dtype: torch.dtype) -> None:
        self._forest = forest
        self._module: RowLoss | None = None
        self.is_moving = False
        """Whether the loss depends on the progress of the training."""
        device = forest.programs.device
        self._weights = torch.ones(1, forest.width, dtype=dtype, device=device)
        self._factor = torch.ones((), dtype=dtype, device=device)

    def load(self, loss: nn.Module | WeightedTree, factor: float) -> None:
        """Replace loss and factor."""
        self._factor.fill_(factor)
        self._module = None if isinstance(loss, WeightedTree) else RowLoss(loss)
        if isinstance(loss, WeightedTree):
            self.is_moving = PROGRESS in loss.expression.tokens
        else:
            self.is_moving = isinstance(loss, ExpressionLoss) and loss.is_moving
        if isinstance(loss, WeightedTree):
            self._forest.replace([loss.expression])
            self._weights.copy_(self._forest.programs.packed([loss.edge_weights], dtype=self._weights.dtype))

    def set_progress(self, progress: float) -> None:
        """Set the share of the training that is done, in the memory that a captured step reads."""
        self._forest.set_progress(progress)
        if self._module is not None and isinstance(self._module.module, ExpressionLoss):
            self._module.module.progress = progress

    def __call__(self, outputs: Tensor, rows: Rows) -> Tensor:
        if self._module is not None:
            value = self._module(outputs, rows)
        else:
            value = _ForestLoss.apply(outputs, rows, self._forest, self._weights)  # type: ignore[no-untyped-call]
        return value * self._factor


class LoopedTrials:
    """A batch of trials that are trained one after the other, each as `evomal.train` would."""

    def __init__(self, setup: TrainingSetup, trials: Sequence[Trial], forest: Forest, *, steps: int) -> None:
        """`forest`: room for one expression; `steps`: those of a whole training, by which progress is measured."""
        self._steps = steps
        self._setup, self._trials = setup, list(trials)
        self._loss = TrialLoss(forest, dtype=setup.dtype)
        self._training: tuple[tuple[int, int, nn.Module | None], Training] | None = None
        self._snapshots: list[Snapshot | None] = [None] * len(trials)

    def advance(
        self, steps: int, report: StepsDone | None, *, is_last: bool, test: bool, validation: bool = False
    ) -> list[Reached]:
        found = []
        for place, trial in enumerate(self._trials):
            training, snapshot = self._training_of(trial), self._snapshots[place]
            if snapshot is None:
                training.start(trial.lr, self._steps)
            else:
                training.restore(snapshot)
            before_step = self._set_progress if self._loss.is_moving else None
            training.advance(steps, report, before_step=before_step)
            fitness, validated = training.validated()
            tested = training.test_outputs() if test and not fitness.diverged else None
            found.append(Reached(fitness, tested, validated if validation else None))
            self._snapshots[place] = None if is_last else training.snapshot()
        return found

    def _set_progress(self, done: int) -> None:
        self._loss.set_progress(done / self._steps)

    def keep(self, places: Sequence[int]) -> None:
        self._trials = [self._trials[place] for place in places]
        self._snapshots = [self._snapshots[place] for place in places]

    def _training_of(self, trial: Trial) -> Training:
        """Returns the last training if it differs only in what can be replaced, else a new one."""
        self._loss.load(trial.loss, trial.factor)
        module = None if isinstance(trial.loss, WeightedTree) else trial.loss
        key = trial.seed, trial.split, module
        if self._training is None or self._training[0] != key:
            setup = dataclasses.replace(self._setup, seed=trial.seed)
            if trial.split:
                setup = dataclasses.replace(setup, parts=_resplit(setup, trial.split))
            self._training = None  # its memory is free before the next one needs some
            self._training = key, Training(setup, self._loss)
        return self._training[1]


def _resplit(setup: TrainingSetup, split: int) -> tuple[Part, Part]:
    pool = joined_parts(setup.data)
    first, second = setup.resplit(split)
    return pool.select(first), pool.select(second)
