"""The trainings of a comparison: make trials, run them, read their scores; each is trained once and logged."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from evomal.engine import Engine, EngineSettings, Score, train
from evomal.engine.resolve import resolve_device
from evomal.errors import EvomalError
from evomal.expression import Expression
from evomal.losses import Loss
from evomal.methods import Failure
from evomal.progress import StepsDone
from evomal.runs.canonical import canonical, versions
from evomal.runs.display import SearchListener
from evomal.runs.executors import WorkerPool
from evomal.settings import SearchSettings
from evomal.tasks.task import Recipe, Task
from evomal.verdict.contestants import ComparedLoss
from evomal.verdict.folder import TrainingLog


class ScaledLoss(nn.Module):
    """factor · loss: under plain SGD, the same as multiplying the learning rate by the factor."""

    def __init__(self, loss: nn.Module, factor: float) -> None:
        super().__init__()
        self.loss, self.factor = loss, factor

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.factor * self.loss(output, target)
        return value


@dataclass(frozen=True)
class Trial:
    """One training: a loss multiplied by a factor, a learning rate and a seed, judged on the test split or not."""

    compared: ComparedLoss
    lr: float
    seed: int
    factor: float = 1.0
    test: bool = True

    @property
    def key(self) -> dict[str, Any]:
        """The key of its score in the log."""
        return {
            "loss": self.compared.identity, "lr": self.lr, "factor": repr(self.factor), "seed": self.seed,
            "test": self.test,
        }  # fmt: skip

    @property
    def loss(self) -> nn.Module:
        """The module to train with."""
        return self.compared.loss if self.factor == 1.0 else ScaledLoss(self.compared.loss, self.factor)

    def tree(self) -> tuple[Expression, list[float]] | None:
        """The loss as an expression with weights; None if it is not one."""
        loss = self.compared.loss
        if not isinstance(loss, Loss) or loss.weight is not None or loss.reduction != "mean":
            return None
        if loss.ignore_index != -100 or loss.units is not None:  # an expression has neither
            return None
        found = loss.tree()
        if found is None or found.activation != "identity":
            return None
        tree, weights = found.expression, found.edge_weights
        if self.factor == 1.0:
            return tree, weights
        # factor · 1 · tree: the weight of 1 is the factor.
        return Expression.parse(f"mul(1, {tree})"), [self.factor, 1.0, *weights]


@dataclass(frozen=True)
class TrialGroup:
    """Trials of one seed and learning rate that are trained together."""

    trials: tuple[Trial, ...]
    among: int
    """How many trials of that seed and learning rate there are; 1: trained one by one."""


class TrialTrainer:
    """Trains groups of trials, in this process or in a worker."""

    def __init__(self, task: Task, *, settings: SearchSettings) -> None:
        self._task, self._settings, self._recipe = task, settings, final_recipe(task, settings)
        self._engine: tuple[tuple[int, float, int], Engine] | None = None

    def describe(self) -> dict[str, Any]:
        """Whether it trains several trials together."""
        return {"together": self._trains_together()}

    def run(self, jobs: Sequence[TrialGroup]) -> list[list[Score]]:
        """The scores of each group."""
        return [self.scores(group) for group in jobs]

    def scores(self, group: TrialGroup, report: StepsDone | None = None) -> list[Score]:
        """A score for each trial of the group."""
        if group.among == 1:
            return [self._alone(trial, report) for trial in group.trials]
        engine, test = self._engine_for(group), group.trials[0].test
        trees = [tree for trial in group.trials if (tree := trial.tree()) is not None]
        if len(trees) < len(group.trials):
            return engine.scores_of_losses([trial.loss for trial in group.trials], test=test, report=report)
        expressions, weights = zip(*trees, strict=True)
        return engine.scores(expressions, weights, test=test, report=report)

    def _alone(self, trial: Trial, report: StepsDone | None) -> Score:
        settings = self._settings
        return train(
            self._task, trial.loss, seed=trial.seed, steps=self._recipe.steps, milestones=self._recipe.milestones,
            optimizer=settings.optimizer, device=settings.device, precision=settings.precision,
            channels_last=settings.channels_last, test=trial.test, report=report,
            **{**settings.recipe_changes(), "lr": trial.lr},
        )  # fmt: skip

    def _engine_for(self, group: TrialGroup) -> Engine:
        """The engine of that seed, learning rate and number of trials; the last one is kept."""
        seed, lr = group.trials[0].seed, group.trials[0].lr
        if self._engine is None or self._engine[0] != (seed, lr, group.among):
            engine = Engine(self._task, seed=seed, settings=self._engine_settings(lr, group.among))
            self._engine = ((seed, lr, group.among), engine)
        return self._engine[1]

    def _engine_settings(self, lr: float, population: int) -> EngineSettings:
        settings = self._settings
        return EngineSettings(
            population=population, training_steps=self._recipe.steps, optimizer=settings.optimizer,
            recipe={**settings.recipe_changes(), "lr": lr, "milestones": self._recipe.milestones},
            device=settings.device, precision=settings.precision, channels_last=settings.channels_last,
            population_mode=settings.population_mode, chunk=settings.chunk, meta_steps=1,
            deterministic=settings.deterministic,
        )  # fmt: skip

    def _trains_together(self) -> bool:
        mode = self._settings.population_mode
        if mode == "looped" or (mode == "auto" and resolve_device(self._settings.device).type != "cuda"):
            return False
        engine = Engine(self._task, seed=0, settings=self._engine_settings(self._task.recipe.lr, 2))
        return engine.plans[0].mode == "stacked"


class Trials:
    """Runs trials, each once: those in the log are not trained again.

    On CUDA all trials of one seed and learning rate are trained as two populations, expressions and other losses, if
    the model can be stacked; elsewhere one by one, so that no score depends on the other trials, unless the setting
    `population_mode` says so. With a worker pool its workers train, and the log stays here.
    """

    def __init__(
        self, task: Task, settings: SearchSettings, log: TrainingLog, pool: WorkerPool | None = None,
        listener: SearchListener | None = None,
    ) -> None:  # fmt: skip
        self._task, self._settings, self._log, self._pool, self._listener = task, settings, log, pool, listener
        self._steps = final_recipe(task, settings).steps

    @property
    def own_lr(self) -> float:
        """The untuned learning rate: that of the settings, or the task's."""
        return self._task.recipe.lr if self._settings.lr is None else self._settings.lr

    def expect(self, trainings: int) -> None:
        """Announce to the listener how many trials will come."""
        if self._listener is not None:
            self._listener.expect(self._steps * trainings)

    def run(self, trials: Sequence[Trial]) -> dict[Trial, Score]:
        """The score of each trial; those that the log lacks are trained first."""
        # By key, as two contestants may have the same loss.
        distinct = {canonical(trial.key): trial for trial in trials}
        missing = [trial for trial in distinct.values() if trial.key not in self._log]
        self._report(self._steps * (len(distinct) - len(missing)))  # they were trained before
        if missing and self._pool is None:
            for group in _groups(missing, together=self._trainer.describe()["together"]):
                self._add(group, self._trainer.scores(group, self._report))
        elif missing and self._pool is not None:
            description = self._pool.prepare(TrialTrainer, self._task, settings=self._settings)
            self._run_in(self._pool, list(_groups(missing, together=description["together"])))
        return {trial: self._log[trial.key] for trial in trials}

    @functools.cached_property
    def _trainer(self) -> TrialTrainer:
        return TrialTrainer(self._task, settings=self._settings)

    def _add(self, group: TrialGroup, scores: Sequence[Score]) -> None:
        self._log.add([trial.key for trial in group.trials], scores)

    def _report(self, steps: int) -> None:
        if self._listener is not None:
            self._listener.on_steps("train", steps)

    def _run_in(self, pool: WorkerPool, groups: Sequence[TrialGroup]) -> None:
        """Train with the workers; each group is logged as soon as it is done, in any order."""
        failed: list[tuple[Trial, Failure]] = []
        for index, scores in pool.run(groups):
            if isinstance(scores, Failure):
                failed.append((groups[index].trials[0], scores))
            else:
                self._add(groups[index], scores)
                self._report(self._steps * len(scores))
        for trial, failure in failed:
            raise EvomalError(f"training with {trial.compared.formula}, seed {trial.seed}, failed: {failure.sentence}")


def _groups(trials: Sequence[Trial], *, together: bool) -> Iterator[TrialGroup]:
    """The trials seed by seed and learning rate by learning rate, expressions apart from other losses."""

    def place(trial: Trial) -> tuple[int, float]:
        return trial.seed, trial.lr

    for _, grouped in itertools.groupby(sorted(trials, key=place), key=place):
        members = tuple(grouped)
        if not together or len(members) == 1:
            yield from (TrialGroup((trial,), 1) for trial in members)
            continue
        trees = tuple(trial for trial in members if trial.tree() is not None)
        others = tuple(trial for trial in members if trial.tree() is None)
        yield from (TrialGroup(group, len(members)) for group in (trees, others) if group)


def final_recipe(task: Task, settings: SearchSettings) -> Recipe:
    """How the trainings of a comparison run: the task's recipe with the changes of the settings."""
    scheduled = task.recipe.schedule(settings.final_steps, settings.milestones)
    return dataclasses.replace(scheduled, **settings.recipe_changes())


def log_description(task: Task, settings: SearchSettings) -> dict[str, Any]:
    """What must stay the same for the scores of a log to be comparable; more seeds and losses may be added."""
    recipe = final_recipe(task, settings)
    return {
        "task": {**task.record, "name": task.name},
        "metric": task.metric.name,
        "steps": recipe.steps,
        "milestones": list(recipe.milestones),
        "recipe": settings.recipe_changes(),
        "optimizer": settings.optimizer,
        "device": settings.device,
        "population_mode": settings.population_mode,
        "precision": settings.precision,
        "threads": settings.threads,
        "versions": versions(),
    }
