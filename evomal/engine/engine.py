"""The engine: a population of expressions optimised, screened and trained together, on one or several tasks."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from evomal.engine.engine_settings import EngineSettings
from evomal.engine.plans import Plan, make_plan
from evomal.engine.precision import check_precision, deterministic_kernels, matmul_precision
from evomal.engine.resolve import initial_model, loss_for_task, resolve_device
from evomal.engine.scores import Fitness, Score, mean_fitness
from evomal.engine.screening import Screening, Weights
from evomal.engine.stacked import StackedModels, StackedTraining, gradients_of_modules
from evomal.engine.task_data import TaskData
from evomal.engine.training import Training
from evomal.engine.weight_optimisation import Optimised
from evomal.engine.workspace import Workspace
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.progress import StageStepsDone, StepsDone
from evomal.randomness import isolated_torch
from evomal.tasks.task import Recipe, Task
from evomal.users_code import users_code


class Engine:
    """The three stages of a generation: optimise weights, screen, train and evaluate.

    The result of a candidate depends on the seed, the settings and the candidate. Looped on a CPU this is exact: other
    candidates, their order and earlier calls change no bit. Stacked, the last bits depend on the number of candidates,
    and chaotic training may amplify them. CUDA graphs, initial weights and buffers are kept from call to call, so one
    engine serves a whole search.

    Args:
        tasks: One task, or several of one kind.
        seed: Determines initial weights, batches, augmentation and dropout.
        settings: The settings; None: the defaults of `EngineSettings`.

    Raises:
        InputError: Tasks, models and settings do not fit together, or the device does not exist.

    Example:
        >>> import evomal
        >>> settings = EngineSettings(meta_steps=2, training_steps=2, device="cpu")
        >>> engine = Engine(evomal.load_task("diabetes", "mlp:hidden=4"), seed=0, settings=settings)
        >>> loss = evomal.Expression.parse("square(sub(y, f))")
        >>> (optimised,) = engine.optimise([loss], [[1.0] * loss.edges])
        >>> (fitness,) = engine.evaluate([loss], [optimised.weights])
        >>> fitness.diverged
        False
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
        recipes = [self._recipe(task) for task in self.tasks]
        with self._context():
            self._data = [
                TaskData(task, recipe, self.settings, seed=seed, device=self.device)
                for task, recipe in zip(self.tasks, recipes, strict=True)
            ]
            self.plans = [self._plan(data) for data in self._data]
            samples = self.settings.filter_samples
            self._screens = [Screening(data, samples=samples, seed=seed) for data in self._data]
            self._workspace = Workspace(self._data, self.plans, seed=seed, settings=self.settings, device=self.device)

    def prepare(self) -> None:
        """Draw the initial weights of all meta steps now rather than in the first generation."""
        for data in self._data:
            data.initial_weights.prepare(self.settings.meta_steps)

    def optimise(
        self, expressions: Sequence[Expression], weights: Weights, *, report: StageStepsDone | None = None
    ) -> list[Optimised]:
        """Optimise each expression's weights through training steps of the base model."""
        _check(expressions, weights)
        results: list[Optimised] = []
        with self._context():
            for part in _chunks(len(expressions), self._workspace.meta_chunk):
                optimiser = self._workspace.optimiser(expressions[part])
                results += optimiser.run(
                    expressions[part],
                    weights[part],
                    steps=self.settings.meta_steps,
                    report=_of_stage(report, "optimise"),
                )
        return results

    def gradient_norms(self, expressions: Sequence[Expression], weights: Weights) -> list[list[float]]:
        """Returns each sample's gradient norm at the untrained outputs, of all tasks in a row."""
        _check(expressions, weights)
        if not expressions:
            return []
        with self._context():
            return torch.cat([screen.gradient_norms(expressions, weights) for screen in self._screens], 1).tolist()

    def gains(self, expressions: Sequence[Expression], weights: Weights) -> list[float]:
        """Returns how much each loss lowers the mean cost when the outputs themselves descend it (rejection filter)."""
        _check(expressions, weights)
        if not expressions:
            return []
        with self._context():
            columns = [
                screen.gains(expressions, weights, steps=self.settings.filter_steps, lr=data.recipe.lr)
                for screen, data in zip(self._screens, self._data, strict=True)
            ]
        return [sum(gains) / len(gains) for gains in zip(*columns, strict=True)]

    def evaluate(
        self, expressions: Sequence[Expression], weights: Weights, *, seed: int | None = None,
        report: StageStepsDone | None = None,
    ) -> list[Fitness]:  # fmt: skip
        """Train the base model with each loss, and return its fitness on the validation split, averaged over the tasks.

        `seed` determines initial weights, batches, augmentation and dropout of the trainings; None is the engine's own.
        """
        _check(expressions, weights)
        columns: list[list[Fitness]] = []
        with self._context():
            for index, plan in enumerate(self.plans):
                column: list[Fitness] = []
                for part in _chunks(len(expressions), plan.training_chunk):
                    training = self._workspace.training(index, expressions[part], seed)
                    column += training.run(expressions[part], weights[part], report=_of_stage(report, "evaluate"))
                columns.append(column)
        return [mean_fitness(fitnesses) for fitnesses in zip(*columns, strict=True)]

    def optimise_networks(
        self, weights: Weights, passes: Sequence[int] | None = None, *, report: StageStepsDone | None = None
    ) -> list[Optimised]:
        """Optimise networks as ML³ does, each a row of weights (see `NetworkLosses`), one after the other.

        `passes`: how many passes over the meta steps each network has behind it. A further pass takes further steps,
        with initial weights, batches and masks that no earlier pass has used.
        """
        steps = self.settings.meta_steps
        results = []
        with self._context():
            optimiser = self._workspace.network_optimiser
            for row, done in zip(weights, passes or [0] * len(weights), strict=True):
                packed = torch.tensor([row], dtype=self.settings.dtype)
                tuned = torch.ones_like(packed, dtype=torch.bool)
                results += optimiser.run(
                    packed, tuned, steps=steps, first=done * steps, report=_of_stage(report, "optimise")
                )
        return results

    def evaluate_losses(
        self, losses: Sequence[nn.Module], *, seed: int | None = None, report: StageStepsDone | None = None
    ) -> list[Fitness]:
        """The same as `evaluate` for losses of any kind, one after the other, as `evomal.train` would train them."""
        rows = []
        with self._context():
            for loss in losses:
                row = []
                for index, task in enumerate(self.tasks):
                    criterion = loss_for_task(loss, task).to(self.device)
                    training = Training(self._workspace.training_setup(index, seed), criterion)
                    row.append(training.run(_of_stage(report, "evaluate")))
                rows.append(mean_fitness(row))
        return rows

    def scores(
        self, expressions: Sequence[Expression], weights: Weights, *, test: bool = True,
        report: StepsDone | None = None,
    ) -> list[Score]:  # fmt: skip
        """Train the task's model with all expressions together, and return the scores `evomal.train` would.

        The engine must have one task and a plan that stacks its model.
        """
        _check(expressions, weights)
        self._require_stack()
        results = []
        with self._context():
            for part in _chunks(len(expressions), self.plans[0].training_chunk):
                training = self._workspace.training(0, expressions[part])
                assert isinstance(training, StackedTraining)  # as the plan says
                members = len(expressions[part])
                fitnesses = training.run(expressions[part], weights[part], report=_of_members(report, members))
                results += training.scores(fitnesses, test=test)
        return results

    def scores_of_losses(
        self, losses: Sequence[nn.Module], *, test: bool = True, report: StepsDone | None = None
    ) -> list[Score]:
        """The same as `scores` for losses of any kind."""
        self._require_stack()
        results = []
        with self._context():
            for part in _chunks(len(losses), self.plans[0].training_chunk):
                chunk = [loss_for_task(loss, self.tasks[0]).to(self.device) for loss in losses[part]]
                setup = self._workspace.training_setup(0)
                models = StackedModels(setup, gradients_of_modules(chunk), count=len(chunk))
                results += models.scores(models.train(len(chunk), _of_members(report, len(chunk))), test=test)
        return results

    def _require_stack(self) -> None:
        if self.plans[0].mode != "stacked" or len(self.tasks) > 1:
            raise InputError("scores of several losses at once need one task and a model that can be stacked")

    def steps(self, candidates: int) -> dict[str, int]:
        """Returns the number of steps that each stage will report for that many candidates."""
        chunks = len(_chunks(candidates, self._workspace.meta_chunk))
        trained = sum(len(_chunks(candidates, plan.training_chunk)) for plan in self.plans)
        return {"optimise": chunks * self.settings.meta_steps, "evaluate": trained * self.settings.training_steps}

    def bytes_kept(self, meta_steps: int) -> int:
        """Returns the bytes of the data and of the initial weights of `meta_steps` steps."""
        return sum(data.bytes_kept(meta_steps) for data in self._data)

    def record(self) -> dict[str, Any]:
        """Returns what was decided by rule, and settings that could change a float: for the run's record."""
        return {
            **dataclasses.asdict(self.settings),
            "device": str(self.device),
            "dtype": str(self.settings.dtype),
            "threads": torch.get_num_threads(),
            "plans": [dataclasses.asdict(plan) for plan in self.plans],
        }

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        # A caller may be in the middle of an evaluation, without gradients.
        with (
            users_code(f"training on {', '.join(task.name for task in self.tasks)}"),
            deterministic_kernels(self.settings.deterministic, self.device),  # must come before CUDA is first used
            torch.inference_mode(False),
            torch.enable_grad(),
            isolated_torch(self.seed, device=self.device),
            matmul_precision(self.settings.precision, self.device),
        ):
            yield

    def _recipe(self, task: Task) -> Recipe:
        return dataclasses.replace(task.recipe, **self.settings.recipe, steps=self.settings.training_steps)

    def _plan(self, data: TaskData) -> Plan:
        settings = self.settings
        return make_plan(
            initial_model(data.task, self.seed), data.capabilities, device=self.device,
            batch=min(data.recipe.batch_size, len(data.train)), element=settings.dtype.itemsize,
            kept=data.bytes_kept(settings.meta_steps), population=settings.population,
            inner_steps=settings.inner_steps, wanted=settings.population_mode, chunk=settings.chunk,
        )  # fmt: skip


def _chunks(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _of_stage(report: StageStepsDone | None, stage: str) -> StepsDone | None:
    return None if report is None else lambda steps: report(stage, steps)


def _of_members(report: StepsDone | None, members: int) -> StepsDone | None:
    """Count a step of a stack as one step of each of its members."""
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
