"""Sources of batches for data that are not held in memory: each batch is a function of seed, purpose and step.

A source says in the main process what a batch consists of (`request`), and reads it there or in a worker process
(`read`). What an item draws at random follows from seed, purpose, epoch and item alone, so neither the number of
workers nor an interruption changes a batch.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from evomal.errors import InputError
from evomal.randomness import derived_seed
from evomal.tasks.draws import Draws
from evomal.tasks.items import Columns, batch_part, stacked_items
from evomal.tasks.parts import Batches, Part
from evomal.text import plural
from evomal.users_code import users_code

Request = Any
"""What `read` needs to know about one batch; it is sent to worker processes."""
WHOLE = "whole"
"""The purpose of a pass over all samples in their order, as evaluations make it."""
MOST_OPEN = 16
"""The most streams of one source that are kept open."""
MOST_UNCOUNTED = 10_000
"""The most batches of a loader without a length: a loader with more is taken to be endless."""
_MOST_WORKERS = 64
_BITS = 2**64 - 1


class Source(ABC):
    """Where the batches of a part come from.

    Args:
        place: What the data are called in errors: "training", "validation" or "test".
        workers: Worker processes that read ahead; None: chosen by rule.
    """

    rows: int | None = None
    """Number of samples, where it is known."""
    batch_size: int | None = None
    """Samples in a batch where the source decides it; None: the recipe does."""
    is_varying = False
    """Whether batches may differ in shape, so that a step cannot be captured as a CUDA graph."""
    is_in_memory = False
    """Whether the batches are held in memory, and only their shapes vary."""
    has_end = True
    """Whether a pass over all samples is known to end."""
    most_workers = _MOST_WORKERS
    """The number of processes that can share the reading."""
    start_worker: Callable[[int], None] | None = None
    """Called in each worker process with its number."""

    def __init__(self, place: str, *, workers: int | None = None) -> None:
        self.place, self.workers = place, workers
        self.fitted: Callable[[Part], Part] = _unchanged
        """Applied to every batch that is read: conversions and checks of the task."""
        self.reader: Any = None
        """What reads ahead in this process (see `evomal.tasks.prefetching`); never copied to another one."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "reader": None}

    @abstractmethod
    def request(self, seed: int, purpose: str, step: int, size: int) -> Request:
        """Returns what to read for the batch of a step."""

    @abstractmethod
    def whole(self, size: int) -> Iterator[Request]:
        """Yields what to read for all samples once, in their order, the same at every call."""

    @abstractmethod
    def read(self, request: Request) -> Part:
        """Returns a batch as it was given. It seeds the global generators: use it in `preserved_globals`."""

    def part(self, request: Request) -> Part:
        """Returns a batch, converted and checked. It seeds the global generators, too."""
        return self.fitted(self.read(request))


class DatasetSource(Source):
    """Items of a map-style dataset, in a new order every epoch, each drawn anew."""

    def __init__(self, dataset: Any, place: str, *, columns: Columns | None = None, workers: int | None = None) -> None:
        super().__init__(place, workers=workers)
        self._dataset, self.columns = dataset, columns or Columns()
        self.rows = dataset_length(dataset, place)
        self._orders = _Orders(self.rows)
        self.gives_batches = hasattr(dataset, "__getitems__")
        """Whether the dataset has a method to read several items at once, as torch and Hugging Face call it."""
        self.is_read_in_batches = False
        """Whether `WHOLE` passes read several items at once: only if items draw nothing, as they share one seed."""

    @functools.cached_property
    def _draws(self) -> Draws:
        return Draws(self._dataset)

    def __getstate__(self) -> dict[str, Any]:
        # Generators are those of the dataset's copy, which the other process looks up for itself.
        return {name: value for name, value in super().__getstate__().items() if name != "_draws"}

    def request(self, seed: int, purpose: str, step: int, size: int) -> Request:
        batches = self._orders.of(seed, purpose, size)
        first = step * batches.size
        epochs = [position // batches.rows for position in range(first, first + batches.size)]
        return seed, purpose, [*zip(epochs, batches[step].tolist(), strict=True)]

    def whole(self, size: int) -> Iterator[Request]:
        assert self.rows is not None
        for start in range(0, self.rows, size):
            yield 0, WHOLE, [(0, index) for index in range(start, min(start + size, self.rows))]

    def read(self, request: Request) -> Part:
        seed, purpose, keys = request
        places = [f"item {index} of the {self.place} dataset" for _, index in keys]
        if purpose == WHOLE and self.is_read_in_batches:
            items = self._items([index for _, index in keys])
        else:
            items = [self.item(index, item_seed(seed, purpose, epoch, index)) for epoch, index in keys]
        return stacked_items(items, self.columns, places)

    def _items(self, indices: list[int]) -> list[Any]:
        """Returns several items at once."""
        self.seed(item_seed(0, WHOLE, 0, indices[0]))
        with users_code(f"items {indices[0]} to {indices[-1]} of the {self.place} dataset"):
            found = list(self._dataset.__getitems__(indices))
        if len(found) != len(indices):
            raise InputError(
                f"__getitems__ of the {self.place} dataset must return an item for each of "
                f"{plural(len(indices), 'number')} but returned {len(found)}"
            )
        return found

    def seed(self, seed: int) -> None:
        """Seed everything that an item may draw from."""
        self._draws.seed(seed)

    def item(self, index: int, seed: int) -> Any:
        """Returns an item as the dataset gives it after all generators are seeded."""
        self.seed(seed)
        with users_code(f"item {index} of the {self.place} dataset"):
            return self._dataset[index]


class ArraySource(Source):
    """Rows of arrays that are read when they are needed, such as memory-mapped ones.

    Args:
        inputs: The inputs, with a row for each sample.
        targets: The targets, with a row for each sample.
        place: What the data are called in errors.
        workers: Worker processes that read ahead; None: chosen by rule.
    """

    def __init__(self, inputs: Any, targets: Any, place: str, *, workers: int | None = None) -> None:
        super().__init__(place, workers=workers)
        for what, array in (("inputs", inputs), ("targets", targets)):
            if not hasattr(array, "shape") or not len(array.shape):
                raise InputError(f"the {place} {what} must be an array with a row for each sample")
        dataset_length(inputs, place)
        if len(inputs) != len(targets):
            raise InputError(
                f"the {place} data must have a target for each input but got {len(inputs)} and {len(targets)}"
            )
        self._inputs, self._targets = inputs, targets
        self.rows = len(inputs)
        self._orders = _Orders(self.rows)

    def __getstate__(self) -> dict[str, Any]:
        arrays = {name: _named_file(getattr(self, name)) for name in ("_inputs", "_targets")}
        return super().__getstate__() | arrays

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in ("_inputs", "_targets"):
            if isinstance(state[name], _File):
                setattr(self, name, state[name].opened())

    def request(self, seed: int, purpose: str, step: int, size: int) -> Request:
        return self._orders.of(seed, purpose, size)[step].numpy()

    def whole(self, size: int) -> Iterator[Request]:
        assert self.rows is not None
        for start in range(0, self.rows, size):
            yield np.arange(start, min(start + size, self.rows))

    def read(self, request: Request) -> Part:
        order = np.argsort(request, kind="stable")  # rows that lie together on the disk are read together
        back = np.argsort(order, kind="stable")
        inputs, targets = (np.asarray(array[request[order]])[back] for array in (self._inputs, self._targets))
        return batch_part((inputs, targets), Columns(), f"a batch of the {self.place} arrays")


class PiecesSource(Source):
    """Batches of differing shapes that are held in memory."""

    is_varying = is_in_memory = True
    most_workers = 0

    def __init__(self, pieces: Sequence[Part], place: str) -> None:
        super().__init__(place)
        self._pieces = list(pieces)
        self.rows = sum(map(len, self._pieces))
        self._orders = _Orders(len(self._pieces))

    def request(self, seed: int, purpose: str, step: int, size: int) -> Request:
        return int(self._orders.of(seed, purpose, 1)[step])

    def whole(self, size: int) -> Iterator[Request]:
        yield from range(len(self._pieces))

    def read(self, request: Request) -> Part:
        return self._pieces[request]


class _Orders:
    """The orders of rows of the most recently used streams."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._kept: dict[tuple[int, str, int], Batches] = {}

    def of(self, seed: int, purpose: str, size: int) -> Batches:
        """Returns the batches of rows of a seed and purpose."""
        key = seed, purpose, size
        batches = self._kept.pop(key, None) or Batches(self._rows, size, seed=seed, purpose=purpose)
        self._kept[key] = batches
        while len(self._kept) > MOST_OPEN:
            self._kept.pop(next(iter(self._kept)))
        return batches

    def __getstate__(self) -> dict[str, Any]:
        return {"_rows": self._rows, "_kept": {}}


class _File:
    """A memory-mapped array by its file, so that another process opens the file instead of being sent its content."""

    def __init__(self, array: np.memmap[Any, Any]) -> None:
        self._array = {
            "filename": array.filename, "dtype": array.dtype, "mode": "r", "offset": array.offset, "shape": array.shape,
            "order": "C" if array.flags.c_contiguous else "F",
        }  # fmt: skip

    def opened(self) -> np.memmap[Any, Any]:
        """Returns the array."""
        return np.memmap(**self._array)


def _named_file(array: Any) -> Any:
    # A view of a memory-mapped array keeps the file's name, but not its own place in the file.
    is_whole = isinstance(array, np.memmap) and not isinstance(array.base, np.ndarray) and array.filename is not None
    return _File(array) if is_whole else array


def item_seed(seed: int, purpose: str, epoch: int, index: int) -> int:
    """Returns the seed of an item's draws in an epoch: mixed by splitmix64, which is faster than hashing."""
    mixed = (_epoch_seed(seed, purpose, epoch) + (index + 1) * 0x9E3779B97F4A7C15) & _BITS
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _BITS
    return (mixed ^ (mixed >> 31)) >> 1


@functools.lru_cache(maxsize=64)
def _epoch_seed(seed: int, purpose: str, epoch: int) -> int:
    return derived_seed(seed, "item", purpose, epoch)


def dataset_length(dataset: Any, place: str) -> int:
    """Returns the number of items of a map-style dataset, or raises."""
    with users_code(f"the {place} dataset"):
        length = len(dataset) if hasattr(dataset, "__len__") else 0
    if length == 0:
        raise InputError(f"the {place} dataset must have a length of at least 1")
    return int(length)


def _unchanged(part: Part) -> Part:
    return part
