"""Training of one model with one loss: the loop, and the public function `train`."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn

from evomal.checks import MOST_POINTS, seed_number, whole_number
from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.feeds import BatchFeed, evaluation_batches
from evomal.engine.precision import Precision, autocast, check_precision, matmul_precision
from evomal.engine.resolve import check_model, initial_model, resolve_device, resolve_loss
from evomal.engine.row_losses import RowLoss
from evomal.engine.rows import RowRule, Rows, joined_rows, without_row_outputs
from evomal.engine.scores import (
    CurvePoint,
    Evaluated,
    Fitness,
    Score,
    diverged_fitness,
    fitness_of_outputs,
    metric_or_nan,
    score_of,
)
from evomal.engine.training_optimizer import SavedState, TrainingOptimizer
from evomal.engine.work import step_multiply_adds
from evomal.losses import ExpressionLoss
from evomal.progress import StepsDone, tracked
from evomal.randomness import derived_seed, isolated_torch, reseed_torch, restore_torch, torch_states
from evomal.tasks.inputs import Inputs, called, first, image_tensor, pieces, with_channels_last
from evomal.tasks.model_trials import evaluating
from evomal.tasks.optimizers import OptimizerFactory
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.schedules import ScheduleFactory
from evomal.tasks.task import Task, task_list
from evomal.threads import suitable_threads, thread_count
from evomal.users_code import passing, users_code

_STEPS_BETWEEN_CHECKS = 50  # reading a loss waits for the device, so divergence is noticed a little late
_STEPS_BETWEEN_REPORTS = 10
_EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class TrainingSetup:
    """Everything a training needs besides its loss."""

    task: Task
    recipe: Recipe
    seed: int
    device: torch.device
    precision: Precision = "float32"
    channels_last: bool = False
    graphs: bool = True
    dtype: torch.dtype = torch.float32
    parts: tuple[Part, Part] | None = None
    """Data to train on and to judge on that are on the device already; None: the task's training and validation data
    are copied there."""

    @functools.cached_property
    def data(self) -> tuple[Part, Part]:
        """The parts on the device: models are trained on the first, and judged on the second."""
        train, validation = self.task.train, self.task.validation
        return self.parts or (train.to(self.device, self.dtype), validation.to(self.device, self.dtype))

    def resplit(self, number: int) -> tuple[Tensor, Tensor]:
        """Returns the rows to train on and to judge on in another split, as numbers among the rows of both parts."""
        train, judged = self.task.resplit(number)
        return train.to(self.device), judged.to(self.device)


class Training:
    """Training of one model with one loss, from the seed's initial weights; it can be started again.

    To be used inside `isolated_torch`: dropout draws from torch's global generators, which `start` seeds.
    """

    def __init__(self, setup: TrainingSetup, criterion: Callable[[Tensor, Rows], Tensor]) -> None:
        task, device, dtype = setup.task, setup.device, setup.dtype
        model = initial_model(task, setup.seed).to(device, dtype)
        if setup.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        check_model(model, task)
        self.setup, self.model, self.criterion = setup, model, criterion
        self._data, self._validation = setup.data
        size = setup.recipe.batch_size
        self._feed = BatchFeed(self._data, count=1, size=size, device=device, dtype=dtype)
        self._feed.open([(setup.seed, "training")])
        self._row_rule = RowRule(task, device, dtype)
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = TrainingOptimizer(setup.recipe, model, device, graphs=setup.graphs)
        self._initial = {name: value.detach().clone() for name, value in self._state().items()}
        self._augmenting = torch.Generator(device)
        self.loss = torch.zeros((), dtype=dtype, device=device)
        """The training loss of the last batch."""
        self._sum = torch.zeros_like(self.loss)  # of all losses: not finite once one of them was not
        self.steps_done, self._diverged = 0, ""
        generators = (self._augmenting,) if task.augmentation else ()
        captured = self._optimizer.can_be_captured and not self._feed.is_varying
        self.step = GraphedStep(self._step, device=device, generators=generators, enabled=captured)

    def start(self, lr: float | None = None, steps: int | None = None) -> None:
        """Put model, optimizer and random generators into the seed's initial state, in the memory they are in.

        Learning rate and number of steps are those of the recipe where None is given.
        """
        self.steps_done, self._diverged = 0, ""
        with torch.no_grad():
            for name, value in self._state().items():
                value.copy_(self._initial[name])
        self._optimizer.start(lr, steps)
        self._sum.zero_()
        reseed_torch(derived_seed(self.setup.seed, "dropout"), self.setup.device)
        self._augmenting.manual_seed(derived_seed(self.setup.seed, "augmentation"))

    def advance(
        self, steps: int, report: StepsDone | None = None, *, on_step: Callable[[int], None] | None = None,
        before_step: Callable[[int], None] | None = None, progress: bool = False,
    ) -> None:  # fmt: skip
        """Train until that number of steps is done, or until the training is found to have diverged.

        `before_step` is called with the number of steps done before each step, `on_step` with that after it.
        """
        if self._diverged:
            return
        left = range(self.steps_done, steps)
        for index in tracked(left, self.setup.task.name, total=len(left), shown=progress):
            if self._optimizer.prepare(index):
                self.step.forget()
            self._feed.load(index)
            if before_step is not None:
                before_step(index)
            self.step()
            self.steps_done = done = index + 1
            if on_step is not None:
                on_step(done)
            report_steps(report, done, steps)
            is_checked = done % _STEPS_BETWEEN_CHECKS == 0 or done == steps
            if is_checked and not math.isfinite(self._sum.item()):
                self._diverged = f"the training loss was not finite by step {done}"
                if report is not None:
                    report(steps - done)  # the remaining steps are not taken
                return

    def fitness(self) -> Fitness:
        """Returns the fitness of the model as it is now, on the validation split."""
        if self._diverged:
            return diverged_fitness(self._diverged)
        return fitness_of_outputs(self.setup.task, self._evaluated(self._validation))

    def run(self, report: StepsDone | None = None, **options: Any) -> Fitness:
        """Train from the initial weights for the steps of the recipe; `options` are those of `advance`."""
        self.start()
        self.advance(self.setup.recipe.steps, report, **options)
        return self.fitness()

    def suitable_threads(self) -> int:
        """Returns the number of threads for this training, by a fixed rule; at most those that torch uses now."""
        forward = functools.partial(evaluate_model, self.model)
        parameters = sum(parameter.numel() for parameter in self._trained)
        work = step_multiply_adds(forward, first(self._data.inputs, 2), parameters=parameters, batch=self._feed.size)
        return suitable_threads(work, device=self.setup.device.type, most=torch.get_num_threads())

    def validation_metric(self) -> float:
        """Returns the task's metric on the validation split for the current weights."""
        return metric_or_nan(self.setup.task, self._evaluated(self._validation))

    def test_outputs(self) -> Evaluated:
        """Returns the outputs on the test split."""
        return self._evaluated(self.setup.task.test.to(self.setup.device, self.setup.dtype))

    def snapshot(self) -> "Snapshot":
        """Returns a copy, in the memory of the host, of everything that a further step depends on."""
        tensors = [value.detach().to("cpu", copy=True) for value in [*self._state().values(), self._sum]]
        generators = [*torch_states(self.setup.device), self._augmenting.get_state()]
        own = self._optimizer
        return Snapshot(tensors, own.saved(), generators, own.lr, own.steps, self.steps_done, self._diverged)

    def restore(self, snapshot: "Snapshot") -> None:
        """Continue from a snapshot of this training; tensors that exist already keep their memory."""
        with torch.no_grad():
            for value, saved in zip([*self._state().values(), self._sum], snapshot.tensors, strict=True):
                value.copy_(saved)
        self._optimizer.restore(snapshot.optimizer, lr=snapshot.lr, steps=snapshot.steps)
        *states, augmenting = snapshot.generators
        restore_torch(states, self.setup.device)
        self._augmenting.set_state(augmenting)
        self.steps_done, self._diverged = snapshot.steps_done, snapshot.diverged

    def _evaluated(self, part: Part) -> Evaluated:
        """Returns the outputs on all samples of a part."""
        batches = evaluation_batches(part, size=_EVALUATION_BATCH, device=self.setup.device, dtype=self.setup.dtype)
        pairs = [(evaluate_model(self.model, batch.inputs), self._row_rule.of_metric(batch)) for batch in batches]
        rows = joined_rows([own for _, own in pairs])
        return Evaluated(torch.cat([own for own, _ in pairs]), rows.targets, rows.weights)

    def _state(self) -> dict[str, Tensor]:
        """All that training may change; unlike a state dictionary it has every buffer."""
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def _step(self) -> None:
        batch = self._feed.batch()
        inputs = batch.inputs
        if self.setup.task.augmentation is not None:
            inputs = self.setup.task.augmentation(image_tensor(inputs), generator=self._augmenting)
        if self.setup.channels_last:
            inputs = with_channels_last(inputs)
        with autocast(self.setup.precision, self.setup.device):
            outputs = called(self.model, inputs)
        loss = self.criterion(outputs.to(self.setup.dtype), self._row_rule.of_loss(batch))
        self._optimizer.zero_grad()
        # Only the model's parameters: a loss may have parameters of its own, which are not trained here.
        torch.autograd.backward(loss, inputs=self._trained)
        self._optimizer.step()
        self.loss.copy_(loss.detach())
        self._sum.add_(self.loss)


@dataclass(frozen=True)
class Snapshot:
    """A training at some step, apart from the objects that train."""

    tensors: list[Tensor]
    optimizer: SavedState
    generators: list[Tensor]
    lr: float
    steps: int
    """Of the whole training."""
    steps_done: int
    diverged: str


class TrainingSettings(TypedDict, total=False):
    """The keyword arguments of `train`."""

    seed: int
    steps: int | None
    optimizer: str | OptimizerFactory | None
    schedule: str | ScheduleFactory | None
    warmup: float | None
    clip: float | None
    lr: float | None
    momentum: float | None
    nesterov: bool | None
    weight_decay: float | None
    batch_size: int | None
    milestones: tuple[int, ...] | None
    device: str
    precision: Precision
    channels_last: bool
    graphs: bool
    curve_points: int
    test: bool
    progress: bool
    report: StepsDone | None
    keep_model: bool


AnyLoss = nn.Module | str | os.PathLike[str]


@overload
def train(task: Task, loss: AnyLoss, **settings: Unpack[TrainingSettings]) -> Score: ...
@overload
def train(task: Sequence[Task], loss: AnyLoss, **settings: Unpack[TrainingSettings]) -> list[Score]: ...
def train(
    task: Task | Sequence[Task],
    loss: AnyLoss,
    *,
    seed: int = 0,
    steps: int | None = None,
    optimizer: str | OptimizerFactory | None = None,
    schedule: str | ScheduleFactory | None = None,
    warmup: float | None = None,
    clip: float | None = None,
    lr: float | None = None,
    momentum: float | None = None,
    nesterov: bool | None = None,
    weight_decay: float | None = None,
    batch_size: int | None = None,
    milestones: tuple[int, ...] | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    channels_last: bool = False,
    graphs: bool = True,
    curve_points: int = 20,
    test: bool = True,
    progress: bool = False,
    report: StepsDone | None = None,
    keep_model: bool = False,
) -> Score | list[Score]:
    """Train a task's model with a loss, and evaluate it once on the test split.

    The caller's random state is left as it was. On a CPU a small model is trained by one thread, a large one by all
    threads that torch may use; the caller's number of threads is restored.

    Args:
        task: The task, or several tasks, which are trained one after the other.
        loss: A module, the name of a loss (`focal:gamma=3`), or a loss file.
        seed: Determines initial weights, batches, augmentation and dropout, identically for every loss.
        steps: Training steps. This and the next settings are those of the task's recipe where None is given.
        optimizer: The name of an optimizer (`sgd`, `adamw:beta2=0.98`), or a function that makes one: see `Recipe`.
        schedule: The name of a schedule (`cosine`, `step`), or a function that makes a scheduler: see `Recipe`.
        warmup: Steps, or the share of all steps, in which the learning rate rises.
        clip: The norm to which gradients are clipped.
        lr: Learning rate.
        momentum: Momentum of SGD.
        nesterov: Whether SGD uses Nesterov momentum.
        weight_decay: Weight decay.
        batch_size: Samples per step.
        milestones: Steps at which the learning rate is divided by ten; None: those of the recipe, at the same
            fractions of the training.
        device: `auto`, `cpu`, `cuda`, `cuda:0` or `mps`.
        precision: `float32`, `tf32` or `bfloat16`.
        channels_last: Whether images are stored channels last.
        graphs: Whether CUDA captures the step as a graph; decisions that the model makes in Python are then made once.
        curve_points: Number of points of the score's curve.
        test: Whether to evaluate on the test split; what is chosen by the score must not have seen it.
        progress: Whether to show a progress bar on a terminal.
        report: Called every few steps with the number of steps done since the last call.
        keep_model: Whether the score has the trained model.

    Returns:
        The score, or a list with the score of each task. A training that diverged is a score too: see `Score.diverged`.

    Raises:
        InputError: A setting is out of range, the device does not exist, or loss or model do not fit the task.

    Example:
        >>> import evomal
        >>> task = evomal.load_task("diabetes", "mlp:hidden=4")
        >>> score = evomal.train(task, "mse", steps=5, device="cpu", keep_model=True)
        >>> score.model(task.test.inputs[:3]).shape
        torch.Size([3, 1])
    """
    given: dict[str, Any] = {
        "steps": steps, "lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay,
        "batch_size": batch_size, "milestones": milestones, "optimizer": optimizer, "schedule": schedule,
        "warmup": warmup, "clip": clip,
    }  # fmt: skip
    changes = {name: value for name, value in given.items() if value is not None}
    where = resolve_device(device)
    check_precision(precision, where)
    seed_number(seed)
    whole_number("curve_points", curve_points, at_least=1, at_most=MOST_POINTS)
    tasks = task_list("task", task)
    trainings = []
    for one in tasks:  # all are checked before the first is trained
        recipe = one.recipe.for_steps(steps).changed(**changes)
        setup = TrainingSetup(one, recipe, seed, where, precision, channels_last, graphs)
        trainings.append((setup, resolve_loss(loss, one).to(where)))
    scores = []
    for setup, criterion in trainings:
        with (
            users_code(f"training on {setup.task.name}"),
            torch.inference_mode(False),
            torch.enable_grad(),
            isolated_torch(seed, device=where),
            matmul_precision(precision, where),
        ):
            training = Training(setup, RowLoss(criterion))
            with thread_count(training.suitable_threads()):
                reported = None if report is None else passing(report)
                score = _train_and_score(training, curve_points, test=test, progress=progress, report=reported)
        if keep_model and not score.diverged:
            score = dataclasses.replace(score, model=without_row_outputs(training.model).eval())
        scores.append(score)
    return scores[0] if isinstance(task, Task) else scores


def _train_and_score(
    training: Training, curve_points: int, *, test: bool, progress: bool, report: StepsDone | None
) -> Score:
    setup, curve = training.setup, []
    steps = setup.recipe.steps
    spacing = max(1, steps // curve_points)

    def add_point(done: int) -> None:
        if done % spacing == 0 or done == steps:
            curve.append(CurvePoint(done, training.loss.item(), training.validation_metric()))

    def set_progress(done: int) -> None:
        assert isinstance(criterion, ExpressionLoss)
        criterion.progress = done / steps

    assert isinstance(training.criterion, RowLoss)
    criterion = training.criterion.module
    before_step = set_progress if isinstance(criterion, ExpressionLoss) and criterion.is_moving else None
    fitness = training.run(report, on_step=add_point, before_step=before_step, progress=progress)
    tested = training.test_outputs() if test and not fitness.diverged else None
    return score_of(
        setup.task, fitness, tested, seed=setup.seed, steps=training.steps_done, milestones=setup.recipe.milestones,
        curve=curve,
    )  # fmt: skip


def report_steps(report: StepsDone | None, done: int, steps: int) -> None:
    """Call `report`, if given, after every tenth step and after the last one."""
    if report is not None and (done % _STEPS_BETWEEN_REPORTS == 0 or done == steps):
        report(done % _STEPS_BETWEEN_REPORTS or _STEPS_BETWEEN_REPORTS)


def evaluate_model(model: nn.Module, inputs: Inputs) -> Tensor:
    """Returns the model's outputs on all inputs, in evaluation mode."""
    with evaluating(model), torch.no_grad():
        return torch.cat([called(model, batch) for batch in pieces(inputs, _EVALUATION_BATCH)])
