"""A task: data in three parts, a model to train on them, and what it is judged by."""

import dataclasses
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from evomal.errors import InputError
from evomal.progress import tracked
from evomal.tasks.augmentation import Augmentation
from evomal.tasks.hardships import Hardships, hardened_rows, noisy_labels, outlying_targets
from evomal.tasks.metrics import Measure, Metric, chosen_metric
from evomal.tasks.splits import shared_content, split_rows
from evomal.units import Units, Values

Kind = Literal["classification", "regression", "multilabel"]
KINDS = ("classification", "regression", "multilabel")
ModelFactory = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs and targets of one split, as whole tensors."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Part":
        """The same on another device, and its floating-point numbers in that dtype."""
        inputs, targets = (
            tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in (self.inputs, self.targets)
        )
        return Part(inputs, targets)


@dataclass(frozen=True)
class Recipe:
    """How the paper trains on a task: the defaults of `evomal.train`."""

    steps: int = 10_000
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    batch_size: int = 128
    milestones: tuple[int, ...] = ()
    """Steps at which the learning rate is divided by ten."""


@dataclass(frozen=True, eq=False)
class Task:
    """Data, model, metric and task loss; a user's own, or one of the paper's by `load_task`."""

    kind: Kind
    train: Part
    validation: Part
    test: Part
    model: ModelFactory
    """Makes a fresh model; called once for every training."""
    metric: Metric
    outputs: int
    """Number of classes, labels or regression targets."""
    name: str = "own"
    augmentation: Augmentation | None = None
    recipe: Recipe = Recipe()
    record: Mapping[str, Any] = field(default_factory=dict)
    """What was done to the data: seed, sizes, hardships, rows of equal content in two parts."""
    units: Units | None = None
    """Mean and scale of the raw targets, where the targets of the parts are standardised; None where they are raw."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)} but got {self.kind!r}")
        if isinstance(self.model, nn.Module) or not callable(self.model):
            raise InputError(
                f"model must be a function that makes a fresh model but got a {type(self.model).__name__}: lambda: …"
            )
        for name in ("train", "validation", "test"):
            part = getattr(self, name)
            if len(part) == 0:
                raise InputError(f"the {name} split must have at least one sample but is empty")
            if len(part.inputs) != len(part.targets):
                counts = f"{len(part.inputs)} and {len(part.targets)}"
                raise InputError(f"the {name} split must have a target for each input but got {counts}")

    def judged_by(self, metric: str | Metric | Measure) -> "Task":
        """The same task with another metric, by its name or as a function of outputs and targets."""
        return dataclasses.replace(self, metric=chosen_metric(metric, self.kind))

    def to_raw(self, predictions: Values) -> Values:
        """Predictions of a model that was trained on this task, in the units of the raw targets.

        Args:
            predictions: Outputs of the model, as a tensor or an array; several targets are the last dimension.

        Returns:
            The predictions times the scale plus the mean of the raw targets; as they are where the task does not
            standardise its targets.

        Example:
            >>> x, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0)
            >>> task = Task.from_arrays(x, y, model=lambda: nn.Linear(3, 1), kind="regression")
            >>> bool(np.isin(task.to_raw(task.test.targets).numpy().round(), y).all())
            True
        """
        return predictions if self.units is None else self.units.raw(predictions)

    @classmethod
    def from_arrays(
        cls,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        model: ModelFactory,
        kind: Kind = "classification",
        validation: float = 0.2,
        test: float = 0.2,
        seed: int = 0,
        standardise: bool = True,
        metric: str | Metric | Measure | None = None,
        hardships: Hardships | None = None,
        name: str = "own",
    ) -> "Task":
        """Split, standardise and wrap two arrays.

        Float tables are standardised with the training split's means and deviations, features as well as the targets of
        regression, unless `standardise` is false; `units` has those of the targets, and `to_raw` converts predictions
        back. Hardships touch the training split only.
        """
        features, targets = _checked_arrays(x, y, kind)
        labels = targets if kind == "classification" else None
        split = split_rows(len(features), validation=validation, test=test, labels=labels, seed=seed)
        hard = hardships or Hardships()
        shared = shared_content(*(features[rows] for rows in (split.train, split.validation, split.test)))
        train_rows = hardened_rows(labels, split.train, hard, seed=seed)
        outputs = int(targets.max()) + 1 if kind == "classification" else targets.shape[1]
        train_targets = targets[train_rows]
        if kind == "regression":
            train_targets = outlying_targets(train_targets, hard, seed=seed)
        elif kind == "classification":
            train_targets = noisy_labels(train_targets, outputs, hard, seed=seed)
        elif hard.label_noise or hard.outliers:
            raise InputError("label noise and outliers are not defined for multilabel targets")
        parts = [(features[train_rows], train_targets)]
        parts += [(features[rows], targets[rows]) for rows in (split.validation, split.test)]
        units = None
        if standardise and features.ndim == 2 and features.dtype.kind == "f":
            inputs = _units(features[train_rows])
            units = _units(train_targets) if kind == "regression" else None
            parts = [(inputs.standardised(x), y if units is None else units.standardised(y)) for x, y in parts]
        train, valid, held_out = (_part(inputs, values, kind) for inputs, values in parts)
        return cls(
            kind=kind,
            train=train,
            validation=valid,
            test=held_out,
            model=model,
            metric=chosen_metric(metric, kind),
            outputs=outputs,
            name=name,
            record={
                "seed": seed,
                "rows": {"train": len(train), "validation": len(valid), "test": len(held_out)},
                "equal_rows_across_splits": shared,
                "hardships": vars(hard),
            },
            units=units,
        )

    @classmethod
    def from_datasets(
        cls,
        train: Dataset[Any],
        validation: Dataset[Any],
        test: Dataset[Any],
        *,
        model: ModelFactory,
        kind: Kind = "classification",
        metric: str | Metric | Measure | None = None,
        name: str = "own",
    ) -> "Task":
        """Three torch datasets of (input, target) pairs, read once into tensors and taken as they are."""
        named = {"training": train, "validation": validation, "test": test}
        parts = [_materialised(dataset, place, kind) for place, dataset in named.items()]
        outputs = int(parts[0].targets.max()) + 1 if kind == "classification" else parts[0].targets.shape[1]
        if kind == "classification":
            for place, part in zip(named, parts, strict=True):
                _check_labels(part.targets.numpy(), f"the {place} data", outputs)
        return cls(
            kind=kind,
            train=parts[0],
            validation=parts[1],
            test=parts[2],
            model=model,
            metric=chosen_metric(metric, kind),
            outputs=outputs,
            name=name,
            record={
                "rows": {place: len(part) for place, part in zip(named, parts, strict=True)},
                "equal_rows_across_splits": shared_content(*(part.inputs.numpy() for part in parts)),
            },
        )


def _checked_arrays(x: npt.ArrayLike, y: npt.ArrayLike, kind: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    features, targets = np.asarray(x), np.asarray(y)
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)} but got {kind!r}")
    if features.ndim < 2 or len(features) == 0:
        raise InputError(f"x must have a row for each sample and at least one feature but got shape {features.shape}")
    if targets.ndim == 0 or len(targets) != len(features):
        targets = np.atleast_1d(targets)
        raise InputError(f"y must have a target for each of {len(features)} rows of x but got {len(targets)}")
    if features.dtype.kind not in "fiub":
        raise InputError(f"x must hold numbers but got {features.dtype}")
    if features.dtype.kind == "f" and not np.isfinite(features).all():
        place = tuple(int(index) for index in np.argwhere(~np.isfinite(features))[0])
        raise InputError(f"x must be finite but x{list(place)} is {features[place]}")
    if kind == "classification":
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets[:, 0]
        if targets.ndim != 1 or targets.dtype.kind not in "iub":
            raise InputError(
                f"y must be whole class numbers, one a row, but got {targets.dtype} of shape {targets.shape}"
            )
        targets = targets.astype(np.int64)
        _check_labels(targets, "y", int(targets.max()) + 1)
    else:
        targets = targets.reshape(len(targets), -1).astype(np.float64)
        if not np.isfinite(targets).all():
            raise InputError(f"y must be finite but row {int(np.argwhere(~np.isfinite(targets))[0][0])} is not")
        if kind == "multilabel" and not np.isin(targets, (0, 1)).all():
            raise InputError("y must be a matrix of zeros and ones for multilabel")
    return features, targets


def _check_labels(labels: npt.NDArray[np.int64], place: str, classes: int) -> None:
    if labels.min() < 0 or labels.max() >= classes:
        culprit = int(labels[(labels < 0) | (labels >= classes)][0])
        raise InputError(f"class numbers of {place} must lie between 0 and {classes - 1} but one is {culprit}")
    if len(np.unique(labels)) < 2:
        raise InputError(f"{place} must hold at least two classes but all {len(labels)} labels are {int(labels[0])}")


def _units(table: npt.NDArray[Any]) -> Units:
    """Mean and deviation of each column."""
    deviation = table.std(axis=0)
    # A constant column stays constant: it is centred and left alone.
    return Units(tuple(table.mean(axis=0).tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist()))


def _part(inputs: npt.NDArray[Any], targets: npt.NDArray[Any], kind: str) -> Part:
    target_dtype = torch.int64 if kind == "classification" else torch.float32
    return Part(torch.tensor(inputs, dtype=torch.float32), torch.tensor(targets, dtype=target_dtype))


def _materialised(dataset: Dataset[Any], place: str, kind: str) -> Part:
    if not isinstance(dataset, Sized) or len(dataset) == 0:
        raise InputError(f"the {place} dataset must have a length of at least 1")
    inputs, targets = [], []
    indices = tracked(range(len(dataset)), f"reading the {place} data", total=len(dataset))
    for index in indices:
        pair = dataset[index]
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"the {place} dataset must give pairs of input and target but item {index} is no pair")
        inputs.append(torch.as_tensor(pair[0], dtype=torch.float32))
        targets.append(torch.as_tensor(pair[1]))
    try:
        stacked_inputs, stacked_targets = torch.stack(inputs), torch.stack(targets)
    except RuntimeError:
        raise InputError(f"all items of the {place} dataset must have the same shape") from None
    if not bool(torch.isfinite(stacked_inputs).all()):
        raise InputError(f"the inputs of the {place} dataset must be finite")
    if kind == "classification":
        return Part(stacked_inputs, stacked_targets.reshape(len(inputs)).long())
    values = stacked_targets.reshape(len(inputs), -1).float()
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"the targets of the {place} dataset must be finite")
    if kind == "multilabel" and not bool(((values == 0) | (values == 1)).all()):
        raise InputError(f"the targets of the {place} dataset must be zeros and ones for multilabel")
    return Part(stacked_inputs, values)
