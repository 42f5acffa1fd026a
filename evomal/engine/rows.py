"""Positions as rows of the loss: targets and outputs of any shape become `(rows, …)`, with a weight for each row.

A position of a sample, such as a token of a sequence or a pixel of an image, is one row of the loss. So the rest of the
engine sees outputs `(rows, K)`, class numbers `(rows,)` or values `(rows, K)`, and weights `(rows,)`.
"""

import dataclasses
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evomal.errors import InputError
from evomal.randomness import isolated_torch
from evomal.tasks.data_checks import advice_on_gaps
from evomal.tasks.inputs import Inputs, called, count, first, map_tensors, moved, sample_shapes
from evomal.tasks.labels import IGNORED
from evomal.tasks.model_trials import evaluating
from evomal.tasks.parts import Part
from evomal.tasks.task import Task
from evomal.text import plural, with_article
from evomal.users_code import described


@dataclass(frozen=True)
class Rows:
    """The targets of a batch, one for each row of the loss."""

    targets: Tensor
    """Class numbers `[rows]`, or values `[rows, K]`; 0 where a row does not count."""
    weights: Tensor | None = None
    """`[rows]`: the loss of the batch is Σ w·l / Σ w; None: all rows count alike."""
    positions: tuple[int, ...] = ()
    """The shape of a sample's positions; empty where a sample is one row."""
    is_masked_only: bool = True
    """Whether weights are 0 and 1, so that a loss that ignores rows needs no weights."""

    def to(self, device: str) -> "Rows":
        """Returns the same rows on another device."""
        weights = None if self.weights is None else self.weights.to(device)
        return dataclasses.replace(self, targets=self.targets.to(device), weights=weights)


class RowRule:
    """Makes rows of the batches of one task, with tensors in the memory that a captured step reads."""

    def __init__(self, task: Task, device: torch.device, dtype: torch.dtype) -> None:
        self._kind, self._dtype = task.kind, dtype
        self._class_weight: Tensor | None = None
        if task.class_weight is not None:
            self._class_weight = torch.tensor(task.class_weight, dtype=dtype, device=device)

    def weighs_alike(self, part: Part) -> bool:
        """Whether all rows that count have the same weight in a loss."""
        return self._class_weight is None and part.weights is None

    def of_loss(self, part: Part) -> Rows:
        """Returns the rows with their weights in a loss: of the sample, times that of the class, 0 where ignored."""
        rows = self.of_metric(part)
        if self._class_weight is None:
            return rows
        weights = self._class_weight[rows.targets]
        weights = weights if rows.weights is None else weights * rows.weights
        return Rows(rows.targets, weights, rows.positions, is_masked_only=False)

    def of_metric(self, part: Part) -> Rows:
        """Returns the rows with the weights of their samples, 0 where ignored; metrics do not use class weights."""
        targets, weights = part.targets, part.weights
        positions = tuple(target_positions(targets, self._kind))
        is_masked_only = weights is None
        if not positions:
            return Rows(targets, weights, is_masked_only=is_masked_only)
        if weights is not None:
            weights = weights.view(-1, 1).expand(-1, math.prod(positions)).reshape(-1)
        if self._kind != "classification":
            return Rows(targets.reshape(-1, 1), weights, positions, is_masked_only)
        targets = targets.reshape(-1)
        counted = targets != IGNORED
        weights = counted.to(self._dtype) if weights is None else weights * counted
        return Rows(torch.where(counted, targets, 0), weights, positions, is_masked_only)


def joined_rows(batches: Sequence[Rows]) -> Rows:
    """Returns the rows of several batches one after the other; their positions may differ, and are not kept."""
    given = [rows.weights for rows in batches if rows.weights is not None]
    return Rows(torch.cat([rows.targets for rows in batches]), torch.cat(given) if given else None)


def target_positions(targets: Tensor, kind: str) -> torch.Size:
    """Returns the shape of a sample's positions; regression and multilabel targets of two dimensions have none."""
    is_of_samples = targets.dim() == 2 and kind != "classification"
    return torch.Size() if is_of_samples else targets.shape[1:]


def has_positions(task: Task) -> bool:
    """Whether a sample has several rows of the loss."""
    return bool(target_positions(task.train.targets, task.kind))


class RowOutputs(nn.Module):
    """A task's model whose outputs are rows `(rows, K)`, made from outputs with positions.

    Args:
        model: The model.
        class_dim: The dimension of the outputs that holds the classes; None: every number is a row of its own.
    """

    def __init__(self, model: nn.Module, class_dim: int | None) -> None:
        super().__init__()
        self.model, self.class_dim = model, class_dim

    def forward(self, *positional: Any, **named: Any) -> Tensor:
        outputs: Tensor = self.model(*positional, **named)
        if self.class_dim is None:
            return outputs.reshape(-1, 1)
        return outputs.movedim(self.class_dim, -1).reshape(-1, outputs.shape[self.class_dim])


_CLASS_DIMS: weakref.WeakKeyDictionary[Task, int | None] = weakref.WeakKeyDictionary()


def with_row_outputs(model: nn.Module, task: Task) -> nn.Module:
    """Returns a model of the task whose outputs are rows; the model itself if a sample is one row.

    Which dimension of the outputs holds the classes is found once for a task, by running its model.
    """
    if not has_positions(task):
        return model
    if task not in _CLASS_DIMS:
        _CLASS_DIMS[task] = _class_dim(model, task)
    return RowOutputs(model, _CLASS_DIMS[task])


def without_row_outputs(model: nn.Module) -> nn.Module:
    """Returns the model that the user made."""
    return model.model if isinstance(model, RowOutputs) else model


def _class_dim(model: nn.Module, task: Task) -> int | None:
    """Returns the dimension of the model's outputs that holds the classes; None: every number is a row."""
    inputs, targets = two_samples(model, task), task.train.targets
    shape = list(_checked_outputs(model, inputs).shape)
    samples, positions = min(2, len(targets)), list(target_positions(targets, task.kind))
    if task.kind != "classification":
        if [side for side in shape if side != 1] == [side for side in (samples, *positions) if side != 1]:
            return None
        wanted, advice = f"the shape of the targets, {[samples, *positions]} for {plural(samples, 'sample')},", ""
    else:
        fitting = [
            dim
            for dim in (1, -1)
            if len(shape) == len(positions) + 2
            and [side for place, side in enumerate(shape) if place != dim % len(shape)] == [samples, *positions]
            and fits_classes(shape[dim], task.outputs)
        ]
        if fitting:
            return fitting[0] if len(fitting) == 1 else _class_dim_of_shorter(model, inputs, positions[0])
        classes, sides = task.outputs, ", ".join(map(str, positions))
        wanted = (
            f"shape ({samples}, {classes}, {sides}) or ({samples}, {sides}, {classes}) for {plural(samples, 'sample')}"
        )
        advice = advice_on_gaps(targets, classes)
        if len(positions) == 1 and shape == [samples, *positions]:
            raise InputError(
                f"targets of shape (samples, {sides}) are class numbers at {sides} positions, but the model gives "
                f"{shape} for {plural(samples, 'sample')}: if the targets are one-hot, give their argmax(1)"
            )
    raise InputError(f"the outputs of the model must have {wanted} but have {shape}{advice}")


def fits_classes(outputs: int, classes: int) -> bool:
    """Whether that number of outputs tells the classes apart: one for each, or a single logit for two."""
    return outputs >= classes or (outputs == 1 and classes <= 2)


def _class_dim_of_shorter(model: nn.Module, samples: Inputs, length: int) -> int:
    """Returns the dimension of the classes where there are as many of them as positions: 1, as torch's, if in doubt.

    The model is given sequences that are a position shorter: the dimension of the outputs that keeps its size is that
    of the classes.
    """

    def shortened(tensor: Tensor) -> Tensor:
        return tensor[:, :-1] if tensor.dim() > 1 and tensor.shape[1] == length else tensor

    try:
        shape = list(_checked_outputs(model, map_tensors(shortened, samples)).shape)
    except InputError:
        return 1  # a model for sequences of one length
    return -1 if shape[1:] == [length - 1, length] else 1


def two_samples(model: nn.Module, task: Task) -> Inputs:
    """Returns inputs of two samples for the model, where it is and in the dtype that it has."""
    parameter = next(model.parameters(), None)
    device, dtype = ("cpu", torch.float32) if parameter is None else (parameter.device, parameter.dtype)
    return moved(first(task.train.inputs, 2), device, dtype)


def _checked_outputs(model: nn.Module, samples: Inputs) -> Tensor:
    """Returns the model's outputs in evaluation mode, with as many rows as there are samples."""
    outputs = trial_outputs(model, samples)
    if not isinstance(outputs, Tensor) or outputs.dim() == 0 or len(outputs) != count(samples):
        raise refused_outputs(outputs, samples)
    return outputs


def refused_outputs(outputs: Any, samples: Inputs) -> InputError:
    """Returns the error for what a model gives in place of a row of outputs for each sample."""
    advice = ""
    if isinstance(outputs, Tensor):
        found = str(list(outputs.shape))
        if outputs.shape == (count(samples),):
            advice = ": keep the dimension of the outputs, as in (samples, 1)"
    else:
        found = with_article(type(outputs).__name__)
        if hasattr(outputs, "logits"):
            advice = ": return its logits"
        elif isinstance(outputs, tuple | list | dict):
            advice = ": return the tensor of outputs alone"
    return InputError(
        f"a model must give a row of outputs for each of {plural(count(samples), 'sample')} but gave {found}{advice}"
    )


def trial_outputs(model: nn.Module, samples: Any, *, differentiable: bool = False) -> Any:
    """Returns what the model gives for samples in evaluation mode, or raises InputError if it cannot take them."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    try:
        with (
            evaluating(model),
            torch.set_grad_enabled(differentiable),
            isolated_torch(0, "trial", device=device),
        ):
            return called(model, samples)
    except (Exception, SystemExit) as error:  # a user's model may raise anything
        shape = sample_shapes(samples)
        raise InputError(f"the model cannot take the task's inputs of shape {shape}: {described(error)}") from error
