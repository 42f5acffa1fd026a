"""Training of one model with one loss, from the seed to the test split."""

import dataclasses
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from evomal.errors import InputError
from evomal.losses import CATALOGUE, Loss, load_loss, named_loss
from evomal.progress import tracked
from evomal.randomness import isolated_torch, torch_generator
from evomal.tasks.batches import Batches
from evomal.tasks.metrics import metrics_for
from evomal.tasks.task import Part, Recipe, Task

_CURVE_POINTS = 20
_STEPS_BETWEEN_CHECKS = 50  # looking at a loss waits for the device, so divergence is noticed a little late
_EVALUATION_BATCH = 1024

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


@dataclass(frozen=True)
class CurvePoint:
    """Where training stood after so many steps."""

    step: int
    training_loss: float
    validation: float


@dataclass(frozen=True)
class Score:
    """What came of a training: the task's metric on test and validation, all metrics on test, and the way there."""

    test: float
    validation: float
    metrics: dict[str, float]
    curve: list[CurvePoint]
    seed: int
    steps: int
    outcome: str = "trained"
    """`trained`, or `diverged` with the worst possible values."""
    sentence: str = field(default="")

    @property
    def diverged(self) -> bool:
        return self.outcome == "diverged"


def train(
    task: Task,
    loss: nn.Module | str | os.PathLike[str],
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
    progress: bool = False,
) -> Score:
    """Train the task's model with a loss, a loss's name or a loss file, and evaluate it once on the test split.

    The seed fixes initial weights, batches, augmentation and dropout, identically for every loss; settings not given
    are the task's own. The caller's random state is left as it was.
    """
    given: dict[str, Any] = {
        "steps": steps, "lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay,
        "batch_size": batch_size, "milestones": milestones,
    }  # fmt: skip
    recipe = dataclasses.replace(task.recipe, **{name: value for name, value in given.items() if value is not None})
    _check(recipe, optimizer)
    where = chosen_device(device)
    criterion = chosen_loss(loss, task).to(where)
    model = initial_model(task, seed).to(where)
    with isolated_torch(seed, "dropout", device=where):
        return _trained(task, model, criterion, recipe, optimizer, seed, where, progress)


def chosen_device(device: str) -> torch.device:
    """The named device; `auto` is CUDA where there is one, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        raise InputError(f"device must be auto, cpu, cuda, cuda:0, … but got {device!r}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but torch finds no CUDA device")
    return found


def chosen_loss(loss: nn.Module | str | os.PathLike[str], task: Task) -> nn.Module:
    """The loss itself, or the one of that name or in that file, fit for the task's kind."""
    if isinstance(loss, nn.Module):
        module = loss
    elif str(loss) in CATALOGUE:
        module = named_loss(str(loss), kind=task.kind)
    elif os.path.exists(loss):
        module = load_loss(loss)
    else:
        raise InputError(f"loss must be a name ({', '.join(CATALOGUE)}) or a loss file, but there is no {str(loss)!r}")
    if isinstance(module, Loss) and module.kind != task.kind:
        raise InputError(f"the task is {task.kind}, but the loss is for {module.kind}")
    return module


def initial_model(task: Task, seed: int) -> nn.Module:
    """The task's model with the weights the seed gives it, the same for every loss and method."""
    with isolated_torch(seed, "model"):
        model = task.model()
    if not isinstance(model, nn.Module):
        raise InputError(f"a task's model must make an nn.Module but made a {type(model).__name__}")
    if callable(reset := getattr(model, "reset", None)):
        reset(torch_generator(seed, "initial weights"))
    return model


def outputs_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's outputs on all inputs, in evaluation mode."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(batch) for batch in torch.split(inputs, _EVALUATION_BATCH)])
    model.train(was_training)
    return outputs


def _trained(
    task: Task,
    model: nn.Module,
    criterion: nn.Module,
    recipe: Recipe,
    optimizer_name: str,
    seed: int,
    device: torch.device,
    progress: bool,
) -> Score:
    data, validation = task.train.to(device), task.validation.to(device)
    batches = Batches(len(data), recipe.batch_size, seed=seed, purpose="training", device=device)
    optimizer = _optimizer(optimizer_name, model, recipe)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(recipe.milestones), gamma=0.1)
    augmented = torch_generator(seed, "augmentation", device=device)
    spacing = max(1, recipe.steps // _CURVE_POINTS)
    curve: list[CurvePoint] = []
    model.train()
    for step in tracked(range(recipe.steps), task.name, total=recipe.steps, shown=progress):
        rows = batches[step]
        inputs = data.inputs[rows]
        if task.augmentation is not None:
            inputs = task.augmentation(inputs, generator=augmented)
        value = criterion(model(inputs), data.targets[rows])
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
        schedule.step()
        done = step + 1
        if done % spacing == 0 or done == recipe.steps:
            curve.append(CurvePoint(done, value.item(), task.metric(*_judged(model, validation))))
        if (done % _STEPS_BETWEEN_CHECKS == 0 or done == recipe.steps) and not math.isfinite(value.item()):
            return _diverged(task, curve, seed, done, f"the training loss was {value.item()} at step {done}")
    return _evaluated(task, model, curve, seed, recipe.steps, validation, device)


def _judged(model: nn.Module, part: Part) -> tuple[Tensor, Tensor]:
    return outputs_of(model, part.inputs), part.targets


def _evaluated(
    task: Task, model: nn.Module, curve: list[CurvePoint], seed: int, steps: int, validation: Part, device: torch.device
) -> Score:
    outputs, targets = _judged(model, task.test.to(device))
    if not bool(torch.isfinite(outputs).all()):
        return _diverged(task, curve, seed, steps, "the trained model's outputs are not finite")
    metrics = {name: metric(outputs, targets) for name, metric in metrics_for(task.kind).items()}
    return Score(
        test=task.metric(outputs, targets),
        validation=task.metric(*_judged(model, validation)),
        metrics=metrics,
        curve=curve,
        seed=seed,
        steps=steps,
    )


def _diverged(task: Task, curve: list[CurvePoint], seed: int, step: int, sentence: str) -> Score:
    worst = math.inf if task.metric.lower_is_better else -math.inf
    return Score(worst, worst, {}, curve, seed, step, outcome="diverged", sentence=sentence)


def _optimizer(name: str, model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    options: dict[str, object] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if name == "sgd":
        # torch refuses Nesterov momentum of zero.
        options |= {"momentum": recipe.momentum, "nesterov": recipe.nesterov and recipe.momentum > 0}
    return _OPTIMIZERS[name](model.parameters(), **options)


def _check(recipe: Recipe, optimizer: str) -> None:
    if optimizer not in _OPTIMIZERS:
        raise InputError(f"optimizer must be one of {', '.join(_OPTIMIZERS)} but got {optimizer!r}")
    for name, least in (("steps", 1), ("batch_size", 1), ("momentum", 0), ("weight_decay", 0)):
        if getattr(recipe, name) < least:
            raise InputError(f"{name} must be at least {least} but got {getattr(recipe, name)}")
    if not recipe.lr > 0:
        raise InputError(f"lr must be more than 0 but got {recipe.lr}")
