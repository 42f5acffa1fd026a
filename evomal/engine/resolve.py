"""From names and factories to objects: device, loss and model of a training, with their checks."""

import contextlib
import copy
import math
import os
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from evomal.engine.few_rows import warn_of_few_rows
from evomal.engine.logits import needs_no_warning, warn_of_probabilities
from evomal.engine.rows import (
    RowRule,
    fits_classes,
    refused_outputs,
    target_positions,
    trial_outputs,
    two_samples,
    with_row_outputs,
    without_row_outputs,
)
from evomal.errors import InputError
from evomal.losses import CATALOGUE, Loss, load_loss
from evomal.losses.catalogue import is_specified, specified_loss
from evomal.losses.expression_loss import ExpressionLoss
from evomal.losses.files import is_loss_file
from evomal.losses.priors import PriorLoss
from evomal.randomness import isolated_numpy, isolated_torch, torch_generator
from evomal.tasks.data_checks import advice_on_gaps
from evomal.tasks.inputs import called, count, first
from evomal.tasks.model_trials import evaluating
from evomal.tasks.models.base import BuiltInModel
from evomal.tasks.task import Task
from evomal.text import plural, short_repr, with_article
from evomal.users_code import described, users_code

_CHECKED: "weakref.WeakSet[Task]" = weakref.WeakSet()
"""Tasks whose functions are known to make independent models."""


def resolve_device(device: str) -> torch.device:
    """Returns the device of that name; `auto` is CUDA where available, else the CPU."""
    given: Any = device
    if not isinstance(given, str | torch.device):
        raise InputError(f"device must be auto, cpu, cuda, cuda:0, mps but got {short_repr(given)}")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        raise InputError(f"device must be auto, cpu, cuda, cuda:0, mps but got {device!r}") from None
    if found.type not in ("cpu", "cuda", "mps"):
        raise InputError(f"device must be auto, cpu, cuda, cuda:0, mps but got {device!r}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but torch finds no CUDA device")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {device} was asked for, but torch finds {torch.cuda.device_count()} CUDA devices")
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device mps was asked for, but torch finds no such device")
    return found


def start_backward_thread(device: torch.device) -> None:
    """Let the thread of torch's backward passes on a CUDA device begin with a kernel of torch.

    If its first work is a matrix product, torch warns that cuBLAS has no CUDA context.
    """
    if device.type == "cuda":
        with torch.inference_mode(False), torch.enable_grad():
            torch.autograd.backward(torch.ones(1, device=device, requires_grad=True) * 2.0)


def resolve_loss(loss: nn.Module | str | os.PathLike[str], task: Task) -> nn.Module:
    """Returns the loss itself, or the one of that name (`focal:gamma=3`) or file, for use on the task."""
    if isinstance(loss, nn.Module):
        module = loss
        if is_own(loss) and any(parameter.requires_grad for parameter in loss.parameters()):
            warnings.warn(
                f"the parameters of the loss {type(loss).__name__} stay as they are: only the model's are trained",
                stacklevel=1,  # one place for all callers, so that Python shows it once
            )
    elif not isinstance(loss, str | os.PathLike):
        raise InputError(f"a loss must be a module, a name or a loss file but got {type(loss).__name__}")
    elif is_specified(str(loss)):
        name = str(loss).partition(":")[0]
        kinds = CATALOGUE[name].kinds
        if task.kind not in kinds:
            raise InputError(f"the task is {task.kind}, but {name} is for {', '.join(kinds)}")
        module = specified_loss(str(loss), kind=task.kind)
    elif is_loss_file(loss):
        module = load_loss(loss)
    else:
        raise InputError(f"loss must be a name ({', '.join(CATALOGUE)}) or a loss file, but there is no {str(loss)!r}")
    if isinstance(module, Loss) and module.kind != task.kind:
        raise InputError(f"the task is {task.kind}, but the loss is for {module.kind}")
    return loss_for_task(module, task)


def loss_for_task(loss: nn.Module, task: Task) -> nn.Module:
    """Returns the loss for use on the task: with the task's class priors where it needs some and has none of its own,
    and without units of its own where the task has standardised the targets."""
    if isinstance(loss, PriorLoss | ExpressionLoss) and task.kind != "regression":
        return loss.on_task(class_priors(task))
    return loss.in_units(None) if isinstance(loss, Loss) and task.units is not None else loss


def is_own(loss: object) -> bool:
    """Whether a loss is a module that is not evomal's: it may keep a state, and its code may change."""
    return isinstance(loss, nn.Module) and not isinstance(loss, Loss)


def copied(loss: nn.Module, *, shares_parameters: bool = False) -> nn.Module:
    """Returns a copy of a loss: what it keeps of one training must reach neither the next one nor the caller.

    `shares_parameters`: whether the copy has the same parameters, which no training changes and which may be many.
    """
    try:
        known = {id(parameter): parameter for parameter in loss.parameters()} if shares_parameters else {}
        return copy.deepcopy(loss, known)
    except Exception as error:
        rule = "is copied for every training, as it may keep a state, but cannot be copied"
        raise InputError(f"the loss {type(loss).__name__} {rule}: {described(error)}") from error


def class_priors(task: Task) -> Tensor:
    """Returns the share of each class in the training part; a class without samples counts as if it had one.

    For multilabel tasks, the share of the samples that have each label; one that all or none have counts as if half a
    sample were different.
    """
    found = RowRule(task, torch.device("cpu"), torch.float64).of_metric(task.train.to("cpu"))
    targets = found.targets if found.weights is None else found.targets[found.weights > 0]
    if task.kind == "multilabel":
        rows = len(targets)
        return targets.double().sum(0).clamp(0.5, rows - 0.5) / rows
    counts = targets.bincount(minlength=max(2, task.outputs)).clamp(min=1).double()
    return counts / counts.sum()


def initial_model(task: Task, seed: int, *purpose: str | int, reuse: nn.Module | None = None) -> nn.Module:
    """Returns the task's model with initial weights determined by seed and purpose, the same for every loss and method.

    It is in training mode. Its outputs are rows of the loss, also where the model's have positions.

    `reuse`: a model of this task that is no longer needed; if it can redraw its weights, no new model is built.
    """
    former = None if reuse is None else without_row_outputs(reuse)
    if isinstance(former, BuiltInModel):
        model: nn.Module = former
    else:
        model = _made_model(task, seed, *purpose)
        if not isinstance(model, BuiltInModel) and task not in _CHECKED:
            other = _made_model(task, seed, *purpose)
            check_independent(model, other)
            _check_training_outputs(other, task)
            _CHECKED.add(task)
        put_into_training_mode(model)
    if isinstance(model, BuiltInModel):
        model.reset(torch_generator(seed, "initial weights", *purpose))
    return with_row_outputs(model, task)


def _made_model(task: Task, seed: int, *purpose: str | int) -> nn.Module:
    with (
        users_code(f"the model factory of {task.name}"),
        isolated_torch(seed, "model", *purpose),
        isolated_numpy(seed, "model", *purpose),
    ):
        model: Any = task.model()
        if not isinstance(model, nn.Module):
            raise InputError(f"a task's model must make an nn.Module but made {with_article(type(model).__name__)}")
        if any(is_lazy(parameter) for parameter in model.parameters()):  # which take their shapes from the first inputs
            with torch.no_grad(), evaluating(model):
                called(model, first(task.train.inputs, 2))
    return model


def check_outputs(task: Task, outputs: int) -> None:
    """Raise unless a model with that number of outputs fits the task."""
    fits = fits_classes(outputs, task.outputs) if task.kind == "classification" else outputs == task.outputs
    if not fits:
        what = {"classification": "class", "regression": "target", "multilabel": "label"}[task.kind]
        advice = advice_on_gaps(task.train.targets, task.outputs) if task.kind == "classification" else ""
        raise InputError(
            f"the task has {plural(task.outputs, what)} but the model has {plural(outputs, 'output')}{advice}"
        )


def check_model(model: nn.Module, task: Task) -> None:
    """Raise unless the model accepts the task's inputs and its outputs fit the targets; warn of what misleads."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("a model must have parameters to be trained but has none")
    samples = two_samples(model, task)
    is_known = needs_no_warning(task)
    outputs = trial_outputs(model, samples, differentiable=not is_known)
    rows = count(samples) * math.prod(target_positions(task.train.targets, task.kind))
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 or len(outputs) != rows:
        raise refused_outputs(outputs, samples)
    check_outputs(task, outputs.shape[1])
    if not is_known:
        warn_of_probabilities(outputs, task)
    warn_of_few_rows(task)


def check_targets(task: Task) -> None:
    """Raise unless a search can use the targets: class indices, bits or, for regression, values."""
    if task.kind == "regression":
        return
    for place, part in (("training", task.train), ("validation", task.validation)):
        soft = part.targets[(part.targets != 0) & (part.targets != 1)]
        if part.targets.is_floating_point() and len(soft):
            raise InputError(
                "a search takes class indices or bits, so targets must be 0 or 1, "
                f"but one of the {place} targets is {float(soft[0]):g}"
            )


Norm = nn.modules.batchnorm._NormBase


def check_independent(first: nn.Module, second: nn.Module) -> None:
    """Raise if two models that one function has made share what a training changes.

    Frozen parameters may be shared, as those of a pretrained backbone that is loaded once.
    """
    if first is second:
        raise InputError("a task's model must make a fresh model at each call but made the same one twice")
    known = {id(parameter) for parameter in first.parameters() if parameter.requires_grad}
    for name, parameter in second.named_parameters():
        if id(parameter) in known:
            raise InputError(
                f"a task's model must make a fresh model at each call but made two that share the parameter {name}: "
                "build every trained layer inside the function"
            )
    layers = set(first.modules())
    for name, layer in second.named_modules():
        if isinstance(layer, Norm) and layer in layers and layer.training and layer.track_running_stats:
            raise InputError(
                "a task's model must make a fresh model at each call but made two that share the statistics of "
                f"{name}: build it inside the function, or freeze it and put it into evaluation mode"
            )


def _check_training_outputs(model: nn.Module, task: Task) -> None:
    """Raise if a model gives a tensor in evaluation mode and something else in training mode, as with auxiliary heads.

    The model's statistics may change. What it raises is left to the checks of its outputs, and to its trainings.
    """
    evaluated: Any = None
    trained: Any = None
    with (
        contextlib.suppress(Exception, SystemExit), isolated_torch(0, "trial"), isolated_numpy(0, "trial"),
        torch.no_grad(),
    ):  # fmt: skip
        samples = two_samples(model, task)
        with evaluating(model):
            evaluated = called(model, samples)
        put_into_training_mode(model)
        trained = called(model, samples)
    if isinstance(evaluated, Tensor) and trained is not None and not isinstance(trained, Tensor):
        raise InputError(
            "a model must give the tensor of its outputs alone but in training mode gave "
            f"{with_article(type(trained).__name__)}"
        )


def put_into_training_mode(model: nn.Module) -> None:
    """Call `model.train()`, but leave frozen parts in evaluation mode that the user's function has put there.

    A part is frozen if all its parameters are. Others are put into training mode, as pretrained models are usually
    returned in evaluation mode.
    """
    kept = set(_kept_in_evaluation(model, of_kept_part=False))
    model.train()
    for layer in kept:
        layer.training = False


def _kept_in_evaluation(layer: nn.Module, *, of_kept_part: bool) -> Iterator[nn.Module]:
    parameters = [*layer.parameters()]
    is_frozen = bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
    is_kept = not layer.training and (of_kept_part or is_frozen)
    if is_kept:
        yield layer
    for child in layer.children():
        yield from _kept_in_evaluation(child, of_kept_part=is_kept)
