"""What a task expects of every batch of its datasets and loaders, whenever the batch is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evomal.checks import KINDS, Kind, one_of, whole_number
from evomal.errors import InputError
from evomal.tasks.data_checks import check_ignored, check_split, checked_inputs, checked_targets
from evomal.tasks.inputs import Inputs, map_tensors, tensors
from evomal.tasks.items import Columns
from evomal.tasks.labels import IGNORED
from evomal.tasks.parts import Part
from evomal.text import plural, short_repr
from evomal.units import Units

_MOST_WORKERS = 64


@dataclass(frozen=True)
class DatasetOptions:
    """The options that `Task.from_datasets` and `Task.from_loaders` have in common; see there."""

    kind: Kind
    target: str | None = None
    inputs: str | Sequence[str] | None = None
    classes: Sequence[Any] | None = None
    class_weight: Any = None
    ignore_index: int = IGNORED
    workers: int | None = None
    standardise: bool = False

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        if not isinstance(self.standardise, bool):
            raise InputError(f"standardise must be True or False but got {short_repr(self.standardise)}")
        if self.standardise and self.kind != "regression":
            raise InputError(
                f"standardise is for the targets of regression, but the kind is {self.kind}: the inputs of datasets "
                "and loaders are taken as they are"
            )
        if self.workers is not None:
            whole_number("workers", self.workers, at_least=0, at_most=_MOST_WORKERS)
        ignored: Any = self.ignore_index
        if isinstance(ignored, bool) or not isinstance(ignored, int):
            raise InputError(f"ignore_index must be a whole number but got {short_repr(ignored)}")
        check_ignored(ignored, self.kind)
        given: Any = self.inputs
        is_list = isinstance(given, list | tuple) and given and all(isinstance(name, str) for name in given)
        if not (is_list or isinstance(given, str | None)):
            raise InputError(f"inputs must be the name of a column, or a list of names, but got {short_repr(given)}")
        if not isinstance(self.target, str | None):
            raise InputError(f"target must be the name of a column but got {short_repr(self.target)}")

    @property
    def columns(self) -> Columns:
        """The columns of items that are mappings."""
        return Columns(self.target, self.inputs if isinstance(self.inputs, str | None) else tuple(self.inputs))


@dataclass(frozen=True)
class Fit:
    """Converts batches to what a task needs, and checks them.

    Args:
        options: The options of the task.
        place: What errors call the data: "training", "validation" or "test".
        outputs: The number of classes, labels or targets; None: not known yet.
        like: The dtype and the shape for one sample of each input; None: not known yet.
        is_varying: Whether shapes may differ from these.
        units: The units by which targets are standardised; None: they are taken as they are.
    """

    options: DatasetOptions
    place: str
    outputs: int | None = None
    like: tuple[tuple[torch.dtype, tuple[int, ...]], ...] | None = None
    is_varying: bool = False
    units: Units | None = None

    def to_sample(self, sample: Part, *, outputs: int, is_varying: bool, units: Units | None) -> "Fit":
        """Returns the same with the dtypes and shapes of a sample of the batches, and what else is known by then."""
        like = tuple((own.dtype, tuple(own.shape[1:])) for own in tensors(sample.inputs))
        return Fit(self.options, self.place, outputs, like, is_varying, units)

    def __call__(self, part: Part) -> Part:
        kind, targets, name = self.options.kind, part.targets, f"the {self.place} dataset"
        name = name if self.like is None else f"a batch of {name}"
        if kind == "classification" and self.options.ignore_index != IGNORED:
            wide = targets if targets.is_floating_point() else targets.long()  # bytes have no negative numbers
            targets = torch.where(wide == self.options.ignore_index, IGNORED, wide)
        targets, inputs = checked_targets(targets, kind, name), checked_inputs(self._converted(part.inputs), name)
        if self.outputs is not None:
            check_split(inputs, targets, kind, self.outputs, self.place)
        weights = part.weights
        if weights is not None and weights.shape != (len(part),):
            raise InputError(f"{name} must have one weight for each sample but has shape {list(weights.shape)}")
        if weights is not None and not bool((torch.isfinite(weights) & (weights >= 0)).all()):
            raise InputError(f"weights of {name} must be finite and at least 0")
        return Part(inputs, targets if self.units is None else self.units.standardised(targets), weights)

    def _converted(self, inputs: Inputs) -> Inputs:
        """Returns the inputs in the dtypes of the sample; raises if their number or shapes differ from it."""
        if self.like is None:
            return map_tensors(lambda own: own.long() if own.dtype == torch.uint8 else own, inputs)
        if len(tensors(inputs)) != len(self.like):
            number = len(tensors(inputs))
            raise InputError(
                f"the {self.place} dataset must always give {plural(len(self.like), 'input')} but gave {number}"
            )
        wanted = iter(self.like)

        def converted(tensor: Tensor) -> Tensor:
            dtype, shape = next(wanted)
            if not self.is_varying and tensor.shape[1:] != shape:
                raise InputError(
                    f"the {self.place} dataset must have inputs of one shape but gave {list(shape)} and "
                    f"{list(tensor.shape[1:])}: use Task.from_loaders with a loader that pads them"
                )
            return tensor if tensor.dtype == torch.uint8 else tensor.to(dtype)  # converted on the device

        return map_tensors(converted, inputs)
