"""Checks the samples that users give, all together or part by part, and converts them to plain arrays."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evomal.checks import Kind
from evomal.errors import InputError
from evomal.tasks.arrays import MOST_BYTES, Array, check_finite, check_same_index, is_pandas, number_array
from evomal.tasks.data_checks import (
    check_classes,
    check_different_values,
    check_several_classes,
    checked_targets,
    checked_weights,
    target_rows,
)
from evomal.tasks.labels import Classes, checked_classes, encoded_labels, labels_like
from evomal.text import plural, short_repr

Key = str | int | None
"""Which input of a model an array is: the name of an argument, its place, or None if there is only one."""
_TUPLE = ": a tuple holds several inputs of a model; give the rows of one input as a list or an array"
_ADVICE = {
    "regression": ': use kind="classification" for labels, or convert texts with astype(float)',
    "multilabel": ": convert them to a matrix of zeros and ones, as sklearn's MultiLabelBinarizer does",
}


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples that were given together: arrays with a row for each of them."""

    inputs: dict[Key, Array]
    targets: Array
    classes: Classes | None = None
    weights: Array | None = None

    def __len__(self) -> int:
        return len(self.targets)


def given_samples(
    x: Any, y: Any, weights: Any, parts: Mapping[str, Any], *, kind: Kind, classes: Any, ignored: Any
) -> dict[str, Samples]:
    """Return the given samples, checked: those of train, validation and test, or those of x and y as "all".

    `parts` are what was given as train (or None), validation and test: pairs of inputs and targets, or shares.
    """
    pairs = {name: part for name, part in parts.items() if part is not None and not np.isscalar(part)}
    if "train" not in pairs:
        if parts["train"] is not None:
            raise InputError(f"train must be a pair (x, y) but got {short_repr(parts['train'])}")
        if pairs:
            raise InputError(f"{next(iter(pairs))}=(x, y) needs train=(x, y) beside it, in place of x and y")
        if x is None or y is None:
            raise InputError("x and y must be given, or train=(x, y) with validation and test as pairs or shares")
        return {"all": _samples(("x", x), ("y", y), ("sample_weight", weights), kind, classes, ignored)}
    if x is not None or y is not None:
        raise InputError("train=(x, y) must be given in place of x and y, not beside them")
    if weights is not None:
        raise InputError("sample_weight must be given with its part if there are parts, as train=(x, y, weights)")
    found: dict[str, Samples] = {}
    for name, pair in pairs.items():
        if not isinstance(pair, Sequence) or len(pair) not in (2, 3):
            raise InputError(
                f"{name} must be a pair (x, y), or (x, y, weights), but got {short_repr(pair)}: for datasets there is "
                "Task.from_datasets"
            )
        first, second, third = ((f"{name}[{number}]", values) for number, values in enumerate((*pair, None)[:3]))
        found[name] = _samples(
            first, second, third, kind, classes, ignored, like=None if classes is not None else found.get("train")
        )
    return found


def joined_samples(given: Mapping[str, Samples]) -> Samples:
    """Return the samples of all parts that were given, one after the other."""
    head = next(iter(given.values()))
    if len(given) == 1:
        return head
    for name, samples in given.items():
        if set(samples.inputs) != set(head.inputs):
            wanted, received = (_described(own.inputs) for own in (head, samples))
            raise InputError(f"{name}[0] must be {wanted}, as train[0] is, but is {received}")
        for key, array in samples.inputs.items():
            _check_shape(array, head.inputs[key], _place(f"{name}[0]", key), "inputs")
        _check_shape(samples.targets, head.targets, f"{name}[1]", "targets")
    everything = list(given.values())
    inputs = {key: np.concatenate([samples.inputs[key] for samples in everything]) for key in head.inputs}
    weights = None
    if any(samples.weights is not None for samples in everything):
        weights = np.concatenate([np.ones(len(own)) if own.weights is None else own.weights for own in everything])
    return Samples(inputs, np.concatenate([own.targets for own in everything]), head.classes, weights)


def _samples(
    x: tuple[str, Any], y: tuple[str, Any], weights: tuple[str, Any], kind: Kind, classes: Any, ignored: Any,
    like: Samples | None = None,
) -> Samples:  # fmt: skip
    """Return the samples of one source, given as names for errors and values; `like`: those of the training part."""
    check_same_index(dict((x, y, weights)))
    inputs = _inputs(*x)
    rows = len(next(iter(inputs.values())))
    targets, own_classes = _targets(*y, kind, classes, ignored, like)
    if len(targets) != rows:
        advice = _TUPLE if isinstance(x[1], tuple) else ""
        raise InputError(
            f"{y[0]} must have a target for each of {plural(rows, 'row')} of {x[0]} but got {len(targets)}{advice}"
        )
    _check_positions(inputs, targets, x[0], y[0], kind)
    if weights[1] is None:
        return Samples(inputs, targets, own_classes)
    return Samples(inputs, targets, own_classes, checked_weights(weights[1], rows, weights[0]).numpy())


def _inputs(place: str, x: Any) -> dict[Key, Array]:
    """Return the arrays of the inputs by the arguments that a model takes them as."""
    if not isinstance(x, Mapping | tuple):
        array = _input(x, place)
        if array.ndim < 2 and array.dtype.kind == "f":
            raise InputError(
                f"{place} must have a row for each sample and at least one feature but got shape {array.shape}: "
                f"a single feature is {place}[:, None]"
            )
        return {None: array}
    named: dict[Key, Any] = dict(x) if isinstance(x, Mapping) else dict(enumerate(x))
    if not named:
        raise InputError(f"{place} must hold at least one array but is empty")
    for key in named:
        if isinstance(x, Mapping) and not (isinstance(key, str) and key.isidentifier()):
            raise InputError(f"{place} must name arguments of the model but has the key {short_repr(key)}")
    arrays = {key: _input(values, _place(place, key)) for key, values in named.items()}
    counts = {_place(place, key): len(array) for key, array in arrays.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise InputError(
            f"all arrays in {place} must have a row for each sample but {short_repr(listed, 100)[1:-1]}"
            + (_TUPLE if isinstance(x, tuple) else "")
        )
    return arrays


def _described(keys: Collection[Key]) -> str:
    if None in keys:
        return "one array"
    return f"a tuple of {len(keys)} arrays" if 0 in keys else f"a dictionary of {', '.join(map(str, keys))}"


def _place(place: str, key: Key) -> str:
    return place if key is None else f"{place}[{key!r}]"


def _input(values: Any, place: str) -> Array:
    if isinstance(values, np.memmap) and values.nbytes > MOST_BYTES:
        raise InputError(
            f"{place} must take at most {MOST_BYTES / 2**30:g} GiB but takes {values.nbytes / 2**30:,.1f} GiB: use "
            "Task.from_datasets, which reads pairs of arrays from the disk while a model trains"
        )
    array = number_array(values, place)
    if array.ndim == 0 or len(array) == 0 or array[0].size == 0:
        raise InputError(
            f"{place} must have a row for each sample and at least one feature but got shape {array.shape}"
        )
    check_finite(array, place)
    return array


def _targets(
    place: str, y: Any, kind: Kind, classes: Any, ignored: Any, like: Samples | None
) -> tuple[Array, Classes | None]:
    if kind == "classification":
        if like is None:
            labels, found = encoded_labels(y, place, classes=classes, ignored=ignored)
        else:
            labels, found = labels_like(y, place, like.classes, ignored=ignored), like.classes
        checked = checked_targets(labels, kind, place)
        rows = target_rows(checked, kind)
        if len(rows) == 0:
            raise InputError(f"{place} must hold labels that count but all are {short_repr(ignored)}")
        check_classes(rows, place, int(rows.max()) + 1 if found is None else len(found))
        if like is None:
            check_several_classes(rows, place)
        return checked.numpy(), found
    if classes is not None and kind == "regression":
        raise InputError("classes must be None for regression, which has none")
    # Checked here, as NumPy would only find that they differ in length.
    if kind == "multilabel" and isinstance(y, list | tuple):
        listed = [own for own in y if isinstance(own, list | tuple | set | frozenset)]
        if any(isinstance(value, str) for own in listed for value in own):
            raise InputError(f"{place} must hold zeros and ones but holds texts{_ADVICE[kind]}")
    targets = number_array(y, place, _ADVICE[kind])
    if targets.ndim == 1:
        targets = targets[:, None]
    checked_targets(targets, kind, place)
    check_finite(targets, place)
    if kind == "regression" and like is None:
        check_different_values(targets, place)
    if kind == "multilabel" and classes is None and is_pandas(y) and y.ndim == 2:
        classes = tuple(map(str, y.columns))
    return targets.astype(np.float64), None if classes is None else checked_classes(classes, at_least=1)


def _check_shape(array: Array, first: Array, place: str, what: str) -> None:
    if array.shape[1:] != first.shape[1:]:
        raise InputError(
            f"{place} must have {what} of shape {first.shape[1:]} for a sample, as the training part has, but they "
            f"have {array.shape[1:]}"
        )


def _check_positions(inputs: Mapping[Key, Array], targets: Array, x: str, y: str, kind: Kind) -> None:
    """Raise if a matrix of labels is probably not meant as labels at positions of the inputs."""
    if kind != "classification" or targets.ndim != 2:
        return
    if any(targets.shape[1] in array.shape[1:] for array in inputs.values()):
        return
    are_bits = bool(np.isin(targets, (0, 1)).all())
    if are_bits and (targets.sum(1) == 1).all():
        raise InputError(f"{y} must hold class numbers but is one-hot: give {y}.argmax(1)")
    if all(array.ndim == 2 and array.dtype.kind == "f" for array in inputs.values()):
        advice = ': use kind="multilabel" if a sample has several labels' if are_bits else ""
        raise InputError(
            f"class numbers of {y} must have shape (samples,), one for each sample or for each position of {x}, but "
            f"have {targets.shape}{advice}"
        )
