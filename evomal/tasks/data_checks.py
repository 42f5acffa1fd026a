"""The rules that the data of every task must follow; `Task` applies them wherever its data come from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.checks import MOST_CLASSES, Kind, whole_number
from evomal.errors import InputError
from evomal.tasks.arrays import Array, number_array
from evomal.tasks.inputs import Inputs, count, map_tensors, tensors
from evomal.tasks.labels import IGNORED
from evomal.text import plural, short_repr


def check_ignored(label: Any, kind: Kind) -> None:
    """Raise if `ignore_index` is given for a kind of task without labels, or is a number that no tensor can hold."""
    if isinstance(label, int):
        limits = torch.iinfo(torch.int64)
        whole_number("ignore_index", label, at_least=limits.min, at_most=limits.max)
    if kind != "classification" and label not in (None, IGNORED):
        raise InputError(f"ignore_index is for classification, but the kind is {kind}, all of whose targets count")


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
        Targets at positions, such as (samples, height, width), keep their shape.
    """
    tensor = _tensor(targets, place)
    if kind == "classification":
        return _class_numbers(tensor, place)
    if tensor.dtype == torch.bool and kind == "regression":
        raise InputError(
            f'regression targets of {place} must be numbers but are true and false: use kind="classification"'
        )
    if tensor.dim() == 1:
        tensor = tensor[:, None]
    values = tensor if tensor.is_floating_point() else tensor.float()
    if not bool(torch.isfinite(values).all()):
        row, value = _first(~torch.isfinite(values), values)
        raise InputError(f"targets of {place} must be finite but row {row} has {value}")
    if kind == "multilabel" and bool((strange := (values != 0) & (values != 1)).any()):
        row, value = _first(strange, values)
        raise InputError(f"multilabel targets of {place} must be zeros and ones but row {row} has {value}")
    return values


def checked_weights(weights: Any, rows: int, place: str) -> Tensor:
    """Sample weights as a vector of floats, one for each sample and not all zero."""
    tensor = _tensor(weights, place).float()
    if tensor.shape == (rows, 1):
        tensor = tensor[:, 0]
    if tensor.shape != (rows,):
        raise InputError(
            f"{place} must be a vector with a weight for each of {plural(rows, 'sample')} but has shape "
            f"{tuple(tensor.shape)}"
        )
    if bool((strange := ~(torch.isfinite(tensor) & (tensor >= 0))).any()):
        row, value = _first(strange, tensor)
        raise InputError(f"{place} must be finite and at least 0 but row {row} has {value}")
    if not bool((tensor > 0).any()):
        raise InputError(f"{place} must be more than 0 for at least one sample but all are 0")
    return tensor


def checked_class_weight(weights: Any, kind: Kind, outputs: int) -> tuple[float, ...]:
    """Class weights as a tuple of finite numbers, one for each class and not all zero."""
    if kind != "classification":
        raise InputError(f"class_weight must be None for {kind}, which has no classes: use sample_weight")
    if np.isscalar(weights):
        raise InputError(
            f'class_weight must be "balanced", a weight for each class, or a dictionary but got {short_repr(weights)}'
        )
    found = number_array(weights, "class_weight", advice="")
    if found.shape != (outputs,):
        raise InputError(
            f"class_weight must have a weight for each of {plural(outputs, 'class')} but has shape {found.shape}"
        )
    if not (np.isfinite(found) & (found >= 0)).all() or not found.any():
        raise InputError(
            f"class_weight must be finite numbers of at least 0, and not all 0, but got {short_repr(found.tolist())}"
        )
    return tuple(map(float, found))


def target_rows(targets: Tensor, kind: Kind) -> Tensor:
    """Targets as rows of the loss, without the positions that are ignored: (rows,), or (rows, outputs) of floats."""
    if kind != "classification":
        return targets if targets.dim() == 2 else targets.reshape(-1, 1)
    return targets if targets.dim() == 1 else targets[targets != IGNORED]


def class_numbers_of(outputs: Tensor, classes: int, positions: Sequence[int] = ()) -> Tensor:
    """The class numbers that outputs of a model predict: by the largest, or by the sign if there is only one.

    Args:
        outputs: Outputs of shape (samples, classes), or (samples, classes, …) or (samples, …, classes) with positions.
        classes: The number of classes.
        positions: The shape of the positions of a sample, to tell which dimension holds the classes.
    """
    found = [outputs.movedim(dim, -1) for dim in (1, -1) if outputs.dim() > 1]
    found = [own for own in found if own.shape[-1] >= classes or (own.shape[-1] == 1 and classes == 2)]
    if not found:
        raise InputError(f"outputs of a model must have shape (samples, {classes}) but have {tuple(outputs.shape)}")
    # Where both would do, the classes are the second dimension, as in torch.
    best = max(found, key=lambda own: (list(own.shape[1:-1]) == list(positions), own.shape[-1] == classes))
    return (best[..., 0] > 0).long() if best.shape[-1] == 1 else best[..., :classes].argmax(-1)


def check_split(inputs: Inputs, targets: Tensor, kind: Kind, outputs: int, name: str) -> None:
    """Raise unless the split has samples, one target for each, and targets that fit the number of outputs."""
    if count(inputs) == 0:
        raise InputError(f"the {name} split must have at least one sample but is empty")
    if count(inputs) != len(targets):
        counts = f"{count(inputs)} and {len(targets)}"
        raise InputError(f"the {name} split must have a target for each input but got {counts}")
    rows = target_rows(targets, kind)
    if len(rows) == 0:
        raise InputError(f"the {name} split must have a position that counts but all are {IGNORED}, which is ignored")
    if kind == "classification":
        check_classes(rows, f"the {name} split", outputs)
    elif rows.shape[1] != outputs:
        wanted = plural(outputs, "label" if kind == "multilabel" else "target")
        raise InputError(f"the {name} split must have {wanted} per sample but has {rows.shape[1]}")


def check_classes(labels: Tensor, place: str, classes: int) -> None:
    """Raise unless all class numbers are below the number of classes, which must be a number that a model can have."""
    if classes > MOST_CLASSES:
        raise InputError(
            f"class numbers of {place} must be less than {MOST_CLASSES:,} but one is {classes - 1:,}: number the "
            "classes from 0 without gaps"
        )
    if bool((outside := (labels < 0) | (labels >= classes)).any()):
        _, culprit = _first(outside, labels)
        advice = ""
        if culprit < 0:
            advice = (
                ": drop rows without a label" if culprit == IGNORED else ": number them from 0, or list them as classes"
            )
        raise InputError(f"class numbers of {place} must lie between 0 and {classes - 1} but one is {culprit}{advice}")


def advice_on_gaps(targets: Tensor, classes: int) -> str:
    """What to do if a model has too few outputs because some class numbers stand for nothing; else empty."""
    counts = target_rows(targets, "classification").bincount(minlength=classes)
    absent = (counts == 0).nonzero().flatten().tolist()
    if not absent:
        return ""
    return (
        f": no training sample is of class {absent[0]}, so number the classes from 0 without gaps, list them as "
        "classes, or name the label that does not count as ignore_index"
    )


def check_several_classes(labels: Tensor, place: str) -> None:
    """Raise unless there is something to tell apart."""
    if bool((labels == labels[0]).all()):
        found = f"all {len(labels)} labels are" if len(labels) > 1 else "its one label is"
        raise InputError(f"{place} must hold at least two classes but {found} {int(labels[0])}")


def check_different_values(targets: Tensor | Array, place: str) -> None:
    """Raise unless targets of regression, of which each sample has a row, have anything to predict."""
    if len(targets) > 1 and bool((targets == targets[0]).all()):
        value = targets[0].tolist()
        shown = short_repr(value[0] if len(value) == 1 else value)
        raise InputError(f"targets of {place} must differ between samples but all {len(targets)} are {shown}")


def check_something_to_learn(targets: Tensor, kind: Kind, place: str) -> None:
    """Raise unless targets that models are trained with differ, in classes or values, and are those of several rows."""
    rows = target_rows(targets, kind)
    if kind == "classification":
        check_several_classes(rows, place)
    elif len(rows) < 2:
        raise InputError(f"{place} must have at least two samples but has one")
    elif kind == "regression":
        check_different_values(targets, place)


def _tensor(values: Any, place: str) -> Tensor:
    is_plain = isinstance(values, Tensor) and values.layout == torch.strided
    if not is_plain or values.is_quantized or values.is_meta:
        array = np.ascontiguousarray(number_array(values, place))
        # A tensor must not share memory that is read-only, as that of a frame or of a file may be.
        values = torch.from_numpy(array if array.flags.writeable else array.copy())
    if values.is_complex():
        raise InputError(f"{place} must hold real numbers but got {str(values.dtype).removeprefix('torch.')}")
    if values.dim() == 0:
        raise InputError(f"{place} must have a row for each sample but got a single number")
    tensor: Tensor = values
    return tensor


def _class_numbers(labels: Tensor, place: str) -> Tensor:
    if labels.dim() == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.is_floating_point():
        broken = (labels != labels.round()) | ~torch.isfinite(labels)
        if bool(broken.any()):
            row, value = _first(broken, labels)
            advice = "drop rows without a label" if value != value else 'use kind="regression" to predict values'
            raise InputError(f"class numbers of {place} must be whole but row {row} is {value}: {advice}")
    return labels.long()


def _first(where: Tensor, values: Tensor) -> tuple[int, Any]:
    """The row of the first place that is marked, and the value there."""
    index = tuple(where.nonzero()[0].tolist())
    value = values[index].item()
    return index[0], float(f"{value:.6g}") if isinstance(value, float) else value
