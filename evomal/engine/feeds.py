"""Batches where a step reads them: rows of data in memory, or batches of a source that are copied to the device."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.tasks.inputs import map_tensors, pieces
from evomal.tasks.parts import Batches, Part
from evomal.tasks.prefetching import Stream, whole

_STEPS_READ_AHEAD = 64  # the rows of that many steps are copied to the device at once


class BatchFeed:
    """The batches of a step, always in the same memory, so that the step can be captured as a CUDA graph.

    Data in memory are read by their rows. Other data come from a source, which reads ahead. Batches of a source whose
    shapes vary have memory of their own.

    Args:
        part: The data, on the device if they are in memory.
        count: Batches per step.
        size: Samples in a batch.
        device: Where the batches are used.
        dtype: The dtype of floating-point numbers.
    """

    def __init__(self, part: Part, *, count: int, size: int, device: torch.device, dtype: torch.dtype) -> None:
        self._part, self._device, self._dtype = part, device, dtype
        source = self._source = part.source
        rows = len(part) if source is None else source.rows
        self.size = size if rows is None else min(size, rows)
        """Samples in a batch; about as many, where their number varies."""
        self.is_varying = source is not None and source.is_varying
        """Whether batches may differ in shape, so that a step cannot be captured."""
        if source is not None and source.batch_size not in (None, size):
            raise InputError(
                f"batch_size must be {source.batch_size}, as the {source.place} loader makes the batches, but got "
                f"{size}: give the task a loader with other batches"
            )
        self._count, self._wanted = count, size
        self._pool = part
        self._batches: list[Batches] = []
        self._chosen: Sequence[Tensor | None] = ()
        self._rows = torch.zeros(count, self.size if source is None else 0, dtype=torch.int64, device=device)
        self._ahead, self._first_ahead = self._rows[:0].unsqueeze(1), 0
        self._stream: Stream | None = None
        self._loaded: list[Part] = []
        self._memory: Part | None = None

    def open(
        self,
        keys: Sequence[tuple[int, str]],
        *,
        pool: Part | None = None,
        chosen: Sequence[Tensor | None] | None = None,
    ) -> None:
        """Choose the seed and the purpose of each batch of a step.

        `pool` and `chosen`: other data in memory, and the rows of these, if any, that replace the part's own.
        """
        assert len(keys) == self._count
        if self._source is not None:
            self._stream = Stream(self._source, keys, size=self._wanted, device=self._device)
            return
        self._pool, self._chosen = pool or self._part, chosen or [None] * len(keys)
        self._batches = [Batches(len(self._part), self.size, seed=seed, purpose=purpose) for seed, purpose in keys]
        self._ahead = self._ahead[:0]

    def load(self, step: int) -> None:
        """Put the batches of a step where it reads them."""
        if self._stream is not None:
            self._load_parts(self._stream.at(step))
            return
        if not 0 <= step - self._first_ahead < len(self._ahead):
            self._ahead, self._first_ahead = self._rows_of(range(step, step + _STEPS_READ_AHEAD)), step
        self._rows.copy_(self._ahead[step - self._first_ahead])

    def _rows_of(self, steps: range) -> Tensor:
        """Returns the rows `[steps, batches, samples]` of several steps, on the device."""
        rows = torch.stack([torch.stack([batches[step] for step in steps]) for batches in self._batches], 1)
        if self._device.type == "cuda":  # from pageable memory the copy would wait for all steps that are queued
            rows = rows.pin_memory()
        rows = rows.to(self._device, non_blocking=True)
        for place, chosen in enumerate(self._chosen):
            if chosen is not None:
                rows[:, place] = chosen[rows[:, place]]
        return rows

    def batch(self) -> Part:
        """Returns all samples of the step, batch after batch."""
        if self._source is None:
            return self._pool.select(self._rows.view(-1))
        if self._memory is not None:
            return self._memory
        (only,) = self._loaded  # shapes vary, so there may not be another
        return only

    def batches(self) -> list[Part]:
        """Returns the batches of the step."""
        if self._source is None:
            return [self._pool.select(rows) for rows in self._rows]
        return self._loaded

    def _load_parts(self, parts: list[Part]) -> None:
        if self.is_varying:
            self._loaded = [_copied(part, self._part) for part in parts]
            return
        size = len(parts[0])
        if self._memory is None:
            self._memory = _zeros(parts[0], self._part, self._count * size)
            starts = range(0, self._count * size, size)
            self._loaded = [_rows_of(self._memory, slice(start, start + size)) for start in starts]
        for memory, part in zip(self._loaded, parts, strict=True):
            pairs = [*zip(memory.tensors, part.tensors, strict=True)]
            if any(there.shape != here.shape for there, here in pairs):
                raise InputError(f"all batches must have one shape but got {part} after {memory}")
            for there, here in pairs:
                there.copy_(here)


def evaluation_batches(part: Part, *, size: int, device: torch.device, dtype: torch.dtype) -> Iterator[Part]:
    """Yields all samples of a part once, in their order, on the device."""
    if part.source is not None:
        sample = part.to(device, dtype)
        for batch in whole(part.source, size=size, device=device):
            yield _copied(batch, sample)
        return
    weights = iter(()) if part.weights is None else iter(torch.split(part.weights, size))
    for inputs, targets in zip(pieces(part.inputs, size), torch.split(part.targets, size), strict=True):
        yield Part(inputs, targets, next(weights, None))


def _zeros(part: Part, sample: Part, rows: int) -> Part:
    """Returns a part of zeros in the shapes of a batch, with that number of rows, and the dtypes of the sample."""
    zeros = [
        torch.zeros(rows, *own.shape[1:], dtype=like.dtype, device=like.device)
        for own, like in zip(part.tensors, sample.tensors, strict=True)
    ]
    return _with_tensors(part, zeros)


def _copied(part: Part, sample: Part) -> Part:
    """Returns a copy on the device and in the dtypes of the sample.

    A model may change its inputs, but the batch may be used again. Bytes become floats here if the model takes these.
    """
    pairs = zip(part.tensors, sample.tensors, strict=True)
    return _with_tensors(part, [own.to(like.device, like.dtype, copy=True) for own, like in pairs])


def _with_tensors(part: Part, values: Sequence[Tensor]) -> Part:
    """Returns a part of the same form with other tensors."""
    found = iter(values)
    inputs = map_tensors(lambda _: next(found), part.inputs)
    return Part(inputs, next(found), next(found, None))


def _rows_of(part: Part, own: slice) -> Part:
    """Returns some rows in the memory that they are in."""
    weights = None if part.weights is None else part.weights[own]
    return Part(map_tensors(lambda tensor: tensor[own], part.inputs), part.targets[own], weights)
