"""A population of expressions optimised, screened and evaluated together, on one or several tasks."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from evomal.engine.engine_settings import EngineSettings
from evomal.engine.plans import Plan, planned
from evomal.engine.precision import check_precision, deterministic_kernels, matmul_precision
from evomal.engine.resolve import check_recipe, initial_model, loss_for_task, resolve_device
from evomal.engine.scores import Fitness, Score, score_of_outputs
from evomal.engine.screening import Screening
from evomal.engine.stacked import StackedModels, StackedTraining, gradients_of_modules, trained
from evomal.engine.task_data import TaskData
from evomal.engine.training import Training
from evomal.engine.weight_optimisation import Optimised
from evomal.engine.workspace import Workspace
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.progress import StageStepsDone, StepsDone
from evomal.randomness import isolated_torch
from evomal.tasks.task import Recipe, Task

Weights = Sequence[Sequence[float]]


class Engine:
    """The three stages of a generation for expressions with weights.

    The result of a candidate depends on the seed, the settings and the candidate. Looped on a CPU this is exact: other
    candidates, their order and earlier calls change no bit. Stacked, the last bits depend on the number of candidates,
    and chaotic training may amplify them. CUDA graphs, initial weights and buffers are kept from call to call, so one
    engine serves a whole search.
    """

    def __init__(self, tasks: Task | Sequence[Task], *, seed: int, settings: EngineSettings | None = None) -> None:
        self.settings = settings or EngineSettings()
        self.tasks = [tasks] if isinstance(tasks, Task) else list(tasks)
        if not all(isinstance(task, Task) for task in self.tasks):
            raise InputError("tasks must be a Task or several: load one by its name with load_task")
        if not self.tasks:
            raise InputError("at least one task must be given but got none")
        if len({task.kind for task in self.tasks}) > 1:
            raise InputError("tasks of one search must be of one kind: classification, regression or multilabel")
        self.seed = seed
        self.device = resolve_device(self.settings.device)
        check_precision(self.settings.precision, self.device)
        self._recipes = [self._recipe(task) for task in self.tasks]
        with self._context():
            self._sides = [self._side(task, recipe) for task, recipe in zip(self.tasks, self._recipes, strict=True)]
            self.plans = [self._plan(side, recipe) for side, recipe in zip(self._sides, self._recipes, strict=True)]
            self._screens = [
                Screening(side, samples=self.settings.filter_samples, seed=seed, activation=self.settings.activation)
                for side in self._sides
            ]
            self._workspace = Workspace(
                self._sides, self._recipes, self.plans, seed=seed, settings=self.settings, device=self.device
            )

    def prepare(self) -> None:
        """Draw the initial weights of all meta steps now rather than in the first generation."""
        for side in self._sides:
            side.initial_weights.prepare(self.settings.meta_steps)

    def optimise(
        self, expressions: Sequence[Expression], weights: Weights, *, report: StageStepsDone | None = None
    ) -> list[Optimised]:
        """Tune each expression's weights through training steps of the base model."""
        _check(expressions, weights)
        results: list[Optimised] = []
        with self._context():
            for start, stop in self._chunks(len(expressions), self._workspace.meta_chunk):
                worker = self._workspace.optimiser(expressions[start:stop])
                results += worker.run(
                    expressions[start:stop], weights[start:stop], steps=self.settings.meta_steps,
                    report=None if report is None else lambda steps: report("optimise", steps),
                )  # fmt: skip
        return results

    def gradient_norms(self, expressions: Sequence[Expression], weights: Weights) -> list[list[float]]:
        """Each sample's gradient norm at the untrained outputs, of all tasks in a row: a loss's fingerprint."""
        _check(expressions, weights)
        if not expressions:
            return []
        with self._context():
            return torch.cat([screen.gradient_norms(expressions, weights) for screen in self._screens], 1).tolist()

    def gains(self, expressions: Sequence[Expression], weights: Weights) -> list[float]:
        """The rejection protocol: how much each loss lowers the mean cost when the outputs themselves descend it."""
        _check(expressions, weights)
        if not expressions:
            return []
        with self._context():
            columns = [
                screen.gains(expressions, weights, steps=self.settings.filter_steps, lr=recipe.lr)
                for screen, recipe in zip(self._screens, self._recipes, strict=True)
            ]
        return [sum(gains) / len(gains) for gains in zip(*columns, strict=True)]

    def evaluate(
        self, expressions: Sequence[Expression], weights: Weights, *, seed: int | None = None,
        report: StageStepsDone | None = None,
    ) -> list[Fitness]:  # fmt: skip
        """Train the base model with each loss, and its fitness on the validation split, averaged over the tasks.

        `seed` fixes initial weights, batches, augmentation and dropout of the trainings; None is the engine's own.
        """
        _check(expressions, weights)
        columns: list[list[Fitness]] = []
        with self._context():
            for index, plan in enumerate(self.plans):
                column: list[Fitness] = []
                for start, stop in self._chunks(len(expressions), plan.training_chunk):
                    worker = self._workspace.training(index, expressions[start:stop], seed)
                    column += worker.run(
                        expressions[start:stop], weights[start:stop],
                        report=None if report is None else lambda steps: report("evaluate", steps),
                    )  # fmt: skip
                columns.append(column)
        return [_mean_fitness(fitnesses) for fitnesses in zip(*columns, strict=True)]

    def optimise_networks(
        self, weights: Weights, passes: Sequence[int] | None = None, *, report: StageStepsDone | None = None
    ) -> list[Optimised]:
        """Tune networks as ML³ does, each a row of weights (see `NetworkLosses`), one after the other.

        `passes`: how many passes over the meta steps each network has behind it. A further pass takes further steps,
        with initial weights, batches and masks that no earlier pass has used.
        """
        steps = self.settings.meta_steps
        with self._context():
            worker = self._workspace.network_optimiser
            on_step = None if report is None else lambda steps: report("optimise", steps)
            results = []
            for row, done in zip(weights, passes or [0] * len(weights), strict=True):
                packed = torch.tensor([row], dtype=self.settings.dtype)
                everywhere = torch.ones_like(packed, dtype=torch.bool)
                results += worker.run(packed, everywhere, steps=steps, first=done * steps, report=on_step)
        return results

    def evaluate_losses(
        self, losses: Sequence[nn.Module], *, seed: int | None = None, report: StageStepsDone | None = None
    ) -> list[Fitness]:
        """The same as `evaluate` for losses of any kind, one after the other, as `evomal.train` would train them."""
        on_step = None if report is None else lambda steps: report("evaluate", steps)
        rows = []
        with self._context():
            for loss in losses:
                row = []
                for index, task in enumerate(self.tasks):
                    criterion = loss_for_task(loss, task).to(self.device)
                    options = self._workspace.training_options(index, seed)
                    row.append(trained(Training(criterion=criterion, **options), on_step))
                rows.append(_mean_fitness(row))
        return rows

    def scores(
        self, expressions: Sequence[Expression], weights: Weights, *, test: bool = True,
        report: StepsDone | None = None,
    ) -> list[Score]:  # fmt: skip
        """Train all with the one task together, and judge each as `evomal.train` would; for a plan that stacks them."""
        _check(expressions, weights)
        self._require_stack()
        results = []
        with self._context():
            for start, stop in self._chunks(len(expressions), self.plans[0].training_chunk):
                worker = self._workspace.training(0, expressions[start:stop])
                assert isinstance(worker, StackedTraining)  # as the plan says
                on_step = _for_each_member(report, stop - start)
                found = worker.run(expressions[start:stop], weights[start:stop], report=on_step)
                results += self._scored(worker, found, test=test)
        return results

    def scores_of_losses(
        self, losses: Sequence[nn.Module], *, test: bool = True, report: StepsDone | None = None
    ) -> list[Score]:
        """The same as `scores` for losses of any kind."""
        self._require_stack()
        results = []
        with self._context():
            for start, stop in self._chunks(len(losses), self.plans[0].training_chunk):
                chunk = [loss_for_task(loss, self.tasks[0]).to(self.device) for loss in losses[start:stop]]
                options = self._workspace.training_options(0)
                worker = StackedModels(gradients=gradients_of_modules(chunk), count=len(chunk), **options)
                found = worker.train(len(chunk), _for_each_member(report, len(chunk)))
                results += self._scored(worker, found, test=test)
        return results

    def _require_stack(self) -> None:
        if self.plans[0].mode != "stacked" or len(self.tasks) > 1:
            raise InputError("scores of several losses at once need one task and a model that can be stacked")

    def _scored(self, models: StackedModels, fitnesses: Sequence[Fitness], *, test: bool) -> list[Score]:
        task, recipe = self.tasks[0], self._recipes[0]
        data = task.test.to(self.device, self.settings.dtype) if test else None
        outputs = None if data is None else models.outputs_on(data.inputs)
        scores = []
        for member, fitness in enumerate(fitnesses):
            tested = None if data is None or outputs is None else (outputs[member], data.targets)
            score = score_of_outputs(task, fitness, tested, seed=self.seed, steps=recipe.steps)
            scores.append(dataclasses.replace(score, milestones=recipe.milestones))
        return scores

    def steps(self, candidates: int) -> dict[str, int]:
        """Steps that will be reported for so many candidates: what a progress bar can promise."""
        chunks = len(list(self._chunks(candidates, self._workspace.meta_chunk)))
        trained = sum(len(list(self._chunks(candidates, plan.training_chunk))) for plan in self.plans)
        return {"optimise": chunks * self.settings.meta_steps, "evaluate": trained * self.settings.training_steps}

    def bytes_kept(self, meta_steps: int) -> int:
        """Bytes of the data and of the initial weights of `meta_steps` steps."""
        return sum(side.bytes_kept(meta_steps) for side in self._sides)

    def record(self) -> dict[str, Any]:
        """What was decided by rule, and settings that could change a float: for the run's record."""
        settings = dataclasses.asdict(self.settings)
        return {
            **settings,
            "device": str(self.device),
            "dtype": str(self.settings.dtype),
            "threads": torch.get_num_threads(),
            "plans": [dataclasses.asdict(plan) for plan in self.plans],
        }

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        # A caller may be in the middle of an evaluation, without gradients.
        with (
            deterministic_kernels(
                self.settings.deterministic, self.device
            ),  # first, as it must come before CUDA is used
            torch.inference_mode(False),
            torch.enable_grad(),
            isolated_torch(self.seed, device=self.device),
            matmul_precision(self.settings.precision, self.device),
        ):
            yield

    def _recipe(self, task: Task) -> Recipe:
        try:
            recipe = dataclasses.replace(task.recipe, **self.settings.recipe, steps=self.settings.training_steps)
        except TypeError:
            known = ", ".join(entry.name for entry in dataclasses.fields(Recipe))
            raise InputError(f"a recipe has {known} but got {', '.join(self.settings.recipe)}") from None
        check_recipe(recipe, self.settings.optimizer)
        return recipe

    def _side(self, task: Task, recipe: Recipe) -> TaskData:
        return TaskData(
            task, seed=self.seed, inner_steps=self.settings.inner_steps, batch_size=recipe.batch_size,
            device=self.device, dtype=self.settings.dtype, precision=self.settings.precision,
            channels_last=self.settings.channels_last,
        )  # fmt: skip

    def _plan(self, side: TaskData, recipe: Recipe) -> Plan:
        return planned(
            initial_model(side.task, self.seed), side.capabilities, device=self.device,
            batch=min(recipe.batch_size, len(side.train)), element=self.settings.dtype.itemsize,
            kept=side.bytes_kept(self.settings.meta_steps), population=self.settings.population,
            inner_steps=self.settings.inner_steps, wanted=self.settings.population_mode, chunk=self.settings.chunk,
        )  # fmt: skip

    def _chunks(self, count: int, size: int) -> Iterator[tuple[int, int]]:
        for start in range(0, count, size):
            yield start, min(start + size, count)


def _for_each_member(report: StepsDone | None, members: int) -> StepsDone | None:
    """Of a stack's steps, those of all its members together."""
    return None if report is None else lambda steps: report(members * steps)


def _check(expressions: Sequence[Expression], weights: Weights) -> None:
    if len(expressions) != len(weights):
        raise InputError(
            f"there must be weights for each of {len(expressions)} expressions but got {len(weights)} rows"
        )
    for expression, row in zip(expressions, weights, strict=True):
        if not isinstance(expression, Expression):
            raise InputError(f"a candidate must be an Expression but got {type(expression).__name__}")
        expression.require_loss().checked_weights(row)


def _mean_fitness(fitnesses: Sequence[Fitness]) -> Fitness:
    diverged = [fitness for fitness in fitnesses if fitness.outcome == "diverged"]
    if diverged:
        return diverged[0]
    return Fitness(sum(fitness.value for fitness in fitnesses) / len(fitnesses))
