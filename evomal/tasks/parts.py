"""The parts of a task's data, and how datasets become parts."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from evomal.errors import InputError
from evomal.progress import tracked
from evomal.tasks.data_checks import Kind, checked_targets
from evomal.tasks.inputs import Inputs, count, joined, map_tensors, moved, select, shapes_and_dtypes
from evomal.text import short_repr
from evomal.users_code import users_code

if TYPE_CHECKING:
    from evomal.tasks.sources import Source


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs and targets of one split or of one batch, as whole tensors."""

    inputs: Inputs
    """One tensor, or a tuple or dictionary of tensors, with a row for each sample."""
    targets: Tensor
    weights: Tensor | None = None
    """How much each sample counts in losses and metrics; None: all count alike."""
    source: "Source | None" = None
    """Where batches come from if the data are not held in memory: the tensors are then a sample of them."""

    @property
    def rows(self) -> int | None:
        """The number of samples, of which there may be more than `len`; None where a source does not know it."""
        return len(self) if self.source is None else self.source.rows

    def __len__(self) -> int:
        return count(self.inputs)

    def __repr__(self) -> str:
        fields = [f"inputs={shapes_and_dtypes(self.inputs)}", f"targets={shapes_and_dtypes(self.targets)}"]
        fields += [] if self.weights is None else [f"weights={shapes_and_dtypes(self.weights)}"]
        return f"Part({', '.join(fields)})"

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Part":
        """Return the part on another device, with its floating-point tensors in that dtype."""
        targets = self.targets.to(device, dtype if self.targets.is_floating_point() else None)
        weights = None if self.weights is None else self.weights.to(device, dtype)
        return Part(moved(self.inputs, device, dtype), targets, weights, self.source)

    def pin_memory(self) -> "Part":
        """Return the part in pinned memory, from which a CUDA device can copy while it computes."""
        weights = None if self.weights is None else self.weights.pin_memory()
        return Part(map_tensors(Tensor.pin_memory, self.inputs), self.targets.pin_memory(), weights)

    def select(self, rows: Tensor) -> "Part":
        """Return the samples at those numbers."""
        weights = None if self.weights is None else self.weights.index_select(0, rows)
        return Part(select(self.inputs, rows), self.targets.index_select(0, rows), weights)


def joined_parts(parts: Sequence[Part]) -> Part:
    """Return the samples of several parts one after the other; samples without weights count 1 beside others."""
    given = [part.weights for part in parts if part.weights is not None]
    weights = None
    if given:
        shape = given[0].shape[1:]
        weights = torch.cat(
            [given[0].new_ones(len(part), *shape) if part.weights is None else part.weights for part in parts]
        )
    return Part(joined([part.inputs for part in parts]), torch.cat([part.targets for part in parts]), weights)


def read_dataset(dataset: Dataset[Any], place: str, kind: Kind) -> Part:
    """Read all pairs of a dataset into tensors and check them; `place` names the dataset in errors."""
    with users_code(f"the {place} dataset"):
        length = len(dataset) if isinstance(dataset, Sized) else 0
    if length == 0:
        raise InputError(f"the {place} dataset must have a length of at least 1")
    inputs, targets = [], []
    for index in tracked(range(length), f"reading the {place} data", total=length):
        with users_code(f"item {index} of the {place} dataset"):
            pair = dataset[index]
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"the {place} dataset must give pairs of input and target but item {index} is no pair")
        inputs.append(_tensor(pair[0], f"the input of item {index} of the {place} dataset").float())
        targets.append(_tensor(pair[1], f"the target of item {index} of the {place} dataset"))
    try:
        stacked_inputs, stacked_targets = torch.stack(inputs), torch.stack(targets)
    except RuntimeError:
        raise InputError(f"all items of the {place} dataset must have the same shape") from None
    if kind != "classification":
        stacked_targets = stacked_targets.reshape(len(targets), -1)
    return Part(stacked_inputs, checked_targets(stacked_targets, kind, f"the {place} dataset"))


def _tensor(value: Any, place: str) -> Tensor:
    """Return a value of a dataset as a tensor of real numbers."""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"{place} must hold numbers in rows of one shape but is {short_repr(value)}") from None
    if tensor.is_complex():
        raise InputError(f"{place} must hold real numbers but got {str(tensor.dtype).removeprefix('torch.')}")
    return tensor
