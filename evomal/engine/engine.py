"""The engine: a population of expressions optimised, screened and trained together, on one or several tasks."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from evomal.engine.admissibility import Admissibility
from evomal.engine.device_memory import limit_memory
from evomal.engine.left_out import LeftOutCosts
from evomal.engine.optimizers import why_not_stacked
from evomal.engine.plans import EngineSettings, Plan, make_plan
from evomal.engine.precision import check_precision, deterministic_kernels, matmul_precision
from evomal.engine.resolve import initial_model, resolve_device, start_backward_thread
from evomal.engine.scores import Fitness, Rung, RungScores, Score, Trial, TrialLoss, mean_fitness, score_of
from evomal.engine.screening import Screening, Weights
from evomal.engine.task_data import TaskData
from evomal.engine.trials import Watch
from evomal.engine.weight_optimisation import Optimised
from evomal.engine.workspace import Workspace
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses.loss import WeightedTree
from evomal.progress import StageStepsDone, StepsDone
from evomal.randomness import isolated_torch
from evomal.reproducible import has_reproducible_products
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from evomal.text import plural
from evomal.threads import suitable_threads, thread_count
from evomal.users_code import users_code


class Engine:
    """The three stages of a generation: optimise weights, screen, train and evaluate.

    The result of a candidate depends on the seed, the settings and the candidate. Looped on a CPU this is exact: other
    candidates, their order and earlier calls change no bit. Stacked, the last bits of optimised weights depend on the
    number of candidates, as do those of trainings on CUDA unless `deterministic` is set, and chaotic training may
    amplify them. CUDA graphs, initial weights and buffers are kept from call to call, so one engine serves a whole
    search.

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
            raise InputError("tasks must be a Task or a list of tasks: load one by its name with load_task")
        if not self.tasks:
            raise InputError("at least one task must be given but got none")
        if len({task.kind for task in self.tasks}) > 1:
            raise InputError("tasks of one search must be of one kind: classification, regression or multilabel")
        self.seed = seed
        self.device = resolve_device(self.settings.device)
        check_precision(self.settings.precision, self.device)
        recipes = [self._recipe(task) for task in self.tasks]
        self._most_threads = torch.get_num_threads()
        self.threads = self.settings.threads or self._most_threads
        """Number of threads for the candidates of a generation."""
        with self._context():
            limit_memory(self.device)
            start_backward_thread(self.device)
            self._data = [
                TaskData(task, recipe, self.settings, seed=seed, device=self.device)
                for task, recipe in zip(self.tasks, recipes, strict=True)
            ]
            self.plans = [self._plan(data) for data in self._data]
            self.threads = self._suitable_threads([plan.training_chunk for plan in self.plans])
            samples = self.settings.filter_samples
            self._admissibility = [
                Admissibility(
                    self.tasks[0].kind, outputs, activation=self.settings.activation, device=self.device,
                    dtype=self.settings.dtype,
                )
                for outputs in dict.fromkeys(data.capabilities.outputs for data in self._data)
            ]  # fmt: skip
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
        steps, reporter = self.settings.meta_steps, _of_stage(report, "optimise")
        with self._context():
            for part in _chunks(len(expressions), self._workspace.meta_chunk):
                optimiser = self._workspace.optimiser(expressions[part])
                results += optimiser.run(expressions[part], weights[part], steps=steps, report=reporter)
        return results

    def inadmissible(self, expressions: Sequence[Expression], weights: Weights) -> list[str]:
        """Returns why each expression cannot be a loss of the tasks' kind, in a sentence; empty if it can."""
        _check(expressions, weights)
        if not expressions:
            return []
        with self._context():
            columns = [check.reasons(expressions, weights) for check in self._admissibility]
        return [next(filter(None, reasons), "") for reasons in zip(*columns, strict=True)]

    def gradient_norms(self, expressions: Sequence[Expression], weights: Weights) -> list[list[float]]:
        """Returns each sample's gradient norm at the untrained outputs, the tasks one after the other."""
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
        """Train the base model with each loss, and return its fitness on the validation split.

        On several tasks it is the mean, and `Fitness.by_task` has the fitness on each. `seed` determines initial
        weights, batches, augmentation and dropout of the trainings; None is the engine's own. Trainings with another
        seed are those of the finals, which are judged on rows of their own where a task has some.
        """
        _check(expressions, weights)
        losses = [WeightedTree(tree, list(row)) for tree, row in zip(expressions, weights, strict=True)]
        return self._fitnesses(losses, seed, report)

    def profiles(self, expressions: Sequence[Expression], weights: Weights) -> list[list[float]]:
        """Returns by how much each loss's gradient differs from sample to sample, the tasks one after the other.

        See `Screening.profiles`: losses that differ by a factor have the same profile.
        """
        _check(expressions, weights)
        if not expressions:
            return []
        with self._context():
            return torch.cat([screen.profiles(expressions, weights) for screen in self._screens], 1).tolist()

    def try_rates(
        self, losses: Sequence[TrialLoss], rungs: Sequence[Rung], rates: Sequence[Sequence[float]], *,
        report: StageStepsDone | None = None,
    ) -> list[RungScores]:  # fmt: skip
        """Train the base model with each loss at several learning rates, on every seed of its rung.

        Args:
            losses: Modules, or expressions with their weights.
            rungs: The rung of each loss; they may differ in seeds and splits only.
            rates: The learning rates of each loss, as multiples of the task's own.
            report: Called with the stage and the number of steps done since the last call.

        Returns:
            The costs of each loss by learning rate, averaged over the tasks and, where there are several, on each.
        """
        if not losses:
            return []
        (rung,) = {dataclasses.replace(one, seeds=(), splits=()) for one in rungs}
        with self._context():
            factors = self._matching_factors(losses, rung.reference)
            # A module is trained as it is, so that its learning rate is that of the loss people know.
            factors = [
                factor if isinstance(loss, WeightedTree) else 1.0 for loss, factor in zip(losses, factors, strict=True)
            ]
            columns = []
            for index, data in enumerate(self._data):
                trials = [
                    Trial(loss, rate * data.recipe.lr, seed, factor, split)
                    for loss, factor, one, own in zip(losses, factors, rungs, rates, strict=True)
                    for rate in own
                    for seed, split in zip(one.seeds, one.splits or [0] * len(one.seeds), strict=True)
                ]
                milestones = rung.milestones_by_task[index] if rung.milestones_by_task else rung.milestones
                runner = self._workspace.trials(
                    index, of_population=True, milestones=milestones, is_final=rung.is_final
                )
                members = min(len(trials), self.plans[index].trial_chunk) if self.plans[index].mode == "stacked" else 1
                with thread_count(self._suitable_threads_of(index, members)):
                    watch = LeftOutCosts(data.task, is_final=rung.is_final) if rung.leaves_out else None
                    reporter = _of_stage(report, "evaluate")
                    results = runner.run(trials, horizons=[rung.steps], watch=watch, report=reporter)
                fitnesses = [reached.fitness for (reached,) in results]
                columns.append(fitnesses if watch is None else watch.added_to(fitnesses))
        means = iter([mean_fitness(fitnesses) for fitnesses in zip(*columns, strict=True)])
        return [
            RungScores.of({rate: [next(means) for _ in one.seeds] for rate in own}, factor)
            for factor, one, own in zip(factors, rungs, rates, strict=True)
        ]

    def _matching_factors(self, losses: Sequence[TrialLoss], reference: str | None = "") -> list[float]:
        """Returns one factor per loss: the geometric mean of those of the tasks."""
        if reference is None:
            return [1.0] * len(losses)
        columns = [screen.matching_factors(losses, reference) for screen in self._screens]
        return [math.prod(factors) ** (1 / len(factors)) for factors in zip(*columns, strict=True)]

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
        """The same as `evaluate` for losses of any kind."""
        return self._fitnesses(losses, seed, report)

    def _fitnesses(self, losses: Sequence[TrialLoss], seed: int | None, report: StageStepsDone | None) -> list[Fitness]:
        start = self.seed if seed is None else seed
        columns = []
        with self._context():
            for index, data in enumerate(self._data):
                trials = [Trial(loss, data.recipe.lr, start) for loss in losses]
                results = self._workspace.trials(index, of_population=True, is_final=seed is not None).run(
                    trials, horizons=[data.recipe.steps], report=_of_stage(report, "evaluate")
                )
                columns.append([reached.fitness for (reached,) in results])
        return [mean_fitness(fitnesses) for fitnesses in zip(*columns, strict=True)]

    def run_trials(
        self, trials: Sequence[Trial], *, horizons: Sequence[int] | None = None, test: bool = False,
        watch: Watch | None = None, report: StepsDone | None = None,
    ) -> list[list[Score]]:  # fmt: skip
        """Run any trials of the engine's task, and return their scores at every horizon.

        Args:
            trials: The trials, in any order.
            horizons: Numbers of steps at which to score, increasing; None: the training steps of the settings.
            test: Whether scores at the last horizon have test metrics; with `watch`, which gets the outputs, none has.
            watch: Called for every trial at every horizon with its outputs on validation, and with `test` on test.
            report: Called with the number of steps done since the last call, of all trials together.

        Returns:
            For each trial its scores, one per horizon.

        Raises:
            InputError: The engine has several tasks, or the horizons do not increase.
        """
        if len(self.tasks) > 1:
            raise InputError(f"run_trials takes an engine with 1 task but this one has {len(self.tasks)}")
        (data,), steps = self._data, [*(horizons or [self.settings.training_steps])]
        if steps[0] < 1 or any(later <= earlier for earlier, later in itertools.pairwise(steps)):
            raise InputError(f"horizons must be at least 1 and increase but got {steps}")
        members = min(self.plans[0].trial_chunk, len(trials)) if self.plans[0].mode == "stacked" else 1
        with self._context(self._suitable_threads([members])):
            results = self._workspace.trials(0).run(trials, horizons=steps, test=test, watch=watch, report=report)
        return [
            [
                score_of(
                    data.task, reached.fitness, reached.tested, seed=trial.seed, steps=done,
                    milestones=data.recipe.milestones,
                )
                for done, reached in zip(steps, row, strict=True)
            ]
            for trial, row in zip(trials, results, strict=True)
        ]  # fmt: skip

    def steps(self, candidates: int) -> dict[str, int]:
        """Returns the number of steps that each stage will report for that many candidates."""
        chunks = len(_chunks(candidates, self._workspace.meta_chunk))
        trained = candidates * len(self.tasks)
        return {"optimise": chunks * self.settings.meta_steps, "evaluate": trained * self.settings.training_steps}

    def bytes_kept(self, meta_steps: int) -> int:
        """Returns the bytes of the data and of the initial weights of `meta_steps` steps."""
        return sum(data.bytes_kept(meta_steps) for data in self._data)

    def share_drawn_again(self, meta_steps: int) -> float:
        """Returns the share of the initial weights of `meta_steps` steps that every stack of candidates draws again."""
        return max(data.initial_weights.share_drawn_again(meta_steps) for data in self._data)

    @property
    def optimizer(self) -> str | None:
        """The name of the optimizer of all tasks; None if they differ, or have one that a function makes."""
        first, *others = (data.recipe.optimizer for data in self._data)
        return first if isinstance(first, str) and all(other == first for other in others) else None

    def record(self) -> dict[str, Any]:
        """Returns what was decided by rule, and settings that could change a float: for the run's record.

        The space is a setting of the search, which records it.
        """
        return {
            **{name: value for name, value in dataclasses.asdict(self.settings).items() if name != "space"},
            "optimizer": self.optimizer,
            "device": str(self.device),
            "dtype": str(self.settings.dtype),
            "threads": self.threads,
            "reproducible_products": has_reproducible_products(),
            "plans": [plan.record() for plan in self.plans],
        }

    @contextlib.contextmanager
    def _context(self, threads: int | None = None) -> Iterator[None]:
        # A caller may be in the middle of an evaluation, without gradients.
        with (
            thread_count(threads or self.threads),
            users_code(f"training on {', '.join(task.name for task in self.tasks)}"),
            deterministic_kernels(self.settings.deterministic, self.device),  # must come before CUDA is first used
            torch.inference_mode(False),
            torch.enable_grad(),
            isolated_torch(self.seed, device=self.device),
            matmul_precision(self.settings.precision, self.device),
        ):
            yield

    def _suitable_threads(self, members: Sequence[int]) -> int:
        """Returns the number of threads for training that many models of each task at once."""
        return max(self._suitable_threads_of(index, count) for index, count in enumerate(members))

    def _suitable_threads_of(self, index: int, members: int) -> int:
        if self.settings.threads is not None:
            return self.settings.threads
        work = self._data[index].multiply_adds * members
        return suitable_threads(work, device=self.device.type, most=self._most_threads)

    def _recipe(self, task: Task) -> Recipe:
        changes = {**self.settings.recipe}
        if self.settings.optimizer is not None:
            changes["optimizer"] = self.settings.optimizer
        # Milestones are not moved: a search trains for the beginning of a full training, as the paper's does.
        return task.recipe.for_steps(self.settings.training_steps, task.recipe.milestones).changed(**changes)

    def _plan(self, data: TaskData) -> Plan:
        settings, module = self.settings, initial_model(data.task, self.seed)
        return make_plan(
            module, data.capabilities, settings, device=self.device, batch=data.batch_size,
            kept=data.bytes_kept(settings.meta_steps),
            unstacked=why_not_stacked(data.recipe, module, torch.device("cpu")),
        )  # fmt: skip


def _chunks(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _of_stage(report: StageStepsDone | None, stage: str) -> StepsDone | None:
    return None if report is None else lambda steps: report(stage, steps)


def _check(expressions: Sequence[Expression], weights: Weights) -> None:
    if len(expressions) != len(weights):
        raise InputError(
            f"there must be weights for each of {plural(len(expressions), 'expression')} but got "
            f"{plural(len(weights), 'row')}"
        )
    for expression, row in zip(expressions, weights, strict=True):
        if not isinstance(expression, Expression):
            raise InputError(f"a candidate must be an Expression but got {type(expression).__name__}")
        expression.require_loss().checked_weights(row)
