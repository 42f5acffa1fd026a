"""A population of expressions optimised, screened and evaluated together, on one or several tasks."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import nn

from evomal.engine.choices import check_recipe, chosen_device, initial_model
from evomal.engine.forest.programs import fitting_width
from evomal.engine.meta_gradient import Tangent
from evomal.engine.network_losses import NetworkLosses
from evomal.engine.plans import Plan, PopulationMode, planned
from evomal.engine.population_training import LoopedTraining, PopulationTraining, StackedTraining, trained
from evomal.engine.precision import Precision, check_precision, matrix_arithmetic, repeatable
from evomal.engine.scores import Fitness, Score, judged_score
from evomal.engine.screening import Screening
from evomal.engine.stacked_models import StackedModels, gradients_of_modules
from evomal.engine.task_side import TaskSide
from evomal.engine.training import Manners, Training
from evomal.engine.tree_weights import TreeWeights
from evomal.engine.weight_optimisation import Optimised, WeightOptimisation
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses.expression_loss import ACTIVATIONS
from evomal.losses.neural import HIDDEN, weight_count
from evomal.randomness import isolated_torch
from evomal.tasks.task import Recipe, Task

_FIRST_WIDTH = 64  # most trees of a search fit; a larger one means a new capture
_SIZES = 5  # of what CUDA captures: more would be captured more often, fewer be filled up with more that is no use

_CHOICES: dict[str, tuple[Any, ...]] = {
    "activation": tuple(ACTIVATIONS),
    "tangent": (None, *get_args(Tangent)),
    "dtype": (torch.float32, torch.float64),
}

Weights = Sequence[Sequence[float]]
Report = Callable[[str, int], None]
"""Called with the stage, `optimise` or `evaluate`, and the steps done since its last call (see `Engine.steps`)."""


@dataclass(frozen=True)
class EngineSettings:
    """What the paper's section 4 fixes, and how it is worked on."""

    population: int = 25
    meta_steps: int = 250
    meta_lr: float = 1e-3
    inner_steps: int = 1
    training_steps: int = 500
    optimizer: str = "sgd"
    filter_steps: int = 1000
    filter_samples: int = 100
    activation: str = "identity"
    recipe: dict[str, Any] = field(default_factory=dict)
    """Changes to the task's own recipe: lr, momentum, nesterov, weight_decay, batch_size."""
    device: str = "auto"
    precision: Precision = "float32"
    channels_last: bool = False
    population_mode: PopulationMode = "auto"
    chunk: int | None = None
    graphs: bool = True
    tangent: Tangent | None = None
    """How Jacobian-vector products are had; None: what the model allows and measured best."""
    dtype: torch.dtype = torch.float32
    deterministic: bool = False
    """Whether CUDA must repeat its bits, which takes time; a CPU always does."""

    def __post_init__(self) -> None:
        for name in ("population", "meta_steps", "inner_steps", "training_steps", "filter_steps", "filter_samples"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number, at least 1, but got {value!r}")
        if not 0 < self.meta_lr < math.inf:
            raise InputError(f"meta_lr must be more than 0 but got {self.meta_lr}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                choices = ", ".join(map(str, known))
                raise InputError(f"{name} must be one of {choices} but got {getattr(self, name)!r}")
        if "steps" in self.recipe:
            raise InputError("a recipe's steps are given by training_steps here")


class Engine:
    """The three stages of a generation for expressions with weights.

    What one candidate comes to depends on the seed, the settings and itself. One after the other (looped) on a CPU
    that is exact: its neighbours, its place and what was worked on before change no bit. Stacked, the last bits depend
    on how many there are, and a loss under which training is chaotic may make much of them. Graphs, starts and buffers
    are kept from call to call, so one engine serves a whole search.
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
        self.device = chosen_device(self.settings.device)
        check_precision(self.settings.precision, self.device)
        self._recipes = [self._recipe(task) for task in self.tasks]
        self._width = _FIRST_WIDTH
        self._optimisers: dict[int, TreeWeights] = {}
        self._trainings: dict[tuple[int, int], PopulationTraining] = {}
        with self._surroundings():
            self._sides = [self._side(task, recipe) for task, recipe in zip(self.tasks, self._recipes, strict=True)]
            self.plans = [self._plan(side, recipe) for side, recipe in zip(self._sides, self._recipes, strict=True)]
            self._screens = [
                Screening(side, samples=self.settings.filter_samples, seed=seed, activation=self.settings.activation)
                for side in self._sides
            ]

    def prepare(self) -> None:
        """Make the starts of all meta steps now rather than in the first generation."""
        for side in self._sides:
            side.starts.prepare(self.settings.meta_steps)

    def optimise(
        self, expressions: Sequence[Expression], weights: Weights, *, report: Report | None = None
    ) -> list[Optimised]:
        """Tune each expression's weights through training steps of the base model."""
        _check(expressions, weights)
        results: list[Optimised] = []
        with self._surroundings():
            for start, stop in self._chunks(len(expressions), self._meta_chunk):
                worker = self._optimiser(expressions[start:stop])
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
        with self._surroundings():
            return torch.cat([screen.gradient_norms(expressions, weights) for screen in self._screens], 1).tolist()

    def gains(self, expressions: Sequence[Expression], weights: Weights) -> list[float]:
        """The rejection protocol: how much each loss lowers the mean cost when the outputs themselves descend it."""
        _check(expressions, weights)
        if not expressions:
            return []
        with self._surroundings():
            columns = [
                screen.gains(expressions, weights, steps=self.settings.filter_steps, lr=recipe.lr)
                for screen, recipe in zip(self._screens, self._recipes, strict=True)
            ]
        return [sum(gains) / len(gains) for gains in zip(*columns, strict=True)]

    def evaluate(
        self, expressions: Sequence[Expression], weights: Weights, *, report: Report | None = None
    ) -> list[Fitness]:
        """Train the base model with each loss, and its fitness on the validation split, averaged over the tasks."""
        _check(expressions, weights)
        columns: list[list[Fitness]] = []
        with self._surroundings():
            for index, plan in enumerate(self.plans):
                column: list[Fitness] = []
                for start, stop in self._chunks(len(expressions), plan.training_chunk):
                    worker = self._training(index, expressions[start:stop])
                    column += worker.run(
                        expressions[start:stop], weights[start:stop],
                        report=None if report is None else lambda steps: report("evaluate", steps),
                    )  # fmt: skip
                columns.append(column)
        return [_averaged(fitnesses) for fitnesses in zip(*columns, strict=True)]

    def optimise_networks(self, weights: Weights, *, report: Report | None = None) -> list[Optimised]:
        """Tune networks as ML³ does, each a row of weights (see `NetworkLosses`), one after the other."""
        with self._surroundings():
            worker = self._network_optimiser
            noted = None if report is None else lambda steps: report("optimise", steps)
            results = []
            for row in weights:
                packed = torch.tensor([row], dtype=self.settings.dtype)
                everywhere = torch.ones_like(packed, dtype=torch.bool)
                results += worker.run(packed, everywhere, steps=self.settings.meta_steps, report=noted)
        return results

    def evaluate_losses(self, losses: Sequence[nn.Module], *, report: Report | None = None) -> list[Fitness]:
        """The same as `evaluate` for losses of any kind, one after the other, as `evomal.train` would train them."""
        noted = None if report is None else lambda steps: report("evaluate", steps)
        rows = []
        with self._surroundings():
            for loss in losses:
                criterion = loss.to(self.device)
                row = []
                for index in range(len(self.tasks)):
                    row.append(trained(Training(criterion=criterion, **self._training_options(index)), noted))
                rows.append(_averaged(row))
        return rows

    def scores(self, expressions: Sequence[Expression], weights: Weights, *, test: bool = True) -> list[Score]:
        """Train all with the one task together, and judge each as `evomal.train` would; for a plan that stacks them."""
        _check(expressions, weights)
        self._require_stack()
        results = []
        with self._surroundings():
            for start, stop in self._chunks(len(expressions), self.plans[0].training_chunk):
                worker = self._training(0, expressions[start:stop])
                assert isinstance(worker, StackedTraining)  # as the plan says
                found = worker.run(expressions[start:stop], weights[start:stop])
                results += self._scored(worker, found, test=test)
        return results

    def scores_of_losses(self, losses: Sequence[nn.Module], *, test: bool = True) -> list[Score]:
        """The same as `scores` for losses of any kind."""
        self._require_stack()
        results = []
        with self._surroundings():
            for start, stop in self._chunks(len(losses), self.plans[0].training_chunk):
                chunk = [loss.to(self.device) for loss in losses[start:stop]]
                options = self._training_options(0)
                worker = StackedModels(gradients=gradients_of_modules(chunk), count=len(chunk), **options)
                results += self._scored(worker, worker.train(len(chunk)), test=test)
        return results

    def _require_stack(self) -> None:
        if self.plans[0].mode != "stacked" or len(self.tasks) > 1:
            raise InputError("scores of several losses at once need one task and a model that can be stacked")

    def _scored(self, models: StackedModels, fitnesses: Sequence[Fitness], *, test: bool) -> list[Score]:
        task, steps = self.tasks[0], self.settings.training_steps
        if not test:
            return [judged_score(task, fitness, None, seed=self.seed, steps=steps) for fitness in fitnesses]
        data = task.test.to(self.device, self.settings.dtype)
        outputs = models.outputs_on(data.inputs)
        return [
            judged_score(task, fitness, (outputs[member], data.targets), seed=self.seed, steps=steps)
            for member, fitness in enumerate(fitnesses)
        ]

    def steps(self, candidates: int) -> dict[str, int]:
        """Steps that will be reported for so many candidates: what a progress bar can promise."""
        chunks = len(list(self._chunks(candidates, self._meta_chunk)))
        trained = sum(len(list(self._chunks(candidates, plan.training_chunk))) for plan in self.plans)
        return {"optimise": chunks * self.settings.meta_steps, "evaluate": trained * self.settings.training_steps}

    def bytes_kept(self, meta_steps: int) -> int:
        """Memory of the data and of the starts of so many meta steps."""
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

    @property
    def _meta_chunk(self) -> int:
        return min(plan.meta_chunk for plan in self.plans)

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[None]:
        # A caller may be in the middle of an evaluation, without gradients.
        with (
            repeatable(self.settings.deterministic, self.device),  # first, as it must come before CUDA is used
            torch.inference_mode(False),
            torch.enable_grad(),
            isolated_torch(self.seed, device=self.device),
            matrix_arithmetic(self.settings.precision, self.device),
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

    def _side(self, task: Task, recipe: Recipe) -> TaskSide:
        return TaskSide(
            task, seed=self.seed, inner_steps=self.settings.inner_steps, batch_size=recipe.batch_size,
            device=self.device, dtype=self.settings.dtype, precision=self.settings.precision,
            channels_last=self.settings.channels_last,
        )  # fmt: skip

    def _plan(self, side: TaskSide, recipe: Recipe) -> Plan:
        return planned(
            initial_model(side.task, self.seed), side.capabilities, device=self.device,
            batch=min(recipe.batch_size, len(side.train)), element=self.settings.dtype.itemsize,
            kept=side.bytes_kept(self.settings.meta_steps), population=self.settings.population,
            inner_steps=self.settings.inner_steps, wanted=self.settings.population_mode, chunk=self.settings.chunk,
        )  # fmt: skip

    def _chunks(self, count: int, size: int) -> Iterator[tuple[int, int]]:
        for start in range(0, count, size):
            yield start, min(start + size, count)

    def _count(self, candidates: int, chunk: int) -> int:
        """Places for so many candidates: on CUDA one of few numbers, so that few graphs are ever captured."""
        if self.device.type != "cuda":
            return candidates
        step = math.ceil(chunk / _SIZES)
        return min(chunk, step * math.ceil(candidates / step))

    def _make_room(self, expressions: Sequence[Expression]) -> None:
        width = fitting_width(max(expression.size for expression in expressions))
        if width > self._width:
            self._width = width
            self._optimisers.clear()
            self._trainings.clear()

    def _forget_other_sizes(self) -> None:
        # On a CPU a worker is quickly made and its size rarely comes again.
        if self.device.type != "cuda":
            self._optimisers.clear()
            self._trainings.clear()

    def _optimiser(self, expressions: Sequence[Expression]) -> TreeWeights:
        self._make_room(expressions)
        count = self._count(len(expressions), self._meta_chunk)
        if count not in self._optimisers:
            self._forget_other_sizes()
            stacked = all(plan.mode == "stacked" for plan in self.plans)
            self._optimisers[count] = TreeWeights(
                self._sides, count=count, width=self._width, activation=self.settings.activation,
                mode="stacked" if stacked else "looped", **self._meta_options(),
            )  # fmt: skip
        return self._optimisers[count]

    @functools.cached_property
    def _network_optimiser(self) -> WeightOptimisation:
        losses = [
            NetworkLosses(kind=side.task.kind, outputs=side.capabilities.outputs, hidden=HIDDEN) for side in self._sides
        ]
        width = weight_count(HIDDEN)
        return WeightOptimisation(
            self._sides, losses, count=1, width=width, mode="looped", **self._meta_options()
        )  # fmt: skip

    def _meta_options(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "recipes": self._recipes, "seed": self.seed, "meta_lr": settings.meta_lr, "graphs": settings.graphs,
            "tangent": settings.tangent,
        }  # fmt: skip

    def _training(self, index: int, expressions: Sequence[Expression]) -> PopulationTraining:
        self._make_room(expressions)
        plan = self.plans[index]
        count = self._count(len(expressions), plan.training_chunk)
        if (index, count) not in self._trainings:
            self._forget_other_sizes()
            common: dict[str, Any] = {
                "outputs": self._sides[index].capabilities.outputs, "width": self._width,
                "activation": self.settings.activation, **self._training_options(index),
            }  # fmt: skip
            self._trainings[index, count] = (
                LoopedTraining(**common) if plan.mode == "looped" else StackedTraining(count=count, **common)
            )
        return self._trainings[index, count]

    def _training_options(self, index: int) -> dict[str, Any]:
        settings, side = self.settings, self._sides[index]
        return {
            "task": self.tasks[index], "recipe": self._recipes[index], "optimizer": settings.optimizer,
            "seed": self.seed, "parts": (side.train, side.validation),
            "manners": Manners(
                self.device, settings.precision, settings.channels_last, settings.graphs, settings.dtype
            ),
        }  # fmt: skip


def _check(expressions: Sequence[Expression], weights: Weights) -> None:
    if len(expressions) != len(weights):
        raise InputError(
            f"there must be weights for each of {len(expressions)} expressions but got {len(weights)} rows"
        )
    for expression, row in zip(expressions, weights, strict=True):
        if not isinstance(expression, Expression):
            raise InputError(f"a candidate must be an Expression but got {type(expression).__name__}")
        expression.require_loss().checked_weights(row)


def _averaged(fitnesses: Sequence[Fitness]) -> Fitness:
    lost = [fitness for fitness in fitnesses if fitness.outcome == "diverged"]
    if lost:
        return Fitness(math.inf, "diverged", lost[0].sentence)
    return Fitness(sum(fitness.value for fitness in fitnesses) / len(fitnesses))
