"""The parts of a task's data, the rows of its batches, and random crops and flips of images."""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.randomness import generator
from evomal.tasks.inputs import Form, Inputs, count, form_of, in_form, joined, moved, select, shapes_and_dtypes, tensors

if TYPE_CHECKING:
    from evomal.tasks.sources import Source


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs and targets of one split or of one batch, as whole tensors."""

    inputs: Inputs
    """One tensor, or a tuple or dictionary of tensors, with a row for each sample."""
    targets: Tensor
    weights: Tensor | None = None
    """How much each sample counts in losses; samples of weight 0 count in no metric. None: all count alike."""
    source: "Source | None" = None
    """Where batches come from if the data are not held in memory: the tensors are then a sample of them."""

    @property
    def rows(self) -> int | None:
        """The number of samples, of which there may be more than `len`; None where a source does not know it."""
        return len(self) if self.source is None else self.source.rows

    @property
    def rows_in_words(self) -> str:
        """The number of samples, and whether they are read anew while a model trains."""
        number = "?" if self.rows is None else str(self.rows)
        return number if self.source is None or self.source.is_in_memory else f"{number} (read anew)"

    @property
    def tensors(self) -> list[Tensor]:
        """The inputs, the targets and, if there are any, the weights."""
        return [*tensors(self.inputs), self.targets, *([] if self.weights is None else [self.weights])]

    @property
    def bytes(self) -> int:
        """The memory that the tensors take."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

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

    def select(self, rows: Tensor) -> "Part":
        """Return the samples at those numbers."""
        weights = None if self.weights is None else self.weights.index_select(0, rows)
        return Part(select(self.inputs, rows), self.targets.index_select(0, rows), weights)


def joined_parts(parts: Sequence[Part]) -> Part:
    """Return the samples of several parts one after the other; beside weighted parts, others have the weight 1."""
    given = [part.weights for part in parts if part.weights is not None]
    weights = None
    if given:
        shape = given[0].shape[1:]
        weights = torch.cat(
            [given[0].new_ones(len(part), *shape) if part.weights is None else part.weights for part in parts]
        )
    return Part(joined([part.inputs for part in parts]), torch.cat([part.targets for part in parts]), weights)


_ALIGNED = 64  # bytes: every tensor begins at a multiple of it


@dataclass(frozen=True, eq=False)
class PackedPart:
    """Inputs, targets and weights of a batch in one tensor of bytes, which is sent, pinned and copied at once.

    Args:
        memory: The bytes.
        form: The form of the inputs.
        layout: The place in the memory, the dtype and the shape of each tensor.
        has_weights: Whether the last tensor holds weights.
    """

    memory: Tensor
    form: Form
    layout: tuple[tuple[slice, torch.dtype, torch.Size], ...]
    has_weights: bool

    @classmethod
    def of(cls, part: Part) -> "PackedPart":
        """Returns a batch in one piece."""
        own = part.tensors
        layout, end = [], 0
        for tensor in own:
            size = tensor.numel() * tensor.element_size()
            layout.append((slice(end, end + size), tensor.dtype, tensor.shape))
            end += -(-size // _ALIGNED) * _ALIGNED
        memory = torch.empty(end, dtype=torch.uint8)
        for tensor, (place, _, _) in zip(own, layout, strict=True):
            memory[place].copy_(tensor.reshape(-1).view(torch.uint8))
        return cls(memory, form_of(part.inputs), tuple(layout), part.weights is not None)

    def pin_memory(self) -> "PackedPart":
        """Returns the batch in pinned memory, from which a CUDA device can copy while it computes."""
        return dataclasses.replace(self, memory=self.memory.pin_memory())

    def copied(self, device: torch.device) -> Part:
        """Returns a copy of the batch on the device, without waiting until it is complete."""
        memory = self.memory.to(device, non_blocking=True, copy=True)
        own = [memory[place].view(dtype).view(shape) for place, dtype, shape in self.layout]
        weights = own.pop() if self.has_weights else None
        targets = own.pop()
        return Part(in_form(self.form, own), targets, weights)


@dataclass(frozen=True)
class Augmentation:
    """Pad with zeros, crop back at a random place, and mirror half of the images if they may be mirrored."""

    padding: int = 4
    flip: bool = True

    def __call__(self, images: Tensor, *, generator: torch.Generator) -> Tensor:
        """A changed copy of images (samples, channels, height, width); the generator is on their device."""
        samples, _, height, width = images.shape
        device = images.device
        offsets = torch.randint(2 * self.padding + 1, (2, samples, 1), generator=generator, device=device)
        rows, columns = (offsets[axis] + torch.arange(side, device=device) for axis, side in enumerate((height, width)))
        if self.flip:
            mirrored = torch.rand(samples, 1, generator=generator, device=device) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        padded = F.pad(images, [self.padding] * 4)
        sample = torch.arange(samples, device=device)[:, None, None]
        # Advanced indices around the slice put the channels last.
        return padded[sample, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class Batches:
    """Batches of `size` rows without replacement, epoch after epoch, drawn from the seed and the purpose alone.

    A batch may reach over the end of an epoch into the next, so that every batch is full and every row is used equally
    often.
    """

    def __init__(self, rows: int, size: int, *, seed: int, purpose: str) -> None:
        self.rows, self.size = rows, min(size, rows)
        self.seed, self.purpose = seed, purpose
        self._epoch = functools.lru_cache(maxsize=2)(self._permutation)

    def __getitem__(self, step: int) -> Tensor:
        """The rows of that step's batch."""
        epoch, start = divmod(step * self.size, self.rows)
        rows = self._epoch(epoch)[start : start + self.size]
        missing = self.size - len(rows)
        return torch.cat((rows, self._epoch(epoch + 1)[:missing])) if missing else rows

    def _permutation(self, epoch: int) -> Tensor:
        return torch.from_numpy(generator(self.seed, "batches", self.purpose, epoch).permutation(self.rows))
