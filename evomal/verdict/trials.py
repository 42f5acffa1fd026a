"""A loss multiplied by a number, so that it pulls as hard as another at the start."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evomal.engine import Engine, EngineSettings, Score, train
from evomal.engine.resolve import initial_model, resolve_device
from evomal.errors import EvomalError
from evomal.expression import Expression
from evomal.losses import ExpressionLoss, Loss, SquaredErrorLoss, TaylorLoss
from evomal.losses.taylor import as_tree
from evomal.methods import Failure
from evomal.progress import StepsDone
from evomal.randomness import isolated_torch
from evomal.runs.canonical import canonical, versions
from evomal.runs.display import SearchListener
from evomal.runs.executors import Crew
from evomal.settings import SearchSettings
from evomal.tasks.batches import Batches
from evomal.tasks.task import Recipe, Task
from evomal.verdict.contestants import ComparedLoss
from evomal.verdict.folder import TrainingLog

_BATCHES = 8


class ScaledLoss(nn.Module):
    """factor · loss: under plain SGD the same as a learning rate of factor times the other."""

    def __init__(self, loss: nn.Module, factor: float) -> None:
        super().__init__()
        self.loss, self.factor = loss, factor

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.factor * self.loss(output, target)
        return value


def gradient_norm(task: Task, loss: nn.Module, *, seed: int) -> float:
    """Mean norm of the gradient by the model's parameters at the seed's initial weights, over a few batches."""
    model = initial_model(task, seed).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    batches = Batches(len(task.train), task.recipe.batch_size, seed=seed, purpose="gradient norm")
    norms = []
    with torch.enable_grad(), isolated_torch(seed, "gradient norm"):
        for index in range(_BATCHES):
            rows = batches[index]
            value = loss(model(task.train.inputs[rows].float()), task.train.targets[rows])
            gradients = torch.autograd.grad(value, trained, materialize_grads=True)
            whole = torch.cat([gradient.double().reshape(-1) for gradient in gradients])
            norms.append(float(torch.linalg.vector_norm(whole)))
    return sum(norms) / len(norms)


def matching_factor(task: Task, loss: nn.Module, baseline: nn.Module, *, seeds: list[int]) -> float:
    """What to multiply the loss by so that its mean gradient norm at initialisation is the baseline's.

    One whose gradient there is zero or not finite is left as it is: no number would change that.
    """
    own, other = (
        sum(gradient_norm(task, criterion, seed=seed) for seed in seeds) / len(seeds) for criterion in (loss, baseline)
    )
    factor = other / own if own > 0 else math.nan
    return factor if math.isfinite(factor) and factor > 0 else 1.0


_SQUARED_ERROR = Expression.parse("square(sub(f, y))")


@dataclass(frozen=True)
class Job:
    """A loss, multiplied by a factor, at a learning rate."""

    candidate: ComparedLoss
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


@dataclass(frozen=True)
class Bout:
    """Jobs that are trained together with one seed at one rate, among so many of that seed and rate."""

    jobs: tuple[Job, ...]
    seed: int
    test: bool
    among: int

    def keys(self) -> list[dict[str, Any]]:
        """Under what its trainings are logged."""
        return [job.key(self.seed, test=self.test) for job in self.jobs]


class Trainer:
    """Trains bouts, in this process or in a worker."""

    def __init__(self, task: Task, *, settings: SearchSettings) -> None:
        self._task, self._settings = task, settings
        self._engine: tuple[tuple[int, float, int], Engine] | None = None

    def about(self) -> dict[str, Any]:
        """Whether it trains jobs together."""
        return {"together": self._together()}

    def work(self, order: Sequence[Bout]) -> list[list[Score]]:
        """Scores of each bout."""
        return [self.scores(bout) for bout in order]

    def scores(self, bout: Bout, report: StepsDone | None = None) -> list[Score]:
        """A score for each of its jobs."""
        if bout.among == 1:
            return [self._alone(job, bout.seed, bout.test, report) for job in bout.jobs]
        engine = self._engine_for(bout)
        trees = [tree for job in bout.jobs if (tree := tree_of(job)) is not None]
        if len(trees) < len(bout.jobs):
            return engine.scores_of_losses([job.loss for job in bout.jobs], test=bout.test, report=report)
        expressions, weights = zip(*trees, strict=True)
        return engine.scores(expressions, weights, test=bout.test, report=report)

    def _alone(self, job: Job, seed: int, test: bool, report: StepsDone | None) -> Score:
        settings, recipe = self._settings, final_recipe(self._task, self._settings)
        return train(
            self._task, job.loss, seed=seed, steps=recipe.steps, milestones=recipe.milestones,
            optimizer=settings.optimizer, device=settings.device, precision=settings.precision,
            channels_last=settings.channels_last, test=test, report=report,
            **{**settings.recipe_changes(), "lr": job.lr},
        )  # fmt: skip

    def _engine_for(self, bout: Bout) -> Engine:
        wanted = (bout.seed, bout.jobs[0].lr, bout.among)
        if self._engine is None or self._engine[0] != wanted:
            settings = self._engine_settings(bout.jobs[0].lr, bout.among)
            self._engine = (wanted, Engine(self._task, seed=bout.seed, settings=settings))
        return self._engine[1]

    def _engine_settings(self, lr: float, population: int) -> EngineSettings:
        settings, recipe = self._settings, final_recipe(self._task, self._settings)
        return EngineSettings(
            population=population, training_steps=recipe.steps, optimizer=settings.optimizer,
            recipe={**settings.recipe_changes(), "lr": lr, "milestones": recipe.milestones}, device=settings.device,
            precision=settings.precision,
            channels_last=settings.channels_last, population_mode=settings.population_mode, chunk=settings.chunk,
            meta_steps=1, deterministic=settings.deterministic,
        )  # fmt: skip

    def _together(self) -> bool:
        if self._settings.population_mode == "looped":
            return False
        if self._settings.population_mode == "auto" and resolve_device(self._settings.device).type != "cuda":
            return False
        engine = Engine(self._task, seed=0, settings=self._engine_settings(self._task.recipe.lr, 2))
        return engine.plans[0].mode == "stacked"


class Arena:
    """Trains jobs, each once: what the log has is not done again.

    On CUDA all jobs of one seed and rate are trained as two populations, expressions and other losses, if the model can
    be stacked; elsewhere one by one, so that no number depends on who else takes part, unless the mode says so. With a
    crew its workers train, and are told nothing of the log.
    """

    def __init__(
        self, task: Task, settings: SearchSettings, log: TrainingLog, crew: Crew | None = None,
        listener: SearchListener | None = None,
    ) -> None:  # fmt: skip
        self._task, self._settings, self._log, self._crew, self._listener = task, settings, log, crew, listener
        self._steps = final_recipe(task, settings).steps

    @property
    def own_lr(self) -> float:
        """The rate of the settings, or the task's own."""
        return self._task.recipe.lr if self._settings.lr is None else self._settings.lr

    def scores(self, job: Job, seeds: Sequence[int], *, test: bool = True) -> tuple[Score, ...]:
        """A score for each seed, of a job that was trained."""
        return tuple(self._log[job.key(seed, test=test)] for seed in seeds)

    def train(self, jobs: Sequence[Job], seeds: Sequence[int], *, test: bool = True) -> None:
        """Train what is missing."""
        missing: dict[tuple[int, float], list[Job]] = {}
        expected = len(seeds) * len({canonical(job.key(0, test=test)) for job in jobs})
        for seed in seeds:
            # By key, as two contestants may have found the same loss.
            unknown = {canonical(key): job for job in jobs if (key := job.key(seed, test=test)) not in self._log}
            for job in sorted(unknown.values(), key=lambda job: job.lr):
                missing.setdefault((seed, job.lr), []).append(job)
        self._report(self._steps * (expected - sum(map(len, missing.values()))))  # what was done before
        if not missing:
            return
        if self._crew is None:
            for bout in _bouts(missing, test, together=self._trainer.about()["together"]):
                self._log.add(bout.keys(), self._trainer.scores(bout, self._report))
        else:
            about = self._crew.teach(functools.partial(Trainer, settings=self._settings), [self._task], "task")
            self._spread(list(_bouts(missing, test, together=about["together"])), self._crew)

    @functools.cached_property
    def _trainer(self) -> Trainer:
        return Trainer(self._task, settings=self._settings)

    def expect(self, trainings: int) -> None:
        """Tell the listener of trainings to come."""
        if self._listener is not None:
            self._listener.expect(self._steps * trainings)

    def _report(self, steps: int) -> None:
        if self._listener is not None:
            self._listener.on_steps("train", steps)

    def _spread(self, bouts: Sequence[Bout], crew: Crew) -> None:
        """Have the crew train, and log each bout when it comes in, in whatever order they do."""
        lost: list[tuple[Bout, Failure]] = []

        def take_in(rows: list[int], found: list[list[Score] | Failure]) -> None:
            for row, scores in zip(rows, found, strict=True):
                if isinstance(scores, Failure):
                    lost.append((bouts[row], scores))
                else:
                    self._log.add(bouts[row].keys(), scores)
                    self._report(self._steps * len(scores))

        crew.spread(
            len(bouts), unit=1, order=lambda rows: [bouts[row] for row in rows], name="losses", done=take_in
        )  # fmt: skip
        for bout, failure in lost:
            formula, seed = bout.jobs[0].candidate.formula, bout.seed
            raise EvomalError(f"training with {formula}, seed {seed}, failed: {failure.sentence}")


def _bouts(missing: Mapping[tuple[int, float], list[Job]], test: bool, *, together: bool) -> Iterator[Bout]:
    for (seed, _), jobs in missing.items():
        if not together or len(jobs) == 1:
            yield from (Bout((job,), seed, test, 1) for job in jobs)
            continue
        trees = tuple(job for job in jobs if tree_of(job) is not None)
        others = tuple(job for job in jobs if tree_of(job) is None)
        yield from (Bout(group, seed, test, len(jobs)) for group in (trees, others) if group)


def final_recipe(task: Task, settings: SearchSettings) -> Recipe:
    """How the trainings of a comparison run: the task's recipe, with whatever the settings change."""
    scheduled = task.recipe.schedule(settings.final_steps, settings.milestones)
    return dataclasses.replace(scheduled, **settings.recipe_changes())


def description(task: Task, settings: SearchSettings) -> dict[str, Any]:
    """What must be the same for trainings to be comparable; the number of seeds and of losses may grow."""
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


def tree_of(job: Job) -> tuple[Expression, list[float]] | None:
    """The job's loss as an expression with weights, where it is one."""
    loss = job.candidate.loss
    if not isinstance(loss, Loss) or loss.weight is not None or loss.reduction != "mean" or loss.ignore_index != -100:
        return None
    if loss.units is not None:  # which a tree knows nothing of
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
