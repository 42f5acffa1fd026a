"""The rules that data of every task must keep, each one sentence; `Task` applies them wherever its data come from."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evomal.checks import MOST_CLASSES, one_of
from evomal.errors import InputError, UserCodeError
from evomal.tasks.inputs import Inputs, count, map_tensors, tensors
from evomal.text import one_line
from evomal.users_code import users_code

Kind = Literal["classification", "regression", "multilabel"]
LARGEST = float(np.finfo(np.float32).max)
"""The largest number that a task holds: models are trained in single precision."""
KINDS = ("classification", "regression", "multilabel")


def check_kind(kind: str) -> None:
    """Raise unless there is such a kind of task."""
    one_of("kind", kind, KINDS)


def number_array(values: npt.ArrayLike, place: str) -> npt.NDArray[Any]:
    """An array of real numbers, or an error: nothing masked, complex, or of another type."""
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        if mask.any():
            row = int(np.argwhere(mask)[0][0])
            raise InputError(f"{place} must have no masked values but row {row} has one")
    try:
        if isinstance(values, Tensor):
            # numpy knows neither bfloat16 nor smaller floats; single precision holds all of their values.
            known = not values.is_floating_point() or values.dtype in (torch.float16, torch.float32, torch.float64)
            values = (values if known else values.float()).detach().cpu().numpy()
        with users_code(place):
            array = np.asarray(values)
    except UserCodeError as error:
        if isinstance(error.__cause__, ValueError):
            raise InputError(f"{place} must have rows of one shape but they differ") from None
        raise
    except (TypeError, RuntimeError) as error:  # such as a sparse, quantised or empty tensor without memory
        raise InputError(f"{place} must be an ordinary tensor of numbers: {one_line(error)}") from None
    if array.dtype.kind not in "fiub":
        hint = ": number the classes from 0" if place == "y" and array.dtype.kind in "USO" else ""
        raise InputError(f"{place} must hold real numbers but got {array.dtype}{hint}")
    return array.astype(np.float64) if array.dtype == np.longdouble else array


def checked_inputs(inputs: Any, place: str) -> Inputs:
    """Inputs of a split as tensors of real, finite numbers with a common first dimension."""
    if isinstance(inputs, tuple | dict):
        own = map_tensors(lambda tensor: _checked_input(tensor, place), inputs)
        counts = [len(tensor) for tensor in tensors(own)]
        if len(set(counts)) != 1:
            raise InputError(f"the inputs of {place} must all have a row for each sample but have {counts} rows")
        return own
    return _checked_input(inputs, place)


def _checked_input(inputs: Any, place: str) -> Tensor:
    tensor = _tensor(inputs, place)
    if len(tensor) and tensor[0].numel() == 0:
        raise InputError(f"the inputs of {place} must have at least one feature but have shape {tuple(tensor.shape)}")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        row, value = _first(~torch.isfinite(tensor), tensor)
        raise InputError(f"the inputs of {place} must be finite but row {row} has {value}")
    return tensor


def checked_targets(targets: Any, kind: Kind, place: str) -> Tensor:
    """Targets of a split in the one shape that training and metrics rely on.

    Returns:
        Class numbers of shape (samples,) for classification, else floats of shape (samples, targets or labels): a
        vector of regression targets becomes a column, as outputs are (samples, 1) and the two may not broadcast.
    """
    tensor = _tensor(targets, place)
    if kind == "classification":
        return _class_numbers(tensor, place)
    if tensor.dtype == torch.bool and kind == "regression":
        raise InputError(f"regression targets of {place} must be numbers but are true and false: use classification")
    if tensor.dim() == 1:
        tensor = tensor[:, None]
    if tensor.dim() != 2:
        raise InputError(f"{kind} targets of {place} must have shape (samples, targets) but have {tuple(tensor.shape)}")
    values = tensor if tensor.is_floating_point() else tensor.float()
    if not bool(torch.isfinite(values).all()):
        row, value = _first(~torch.isfinite(values), values)
        raise InputError(f"targets of {place} must be finite but row {row} has {value}")
    if kind == "multilabel" and bool((strange := (values != 0) & (values != 1)).any()):
        row, value = _first(strange, values)
        raise InputError(f"multilabel targets of {place} must be zeros and ones but row {row} has {value}")
    return values


def check_split(inputs: Inputs, targets: Tensor, kind: Kind, outputs: int, name: str) -> None:
    """Raise unless the split has samples, one target for each, and targets that fit the number of outputs."""
    if count(inputs) == 0:
        raise InputError(f"the {name} split must have at least one sample but is empty")
    if count(inputs) != len(targets):
        counts = f"{count(inputs)} and {len(targets)}"
        raise InputError(f"the {name} split must have a target for each input but got {counts}")
    if kind == "classification":
        check_classes(targets, f"the {name} split", outputs)
    elif targets.shape[1] != outputs:
        what = ("label" if kind == "multilabel" else "target") + ("" if outputs == 1 else "s")
        raise InputError(f"the {name} split must have {outputs} {what} per sample but has {targets.shape[1]}")


def check_classes(labels: Tensor, place: str, classes: int) -> None:
    """Raise unless all class numbers are below the number of classes, which must be a number that a model can have."""
    if classes > MOST_CLASSES:
        raise InputError(
            f"class numbers of {place} must be less than {MOST_CLASSES:,} but one is {classes - 1:,}: number the "
            "classes from 0 without gaps"
        )
    if bool((outside := (labels < 0) | (labels >= classes)).any()):
        _, culprit = _first(outside, labels)
        raise InputError(f"class numbers of {place} must lie between 0 and {classes - 1} but one is {culprit}")


def check_several_classes(labels: Tensor, place: str) -> None:
    """Raise unless there is something to tell apart."""
    if bool((labels == labels[0]).all()):
        raise InputError(f"{place} must hold at least two classes but all {len(labels)} labels are {int(labels[0])}")


def _tensor(values: Any, place: str) -> Tensor:
    if not isinstance(values, Tensor):
        values = torch.from_numpy(np.ascontiguousarray(number_array(values, place)))
    if values.is_complex():
        raise InputError(f"{place} must hold real numbers but got {str(values.dtype).removeprefix('torch.')}")
    if values.dim() == 0:
        raise InputError(f"{place} must have a row for each sample but got a single number")
    tensor: Tensor = values
    return tensor


def _class_numbers(labels: Tensor, place: str) -> Tensor:
    if labels.dim() == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dim() != 1:
        raise InputError(
            f"class numbers of {place} must have shape (samples,), one for each sample, but have {tuple(labels.shape)}"
        )
    if labels.is_floating_point():
        broken = (labels != labels.round()) | ~torch.isfinite(labels)
        if bool(broken.any()):
            row, value = _first(broken, labels)
            raise InputError(f"class numbers of {place} must be whole but row {row} is {value}")
    return labels.long()


def _first(where: Tensor, values: Tensor) -> tuple[int, Any]:
    """The row of the first place that is marked, and the value there."""
    index = tuple(where.nonzero()[0].tolist())
    value = values[index].item()
    return index[0], float(f"{value:.6g}") if isinstance(value, float) else value
