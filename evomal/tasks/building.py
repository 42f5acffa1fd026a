"""How arrays become the parts of a task: split, made harder, standardised, and put into tensors."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evomal.checks import KINDS, Kind, one_of
from evomal.errors import InputError
from evomal.tasks.arrays import Array, check_same_index, column
from evomal.tasks.data_checks import check_ignored, checked_class_weight, target_rows
from evomal.tasks.hardships import Hardships
from evomal.tasks.inputs import Inputs
from evomal.tasks.labels import Classes
from evomal.tasks.model_trials import with_integers_as_taken
from evomal.tasks.parts import Part
from evomal.tasks.samples import Key, Samples, given_samples, joined_samples
from evomal.tasks.splits import RowNumbers, Split, shared_content, split_groups, split_in_order, split_rows
from evomal.text import short_repr, with_article
from evomal.units import Units

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class ArrayOptions:
    """The options of `Task.from_arrays` that decide how arrays become parts; see there."""

    kind: Kind
    groups: Any
    order: Any
    sample_weight: Any
    class_weight: Any
    classes: Any
    ignore_index: Any
    seed: int
    standardise: bool
    hardships: Hardships | None

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        if not isinstance(self.hardships, Hardships | None):
            raise InputError(
                f"hardships must be an evomal.Hardships but got {with_article(type(self.hardships).__name__)}"
            )
        if not isinstance(self.standardise, bool | np.bool_):
            raise InputError(f"standardise must be True or False but got {short_repr(self.standardise)}")
        if isinstance(self.ignore_index, bool) or not isinstance(self.ignore_index, int | str | None):
            raise InputError(f"ignore_index must be a label or None but got {short_repr(self.ignore_index)}")
        check_ignored(self.ignore_index, self.kind)
        if self.groups is not None and self.order is not None:
            raise InputError("groups and order must not be given together: split by one of them")


def array_fields(
    x: Any, y: Any, parts: Mapping[str, Any], options: ArrayOptions, model: Callable[[], nn.Module]
) -> tuple[dict[str, Tensor], int, dict[str, Any]]:
    """Return the rows of validation and test among all given rows, the number of these, and the fields of a task."""
    kind, seed = options.kind, options.seed
    hard = Hardships() if options.hardships is None else options.hardships
    given = given_samples(
        x, y, options.sample_weight, parts, kind=kind, classes=options.classes, ignored=options.ignore_index
    )
    place, first_inputs = ("x", x) if "all" in given else ("train[0]", parts["train"][0])
    check_same_index({place: first_inputs, "groups": options.groups, "order": options.order})
    samples = joined_samples(given)
    targets, classes = samples.targets, samples.classes
    labels = targets if kind == "classification" and targets.ndim == 1 else None
    outputs = _outputs(next(iter(given.values())).targets, classes, kind)
    split = _split(given, labels, parts, options)
    inputs = samples.inputs.values()
    shared = shared_content(*([own[rows] for own in inputs] for rows in (split.train, split.validation, split.test)))
    train_rows = hard.kept_rows(split.train, labels, seed=seed)
    train_targets = _harder_targets(hard, targets[train_rows], kind, outputs, seed)
    standardised = {
        key: units_of(array[train_rows])
        for key, array in samples.inputs.items()
        if options.standardise and array.ndim == 2 and array.dtype.kind == "f"
    }
    units = units_of(train_targets) if options.standardise and kind == "regression" else None
    found = []
    for rows in (train_rows, split.validation, split.test):
        arrays = {
            key: standardised[key].standardised(array[rows]) if key in standardised else array[rows]
            for key, array in samples.inputs.items()
        }
        values = train_targets if rows is train_rows else targets[rows]
        values = values if units is None else units.standardised(values)
        weights = None if samples.weights is None else torch.tensor(samples.weights[rows], dtype=torch.float32)
        target_dtype = torch.int64 if kind == "classification" else torch.float32
        found.append(Part(_input_tensors(arrays), torch.tensor(values, dtype=target_dtype), weights))
    found = with_integers_as_taken(found, model)
    class_weight = None
    if options.class_weight is not None:
        class_weight = class_weights(options.class_weight, target_rows(found[0].targets, kind), outputs, classes, kind)
    is_by_rows = options.groups is None and options.order is None
    record = {
        "seed": seed,
        "rows": {name: len(part) for name, part in zip(PARTS, found, strict=True)},
        "equal_rows_across_splits": shared,
        "hardships": vars(hard),
        # Left out where they are not used, so that records made before these keys existed still fit their tasks.
        **({} if is_by_rows else {"split_by": "order" if options.groups is None else "groups"}),
        **({} if "all" in given else {"given_parts": list(given)}),
        **({} if classes in (None, (False, True)) else {"classes": list(classes or ())}),
    }
    chosen_rows = {"validation": torch.as_tensor(split.validation), "test": torch.as_tensor(split.test)}
    return (
        chosen_rows,
        len(samples),
        {
            **dict(zip(PARTS, found, strict=True)),
            "outputs": outputs,
            "record": record,
            "units": units,
            "exchangeable": hard.leaves_rows_exchangeable and is_by_rows and "validation" not in given,
            "classes": classes,
            "class_weight": class_weight,
        },
    )


def units_of(values: Array) -> Units:
    """Return mean and deviation of each column, or of all values at positions."""
    axis = 0 if values.ndim == 2 else None
    deviation = values.std(axis=axis)
    # A constant column is centred only.
    scale = np.where(deviation > 0, deviation, 1.0).tolist()
    mean = values.mean(axis=axis).tolist()
    return Units(mean, scale) if axis is None else Units(tuple(mean), tuple(scale))


def _outputs(targets: Array, classes: Classes | None, kind: Kind) -> int:
    if kind == "classification":
        return int(targets.max()) + 1 if classes is None else len(classes)
    return int(targets.shape[1]) if targets.ndim == 2 else 1


def _split(
    given: Mapping[str, Samples], labels: Array | None, parts: Mapping[str, Any], options: ArrayOptions
) -> Split:
    """Return the rows of the parts, numbered through all samples that were given, without samples of weight 0.

    Shares are of the first samples that were given: all of them, or those of the training part.
    """
    for name, value in (("groups", options.groups), ("order", options.order)):
        if value is not None and set(given) == set(PARTS):
            raise InputError(f"{name} must be None if all parts are given, as nothing is left to split")
    shares = {name: 0 if name in given else parts[name] for name in ("validation", "test")}
    counted, start = {}, 0
    for name, samples in given.items():
        rows = np.arange(len(samples)) if samples.weights is None else np.flatnonzero(samples.weights)
        counted[name] = start + rows
        start += len(samples)
    first, rows = next(iter(given.values())), next(iter(counted.values()))
    own_labels = None if labels is None else labels[rows]
    if options.groups is not None:
        groups = _groups(options.groups, len(first), rows)
        split = split_groups(groups, labels=own_labels, seed=options.seed, **shares)
    elif options.order is not None:
        split = split_in_order(_times(options.order, len(first))[rows], **shares)
    else:
        split = split_rows(len(rows), labels=own_labels, seed=options.seed, **shares)
    found = {"train": rows[split.train], "validation": rows[split.validation], "test": rows[split.test]}
    return Split(**found | {name: own for name, own in counted.items() if name in shares})


def _groups(values: Any, number: int, rows: RowNumbers) -> RowNumbers:
    try:
        return np.unique(column(values, "groups", number)[rows], return_inverse=True)[1].astype(np.int64)
    except TypeError:
        raise InputError("groups must hold values of one type, such as numbers or texts") from None


def _times(values: Any, rows: int) -> Array:
    if isinstance(values, str) and values == "rows":
        return np.arange(rows)
    if isinstance(values, str | bool):
        raise InputError(f'order must be the time of each row, or "rows" if they are sorted, but got {values!r}')
    times = column(values, "order", rows)
    if times.dtype.kind == "O" and all(isinstance(value, datetime.date) for value in times):
        times = np.array([np.datetime64(value, "us") for value in times])
    if times.dtype.kind not in "iufMm":
        raise InputError(
            f"order must hold numbers or times but got {times.dtype}: convert it, as with pandas.to_datetime"
        )
    return times


def _harder_targets(hard: Hardships, targets: Array, kind: Kind, outputs: int, seed: int) -> Array:
    """Return the training targets with label noise or outliers."""
    if kind == "regression":
        return hard.outlying_targets(targets, seed=seed)
    if kind == "classification" and targets.ndim == 1:
        return hard.noisy_labels(targets, outputs, seed=seed)
    if hard.label_noise or hard.outliers:
        what = "multilabel targets" if kind == "multilabel" else "labels at positions"
        raise InputError(f"label noise and outliers are not defined for {what}")
    return targets


def _input_tensors(arrays: Mapping[Key, Array]) -> Inputs:
    """Return the arrays as tensors, in the form that the model is called with: floats in single precision."""
    dtypes = {"f": torch.float32, "b": torch.bool}
    found = {key: torch.tensor(array, dtype=dtypes.get(array.dtype.kind, torch.int64)) for key, array in arrays.items()}
    if None in found:
        return found[None]
    named = {key: tensor for key, tensor in found.items() if isinstance(key, str)}
    return named or tuple(found.values())


def class_weights(weights: Any, labels: Tensor, outputs: int, classes: Classes | None, kind: Kind) -> tuple[float, ...]:
    """Return the weight of each class: "balanced" weights, those of a mapping from classes, or one for each class."""
    if kind == "classification" and isinstance(weights, str) and weights == "balanced":
        # As in scikit-learn: all classes that occur have the same sum of weights, and the mean weight is 1.
        counts = labels.bincount(minlength=outputs).double()
        weights = len(labels) / (counts.clamp(min=1) * (counts > 0).sum())
    if isinstance(weights, Mapping):
        names = range(outputs) if classes is None else classes
        if set(weights) != set(names):
            odd = next(iter(set(weights) ^ set(names)))
            raise InputError(
                f"class_weight must have a weight for each of the classes {short_repr(list(names))}, and for nothing "
                f"else, but {'has one for' if odd in weights else 'lacks'} {short_repr(odd)}"
            )
        weights = [weights[name] for name in names]
    return checked_class_weight(weights, kind, outputs)
