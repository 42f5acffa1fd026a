"""The trials of a comparison: each is run once by the engine, and logged."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evomal.engine import Engine, EngineSettings, Score, Trial
from evomal.engine.behaviour import BEHAVIOUR
from evomal.engine.optimizers import LATER_FIELDS, recipe_record
from evomal.engine.procedures import scores_under
from evomal.engine.resolve import initial_model
from evomal.engine.task_data import digest_of_parts, task_content
from evomal.errors import EvomalError
from evomal.methods import Failure
from evomal.methods.spaces import with_space
from evomal.progress import StepsDone
from evomal.runs.callbacks import SearchListener
from evomal.runs.canonical import canonical, versions
from evomal.runs.executors import WorkerPool
from evomal.settings import SearchSettings
from evomal.tasks.recipe import final_recipe
from evomal.tasks.task import Task
from evomal.users_code import passing
from evomal.verdict.contestants import ComparedLoss
from evomal.verdict.folder import FINAL_RECIPE, TrainingLog

_TRIALS_PER_JOB = 16  # of a worker, so that all workers have something to do
_MANY = 1_000  # steps of an example training, to find out whether a procedure looks at models before the end


@dataclass(frozen=True)
class ComparedTrial:
    """One trial of a comparison, judged on the test split or not."""

    compared: ComparedLoss
    lr: float
    seed: int
    factor: float = 1.0
    test: bool = True
    decay: float = 1.0
    """What the recipe's weight decay is multiplied by."""

    @property
    def training(self) -> dict[str, Any]:
        """What distinguishes its training; trials that differ in their procedures have one training."""
        found = {
            "loss": self.compared.identity, "lr": self.lr, "factor": repr(self.factor), "seed": self.seed,
            "test": self.test,
        }  # fmt: skip
        return found if self.decay == 1 else {**found, "decay": self.decay}

    @property
    def key(self) -> dict[str, Any]:
        """The key of its score in the log."""
        procedure = self.compared.procedure
        return self.training if procedure is None else {**self.training, "procedure": str(procedure)}

    @property
    def trial(self) -> Trial:
        """The trial for the engine."""
        return Trial(self.compared.loss, self.lr, self.seed, self.factor, decay=self.decay)


class TrialTrainer:
    """Runs lists of trials, in this process or in a worker."""

    def __init__(self, task: Task, *, settings: SearchSettings) -> None:
        recipe = final_recipe(task.recipe, settings)
        engine_settings = EngineSettings(
            training_steps=recipe.steps, optimizer=settings.optimizer,
            recipe={**settings.recipe_changes(), "milestones": recipe.milestones}, device=settings.device,
            precision=settings.precision, channels_last=settings.channels_last, chunk=settings.chunk,
            population_mode=settings.population_mode, population=1, meta_steps=1, deterministic=settings.deterministic,
            threads=settings.threads, space=with_space(settings, [task]).space,
        )  # fmt: skip
        self._engine = Engine(task, seed=0, settings=engine_settings)

    def describe(self) -> dict[str, Any]:
        """The number of trials that are run together."""
        plan = self._engine.plans[0]
        return {"chunk": plan.trial_chunk if plan.mode == "stacked" else 1}

    def run(self, jobs: Sequence[Sequence[ComparedTrial]]) -> list[list[Score]]:
        """The scores of each list of trials, which are all judged on the test split, or none of them."""
        return [self.scores(trials) for trials in jobs]

    def scores(self, trials: Sequence[ComparedTrial], report: StepsDone | None = None) -> list[Score]:
        """The score of each trial; trials with the same training share it."""
        shared = _by_training(trials)
        jobs = [(row[0].trial, [one.compared.procedure for one in row]) for row in shared]
        if all(procedures == [None] for _, procedures in jobs):  # whose outputs are needed at the end only
            results = self._engine.run_trials([trial for trial, _ in jobs], test=trials[0].test, report=report)
        else:
            results = scores_under(self._engine, jobs, test=trials[0].test, report=report)
        pairs = zip(shared, results, strict=True)
        found = {canonical(one.key): score for row, own in pairs for one, score in zip(row, own, strict=True)}
        return [found[canonical(one.key)] for one in trials]


class Trials:
    """Runs trials, by the workers of a pool if there is one; those in the log are not run again."""

    def __init__(
        self, task: Task, settings: SearchSettings, log: TrainingLog, pool: WorkerPool | None = None,
        listener: SearchListener | None = None,
    ) -> None:  # fmt: skip
        self._task, self._settings, self._log, self._pool, self._listener = task, settings, log, pool, listener
        self._steps = final_recipe(task.recipe, settings).steps

    @property
    def own_lr(self) -> float:
        """The untuned learning rate: that of the settings, or the task's."""
        return self._task.recipe.lr if self._settings.lr is None else self._settings.lr

    @property
    def own_decay(self) -> float:
        """The untuned weight decay."""
        return final_recipe(self._task.recipe, self._settings).weight_decay

    def expect(self, trainings: int) -> None:
        """Announce to the listener how many trials will come."""
        if self._listener is not None:
            self._listener.expect(self._steps * trainings)

    def run(self, trials: Sequence[ComparedTrial]) -> dict[ComparedTrial, Score]:
        """The score of each trial; those that the log lacks are run first."""
        # By key, as two contestants may have the same loss.
        distinct = {canonical(trial.key): trial for trial in trials}
        missing = [trial for trial in distinct.values() if trial.key not in self._log]
        left = len(_by_training(missing))
        self._report(self._steps * (len(_by_training([*distinct.values()])) - left))  # they were trained before
        if missing and self._pool is None:
            for part in _parts(missing, self._trainer.describe()["chunk"]):
                self._add(part, self._trainer.scores(part, passing(self._report)))
        elif missing and self._pool is not None:
            description = self._pool.prepare(TrialTrainer, self._task, settings=self._settings)
            share = math.ceil(left / self._pool.size)
            self._run_in(self._pool, _parts(missing, min(description["chunk"], _TRIALS_PER_JOB, share)))
        return {trial: self._log[trial.key] for trial in trials}

    @functools.cached_property
    def _trainer(self) -> TrialTrainer:
        return TrialTrainer(self._task, settings=self._settings)

    def _add(self, trials: Sequence[ComparedTrial], scores: Sequence[Score]) -> None:
        self._log.add([trial.key for trial in trials], scores)

    def _report(self, steps: int) -> None:
        if self._listener is not None:
            self._listener.on_steps("train", steps)

    def _run_in(self, pool: WorkerPool, parts: Sequence[Sequence[ComparedTrial]]) -> None:
        """Train with the workers; each part is logged as soon as it is done, in any order."""
        failed: list[tuple[ComparedTrial, Failure]] = []
        for index, scores in pool.run(parts):
            if isinstance(scores, Failure):
                failed.append((parts[index][0], scores))
            else:
                self._add(parts[index], scores)
                self._report(self._steps * len(_by_training(parts[index])))
        for trial, failure in failed:
            raise EvomalError(f"training with {trial.compared.formula}, seed {trial.seed}, failed: {failure.sentence}")


def _by_training(trials: Sequence[ComparedTrial]) -> list[list[ComparedTrial]]:
    found: dict[str, list[ComparedTrial]] = {}
    for trial in trials:
        found.setdefault(canonical(trial.training), []).append(trial)
    return list(found.values())


def _parts(trials: Sequence[ComparedTrial], chunk: int) -> list[list[ComparedTrial]]:
    """The trials seed by seed, in parts that are run and logged together; each part has at most `chunk` trainings.

    Trainings that a procedure looks at before their end form parts of their own, so that the others are not held up.
    """

    def kind(row: Sequence[ComparedTrial]) -> tuple[bool, bool]:
        procedures = [one.compared.procedure for one in row]
        return row[0].test, any(one is not None and len(one.horizons(_MANY)) > 1 for one in procedures)

    rows, found = _by_training(trials), []
    for chosen in itertools.product((False, True), repeat=2):
        some = sorted((row for row in rows if kind(row) == chosen), key=lambda row: row[0].seed)
        for first in range(0, len(some), chunk):
            found.append([*itertools.chain(*some[first : first + chunk])])
    return found


def log_description(task: Task, settings: SearchSettings) -> dict[str, Any]:
    """What must stay the same for the scores of a log to be comparable; more seeds and losses may be added."""
    recipe, content = final_recipe(task.recipe, settings), task_content(task)
    record = recipe_record(recipe, initial_model(task, 0))
    later = {name: record[name] for name in LATER_FIELDS if name in record and name != "optimizer"}
    return {
        "task": {**task.record, "name": task.name},
        "data": content["data"],
        "test_data": digest_of_parts(task.test),
        "fresh_model": content["fresh_model"],
        "metric": task.metric.name,
        **{name: content[name] for name in BEHAVIOUR if name in content},
        **({"metric_options": options} if (options := content.get("metric_options")) else {}),
        "steps": recipe.steps,
        "milestones": list(recipe.milestones),
        "recipe": settings.recipe_changes(),
        FINAL_RECIPE: {name: record[name] for name in ("momentum", "nesterov", "weight_decay", "batch_size")},
        "optimizer": record.get("optimizer", "sgd"),
        **({"training": later} if later else {}),
        "device": settings.device,
        "population_mode": settings.population_mode,
        "precision": settings.precision,
        "channels_last": settings.channels_last,
        "deterministic": settings.deterministic,
        "threads": settings.threads,
        "versions": versions(),
    }
