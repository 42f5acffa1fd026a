"""What a user's model, metric and loss compute for a few rows, so that a record shows that their code was changed."""

import contextlib
import math

import torch
from torch import nn

from evomal.engine.resolve import copied, initial_model
from evomal.engine.row_losses import RowLoss
from evomal.engine.rows import RowRule
from evomal.randomness import isolated_numpy, isolated_torch, torch_generator
from evomal.tasks.inputs import called, first
from evomal.tasks.metrics import Metric
from evomal.tasks.model_trials import evaluating
from evomal.tasks.parts import Part
from evomal.tasks.task import Task

BEHAVIOUR = ("model_outputs", "metric_value")
"""What may be recorded of a task's behaviour."""
_ROWS = 64
_DIGITS = 3  # other machines and other numbers of threads change the seventh
_SCALES = (0.1, 1.0, 10.0, 100.0)  # of the outputs, as losses may differ far out only
_DIGITS_OF_LOSSES = 5  # which may differ by a factor near one; on another machine they may be trained again


def behaviour(task: Task, module: nn.Module) -> dict[str, str]:
    """Returns what a fresh model and the metric give for the first validation rows, in few digits.

    Only of models with layers of the user's, and of the user's metrics: for others, their names and options say it.
    What raises on so few rows is left out; trainings will report it if it matters.

    Args:
        task: The task.
        module: Its model with the initial weights of some seed.
    """
    found: dict[str, str] = {}
    is_own_model = any(
        type(layer).__module__.partition(".")[0] not in ("torch", "evomal") for layer in module.modules()
    )
    is_own_metric = _is_own(task.metric) and not task.metric.is_by_part
    if not (is_own_model or is_own_metric):
        return found
    part, rows = task.validation, min(_ROWS, len(task.validation))
    weights = None if part.weights is None else part.weights[:rows]
    with (
        contextlib.suppress(Exception, SystemExit), torch.no_grad(), evaluating(module),
        isolated_torch(0, "behaviour"), isolated_numpy(0, "behaviour"),
    ):  # fmt: skip
        outputs = called(module, first(part.inputs, rows))
        if is_own_model:
            found["model_outputs"] = _text(float(outputs.double().square().mean().sqrt()))
        if is_own_metric:
            found["metric_value"] = _text(task.metric(outputs, part.targets[:rows], weights=weights))
    return found


def loss_values(loss: nn.Module, task: Task) -> list[str]:
    """Returns what a loss and its gradient come to for a few training rows and outputs of several sizes, in few digits.

    What raises is left out, as with `behaviour`.
    """
    found: list[str] = []
    with contextlib.suppress(Exception, SystemExit), torch.inference_mode(False), torch.enable_grad():
        model, rows = initial_model(task, 0), min(_ROWS, len(task.train.targets))
        weights = None if task.train.weights is None else task.train.weights[:rows]
        part = Part(first(task.train.inputs, rows), task.train.targets[:rows], weights).to("cpu", torch.float32)
        with torch.no_grad(), evaluating(model), isolated_torch(0, "behaviour"), isolated_numpy(0, "behaviour"):
            shape = called(model.float(), part.inputs).shape
        rows_of_loss = RowRule(task, torch.device("cpu"), torch.float32).of_loss(part)
        directions = torch.randn(shape, generator=torch_generator(0, "outputs of a loss"))
        for scale in _SCALES:
            row_loss, outputs = RowLoss(copied(loss).to("cpu")), (scale * directions).requires_grad_()
            with isolated_torch(0, "behaviour"), isolated_numpy(0, "behaviour"):
                value = row_loss(outputs, rows_of_loss)
                (gradient,) = torch.autograd.grad(value, outputs)
            numbers = value.detach(), gradient.norm(), (gradient * directions).sum()
            found += [_text(float(number), _DIGITS_OF_LOSSES) for number in numbers]
    return found


def _is_own(metric: Metric) -> bool:
    """Whether a metric, or one that it is made of, is a function of the user's."""
    members = metric.members
    return any(map(_is_own, members)) if members else not metric.is_known


def _text(value: float, digits: int = _DIGITS) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "not finite"
