"""Training of one model with one loss, from the seed to the test split."""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import nn

from evomal.engine.precision import Precision, check_precision, matmul_precision
from evomal.engine.resolve import check_recipe, resolve_device, resolve_loss
from evomal.engine.scores import CurvePoint, Score, diverged_score
from evomal.engine.stacked import every_ten_steps
from evomal.engine.training import ExecutionOptions, Training, evaluate_model
from evomal.errors import InputError
from evomal.progress import StepsDone, tracked
from evomal.randomness import isolated_torch
from evomal.tasks.metrics import usual_metrics
from evomal.tasks.task import Task


class TrainingSettings(TypedDict, total=False):
    """The keyword arguments of `train`."""

    seed: int
    steps: int | None
    optimizer: str
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
    keep: Callable[[nn.Module], None] | None


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
    optimizer: str = "sgd",
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
    keep: Callable[[nn.Module], None] | None = None,
) -> Score | list[Score]:
    """Train the task's model with a loss, a loss's name or a loss file, and evaluate it once on the test split.

    The seed fixes initial weights, batches, augmentation and dropout, identically for every loss; settings not given
    are the task's own. `milestones` not given are the recipe's, at the same fractions of the training where `steps`
    makes it shorter or longer. Several tasks give a score each. The caller's random state is left as it was. On CUDA a
    step is captured as a graph where it can be: what a model decides in Python it then decides once (`graphs=False`
    prevents). With `test=False` the test split is left alone, as whatever is chosen by the score must not have seen it.
    `report` is called every few steps with how many were done since. `keep` is called with each trained model, which
    nobody else uses from then on; not with one that diverged.
    """
    given: dict[str, Any] = {
        "steps": steps, "lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay,
        "batch_size": batch_size, "milestones": milestones,
    }  # fmt: skip
    changes = {name: value for name, value in given.items() if value is not None}
    where = resolve_device(device)
    check_precision(precision, where)
    if curve_points < 1:
        raise InputError(f"curve_points must be at least 1 but got {curve_points}")
    tasks = [task] if isinstance(task, Task) else list(task)
    if not tasks:
        raise InputError("at least one task must be given but got none")
    execution = ExecutionOptions(where, precision=precision, channels_last=channels_last, graphs=graphs)
    trainings = []
    for one in tasks:  # all are checked before the first is trained
        check_recipe(dataclasses.replace(one.recipe, **changes), optimizer)
        recipe = dataclasses.replace(one.recipe.schedule(steps, milestones), **changes)
        trainings.append((one, resolve_loss(loss, one).to(where), recipe))
    scores = []
    for one, criterion, recipe in trainings:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            isolated_torch(seed, device=where),
            matmul_precision(precision, where),
        ):
            training = Training(one, criterion, recipe, optimizer, seed, execution)
            score = _scored(training, curve_points, test, progress, report)
            scores.append(dataclasses.replace(score, milestones=recipe.milestones))
        if keep is not None and not scores[-1].diverged:
            keep(training.model)
    return scores[0] if isinstance(task, Task) else scores


def _scored(training: Training, curve_points: int, with_test: bool, progress: bool, report: StepsDone | None) -> Score:
    """All steps, then the evaluation; or divergence, as soon as it is noticed."""
    task, steps, seed = training.task, training.recipe.steps, training.seed
    curve: list[CurvePoint] = []
    spacing = max(1, steps // curve_points)
    reported = None if report is None else every_ten_steps(report, steps)

    def on_step(done: int) -> None:
        if done % spacing == 0 or done == steps:
            curve.append(CurvePoint(done, training.value.item(), training.validated()))
        if reported is not None:
            reported(done)

    indices = tracked(range(steps), task.name, total=steps, shown=progress)
    if divergence := training.advance(indices, on_step):
        if report is not None:
            report(steps - divergence.step)  # steps that will not be taken are over, too
        return diverged_score(task.metric, curve, seed=seed, step=divergence.step, sentence=divergence.sentence)
    if not with_test:
        validation = training.validated()
        if not math.isfinite(validation):
            sentence = "the trained model's outputs are not finite"
            return diverged_score(task.metric, curve, seed=seed, step=steps, sentence=sentence)
        return Score(test=math.nan, validation=validation, metrics={}, curve=curve, seed=seed, steps=steps)
    test = task.test.to(training.execution.device, training.execution.dtype)
    outputs = evaluate_model(training.model, test.inputs)
    if not bool(torch.isfinite(outputs).all()):
        sentence = "the trained model's outputs are not finite"
        return diverged_score(task.metric, curve, seed=seed, step=steps, sentence=sentence)
    return Score(
        test=task.metric(outputs, test.targets),
        validation=training.validated(),
        metrics=usual_metrics(task.kind, outputs, test.targets),
        curve=curve,
        seed=seed,
        steps=steps,
    )
