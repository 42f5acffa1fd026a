"""Where losses are trained for a comparison: on one task, with the same seeds, together where that can be."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from evomal.engine import Engine, EngineSettings, Score, train
from evomal.engine.choices import chosen_device
from evomal.expression import Expression
from evomal.losses import ExpressionLoss, Loss, SquaredErrorLoss, TaylorLoss
from evomal.losses.taylor import as_tree
from evomal.runs.canonical import canonical
from evomal.runs.differences import versions
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.verdict.contestants import Candidate
from evomal.verdict.scaled_loss import ScaledLoss
from evomal.verdict.training_log import TrainingLog

_SQUARED_ERROR = Expression.parse("square(sub(f, y))")


@dataclass(frozen=True)
class Job:
    """A loss, multiplied by a factor, at a learning rate."""

    candidate: Candidate
    lr: float
    factor: float = 1.0

    def key(self, seed: int, *, test: bool) -> dict[str, Any]:
        """Under what its training with that seed is logged."""
        identity = self.candidate.identity
        return {"loss": identity, "lr": self.lr, "factor": repr(self.factor), "seed": seed, "test": test}

    @property
    def loss(self) -> nn.Module:
        """The module to train with."""
        return self.candidate.loss if self.factor == 1.0 else ScaledLoss(self.candidate.loss, self.factor)


class Arena:
    """Trains jobs, each once: what the log has is not done again.

    On CUDA all jobs of one seed and rate whose losses are expressions are trained as one population, if the model can
    be stacked; elsewhere one by one, so that no number depends on who else takes part, unless the mode says so.
    """

    def __init__(self, task: Task, settings: SearchSettings, log: TrainingLog) -> None:
        self._task, self._settings, self._log = task, settings, log

    @property
    def own_lr(self) -> float:
        """The rate of the settings, or the task's own."""
        return self._task.recipe.lr if self._settings.lr is None else self._settings.lr

    def scores(self, job: Job, seeds: Sequence[int], *, test: bool = True) -> tuple[Score, ...]:
        """A score for each seed, of a job that was trained."""
        return tuple(self._log[job.key(seed, test=test)] for seed in seeds)

    def train(self, jobs: Sequence[Job], seeds: Sequence[int], *, test: bool = True) -> None:
        """Train what is missing."""
        for seed in seeds:
            # By key, as two contestants may have found the same loss.
            missing = {canonical(key): job for job in jobs if (key := job.key(seed, test=test)) not in self._log}
            for lr in sorted({job.lr for job in missing.values()}):
                self._train_at(lr, [job for job in missing.values() if job.lr == lr], seed, test)

    def _train_at(self, lr: float, jobs: list[Job], seed: int, test: bool) -> None:
        trees = {position: tree for position, job in enumerate(jobs) if (tree := tree_of(job)) is not None}
        if self._together and len(trees) > 1:
            together = [jobs[position] for position in trees]
            engine = Engine(self._task, seed=seed, settings=self._engine_settings(lr, len(together)))
            expressions, weights = zip(*trees.values(), strict=True)
            scores = engine.scores(expressions, weights, test=test)
            self._log.add([job.key(seed, test=test) for job in together], scores)
            jobs = [job for position, job in enumerate(jobs) if position not in trees]
        for job in jobs:
            self._log.add([job.key(seed, test=test)], [self._alone(job, seed, test)])

    def _alone(self, job: Job, seed: int, test: bool) -> Score:
        settings = self._settings
        changes = {**settings.recipe_changes(), "lr": job.lr}
        return train(
            self._task, job.loss, seed=seed, steps=settings.final_steps, optimizer=settings.optimizer,
            device=settings.device, precision=settings.precision, channels_last=settings.channels_last, test=test,
            **changes,
        )  # fmt: skip

    def _engine_settings(self, lr: float, population: int) -> EngineSettings:
        settings = self._settings
        return EngineSettings(
            population=population, training_steps=settings.final_steps, optimizer=settings.optimizer,
            recipe={**settings.recipe_changes(), "lr": lr}, device=settings.device, precision=settings.precision,
            channels_last=settings.channels_last, population_mode=settings.population_mode, chunk=settings.chunk,
            meta_steps=1, deterministic=settings.deterministic,
        )  # fmt: skip

    @functools.cached_property
    def _together(self) -> bool:
        if self._settings.population_mode == "looped":
            return False
        if self._settings.population_mode == "auto" and chosen_device(self._settings.device).type != "cuda":
            return False
        engine = Engine(self._task, seed=0, settings=self._engine_settings(self.own_lr, 2))
        return engine.plans[0].mode == "stacked"


def description(task: Task, settings: SearchSettings) -> dict[str, Any]:
    """What must be the same for trainings to be comparable; the number of seeds and of losses may grow."""
    return {
        "task": {**task.record, "name": task.name},
        "metric": task.metric.name,
        "steps": settings.final_steps,
        "recipe": settings.recipe_changes(),
        "optimizer": settings.optimizer,
        "device": settings.device,
        "population_mode": settings.population_mode,
        "precision": settings.precision,
        "threads": settings.threads,
        "versions": versions(),
    }


def tree_of(job: Job) -> tuple[Expression, list[float]] | None:
    """The job's loss as an expression with weights, where it is one."""
    loss = job.candidate.loss
    if not isinstance(loss, Loss) or loss.weight is not None or loss.reduction != "mean" or loss.ignore_index != -100:
        return None
    if isinstance(loss, ExpressionLoss) and loss.activation == "identity":
        edges = loss.expression.edges
        tree, weights = loss.expression, [1.0] * edges if loss.weights is None else loss.weights.tolist()
    elif isinstance(loss, TaylorLoss):
        tree, weights = as_tree(loss.theta.tolist())
    elif isinstance(loss, SquaredErrorLoss):
        tree, weights = _SQUARED_ERROR, [1.0] * _SQUARED_ERROR.edges
    else:
        return None
    if job.factor == 1.0:
        return tree, weights
    # factor · 1 · tree: the weight of 1 is the factor.
    return Expression.parse(f"mul(1, {tree})"), [job.factor, 1.0, *weights]
