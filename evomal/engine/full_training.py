"""The public function `train`: a model trained from its initial weights to the end, and scored."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import nn

from evomal.checks import MOST_POINTS, seed_number, whole_number
from evomal.engine.precision import Precision, check_precision, matmul_precision
from evomal.engine.procedures import Judge, require_fitting, split_procedure
from evomal.engine.resolve import copied, resolve_device, resolve_loss
from evomal.engine.row_losses import RowLoss
from evomal.engine.rows import without_row_outputs
from evomal.engine.scores import CurvePoint, Reached, Score
from evomal.engine.training import Training, TrainingSetup
from evomal.errors import InputError
from evomal.losses import ExpressionLoss
from evomal.progress import StepsDone
from evomal.randomness import isolated_torch
from evomal.tasks.optimizers import OptimizerFactory, ScheduleFactory
from evomal.tasks.task import Task, task_list
from evomal.text import short_repr
from evomal.threads import thread_count
from evomal.users_code import passing, users_code


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
        loss: A module, the name of a loss (`focal:gamma=3`), or a loss file; a procedure may follow a name or file, as
            in `ce+early-stopping`.
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
    tasks, (trained_with, procedure) = task_list("task", task), split_procedure(loss)
    if procedure is not None and keep_model:
        raise InputError(f"keep_model must be False with a procedure but got {short_repr(loss)}")
    trainings = []
    for one in tasks:  # all are checked before the first is trained
        recipe = one.recipe.for_steps(steps).changed(**changes)
        setup = TrainingSetup(one, recipe, seed, where, precision, channels_last, graphs)
        trainings.append((setup, copied(resolve_loss(trained_with, one)).to(where)))
        if procedure is not None:
            require_fitting(procedure, one.kind)
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
                judge = Judge(procedure, setup.task, setup.recipe.steps)
                score = _train_and_score(training, judge, curve_points, test=test, progress=progress, report=reported)
        if keep_model and not score.diverged:
            score = dataclasses.replace(score, model=without_row_outputs(training.model).eval())
        scores.append(score)
    return scores[0] if isinstance(task, Task) else scores


def _train_and_score(
    training: Training, judge: Judge, curve_points: int, *, test: bool, progress: bool, report: StepsDone | None
) -> Score:
    setup, curve = training.setup, []
    steps = setup.recipe.steps
    spacing = max(1, steps // curve_points)

    def add_point(done: int) -> None:
        if done % spacing == 0 or done == steps:
            curve.append(CurvePoint(done, training.loss.item(), training.validation_metric()))
        if done in judge.horizons and done < steps:
            see(done)

    def see(done: int) -> None:
        fitness, validation = training.validated()
        tested = training.test_outputs() if test and not fitness.diverged else None
        judge.see(done, Reached(fitness, tested, validation))

    def set_progress(done: int) -> None:
        assert isinstance(criterion, ExpressionLoss)
        criterion.progress = done / steps

    assert isinstance(training.criterion, RowLoss)
    criterion = training.criterion.module
    before_step = set_progress if isinstance(criterion, ExpressionLoss) and criterion.is_moving else None
    training.start()
    training.advance(steps, report, on_step=add_point, before_step=before_step, progress=progress)
    see(steps)
    score = judge.score(seed=setup.seed, milestones=setup.recipe.milestones, curve=curve)
    return dataclasses.replace(score, steps=training.steps_done) if score.diverged else score
