"""Sources of batches from torch DataLoaders, and from functions that make batches from a seed."""

import copy
import functools
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, cast

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from evomal.errors import InputError
from evomal.randomness import GlobalStates, derived_seed, preserved_globals
from evomal.tasks.draws import Draws
from evomal.tasks.items import Columns, batch_part
from evomal.tasks.parts import Part
from evomal.tasks.sources import MOST_OPEN, MOST_UNCOUNTED, WHOLE, Request, Source, dataset_length, item_seed
from evomal.text import with_article
from evomal.users_code import users_code

OpenBatches = Callable[[int], Iterable[Any]]
"""From a seed to the batches of one epoch."""


class LoaderSource(Source):
    """Batches of a torch DataLoader of a map-style dataset: its sampler, its dataset and its collate function.

    The order of an epoch is what the loader's sampler draws from a seed of that epoch.
    """

    def __init__(
        self, loader: DataLoader[Any], place: str, *, columns: Columns | None = None, workers: int | None = None
    ) -> None:
        super().__init__(place, workers=loader.num_workers if workers is None else workers)
        self._loader, self._columns = loader, columns or Columns()
        self.start_worker = loader.worker_init_fn
        with users_code(f"the {place} loader"):
            self.rows = dataset_length(loader.dataset, place)
        self.is_varying = not _has_equal_batches(loader)
        self._sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        self._epoch = functools.lru_cache(maxsize=MOST_OPEN)(self._drawn_epoch)
        self._counts: dict[tuple[int, str], list[int]] = {}

    @functools.cached_property
    def _draws(self) -> Draws:
        return Draws(self._loader.dataset, self._loader.collate_fn)

    def __getstate__(self) -> dict[str, Any]:
        dropped = ("_draws", "_epoch")
        return {name: value for name, value in super().__getstate__().items() if name not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._epoch = functools.lru_cache(maxsize=MOST_OPEN)(self._drawn_epoch)

    def request(self, seed: int, purpose: str, step: int, size: int) -> Request:
        counts = self._counts.setdefault((seed, purpose), [])
        # Samplers that make buckets may give another number of batches in every epoch.
        for epoch in itertools.count():
            if epoch == len(counts):
                counts.append(len(self._epoch(seed, purpose, epoch)))
            if step < counts[epoch]:
                return seed, purpose, epoch, self._epoch(seed, purpose, epoch)[step]
            step -= counts[epoch]
        raise AssertionError

    def whole(self, size: int) -> Iterator[Request]:
        yield from ((0, WHOLE, 0, indices) for indices in self._epoch(0, WHOLE, 0))

    def _drawn_epoch(self, seed: int, purpose: str, epoch: int) -> Sequence[Any]:
        """Returns the indices of each batch of an epoch."""
        with preserved_globals(), users_code(f"the sampler of the {self.place} loader"):
            Draws(self._sampler, self._loader.generator).seed(derived_seed(seed, "order", purpose, epoch))
            most = None if _has_length(self._sampler) else max(MOST_UNCOUNTED, self.rows or 0)
            batches = iter(cast(Iterable[Any], self._sampler))
            found = [_packed(batch) for batch in itertools.islice(batches, most)]
            is_endless = len(found) == most and next(batches, None) is not None
        if is_endless:
            raise InputError(
                f"the sampler of the {self.place} loader must end, but gave more than {most:,} batches: one pass over "
                "it is an epoch, and epochs follow each other by themselves"
            )
        if not found:
            raise InputError(f"the {self.place} loader must give at least one batch but gave none")
        packed: Sequence[Any] = _packed(found)
        return packed

    def read(self, request: Request) -> Part:
        seed, purpose, epoch, chosen = request
        loader, items = self._loader, []
        if loader.batch_sampler is not None:
            indices = chosen
        else:  # the sampler's own index, which may be a list of numbers
            indices = [chosen.tolist() if isinstance(chosen, array) else chosen]
        for index in indices:
            self._draws.seed(item_seed(seed, purpose, epoch, _number(index)))
            with users_code(f"item {index} of the {self.place} dataset"):
                items.append(loader.dataset[index])
        # A collate function may draw, too: masked words, mixed images.
        self._draws.seed(derived_seed(seed, "collate", purpose, epoch, *map(_number, indices)))
        with users_code(f"the collate function of the {self.place} loader"):
            batch = loader.collate_fn(items if loader.batch_sampler is not None else items[0])
        return batch_part(batch, self._columns, f"a batch of the {self.place} loader")


class IterableSource(Source):
    """Batches of an iterable that is opened anew for every epoch with a seed of its own.

    A batch can only be reached through those before it, so one process reads, and to resume at a step means to read and
    drop the batches before it.

    Args:
        open_epoch: From a seed to the batches of one epoch.
        place: What the data are called in errors.
        columns: Which columns of batches that are mappings are target and inputs.
        workers: 0 to read in the main process; else one process reads ahead.
    """

    is_varying = True
    most_workers = 1

    def __init__(
        self, open_epoch: OpenBatches, place: str, *, columns: Columns | None = None, workers: int | None = None
    ) -> None:
        super().__init__(place, workers=workers)
        self._open_epoch, self._columns = open_epoch, columns or Columns()
        self._open: dict[tuple[int, str], _OpenStream] = {}
        with users_code(f"the {place} batches"):
            loader = open_epoch(0)
        if isinstance(loader, DataLoader) and loader.num_workers:
            self.most_workers = 0  # it reads ahead by itself, and worker processes may not start further ones
        self.has_end = _has_length(loader)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_open": {}}

    def request(self, seed: int, purpose: str, step: int, size: int) -> Request:
        return seed, purpose, step

    def whole(self, size: int) -> Iterator[Request]:
        """Yields requests without an end: `read` raises StopIteration after the last batch of the epoch."""
        yield from ((0, WHOLE, step) for step in itertools.count())

    def read(self, request: Request) -> Part:
        seed, purpose, step = request
        stream = self._open.pop((seed, purpose), None)
        if stream is None or stream.step > step:
            stream = _OpenStream(self._open_epoch, self.place, seed, purpose)
        self._open[seed, purpose] = stream  # at the end, so that the first one is the least recently used
        while len(self._open) > MOST_OPEN:
            self._open.pop(next(iter(self._open)))
        while stream.step < step:
            next(stream)
        return batch_part(next(stream), self._columns, f"batch {step} of the {self.place} batches")


class _OpenStream:
    """The batches of one seed and purpose, epoch after epoch, with a random state of their own."""

    def __init__(self, open_epoch: OpenBatches, place: str, seed: int, purpose: str) -> None:
        self._open_epoch, self._place, self._seed, self._purpose = open_epoch, place, seed, purpose
        self._epoch = 0
        self.step = 0
        """The number of the next batch."""
        self._begin()

    def _begin(self) -> None:
        start = derived_seed(self._seed, "epoch", self._purpose, self._epoch)
        with users_code(f"the {self._place} batches"):
            self._draws = Draws(self._open_epoch)
            self._draws.seed(start)
            self._batches = iter(self._open_epoch(start))
        self._states, self._own_states = GlobalStates.now(), self._draws.states()
        self._is_empty = True

    def __next__(self) -> Any:
        while True:
            self._states.restore()
            self._draws.restore(self._own_states)  # another stream of the same dataset may have drawn from them
            with users_code(f"batch {self.step} of the {self._place} batches"):
                batch = next(self._batches, None)
            self._states, self._own_states = GlobalStates.now(), self._draws.states()
            if batch is not None:
                self.step, self._is_empty = self.step + 1, False
                return batch
            if self._purpose == WHOLE:
                raise StopIteration
            if self._is_empty:
                raise InputError(f"the {self._place} batches must not be empty, but epoch {self._epoch} has none")
            self._epoch += 1
            self._begin()


def loader_source(loader: Any, place: str, *, columns: Columns | None = None, workers: int | None = None) -> Source:
    """Returns the source for what a user gave as loader: a DataLoader, or a function from a seed to batches."""
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        return LoaderSource(loader, place, columns=columns, workers=workers)
    if isinstance(loader, DataLoader):
        return IterableSource(functools.partial(_seeded_loader, loader), place, columns=columns, workers=workers)
    if callable(loader):
        return IterableSource(loader, place, columns=columns, workers=workers)
    raise InputError(
        f"the {place} loader must be a torch DataLoader, or a function from a seed to batches, "
        f"but is {with_article(type(loader).__name__)}: lambda seed: …"
    )


def _seeded_loader(loader: DataLoader[Any], seed: int) -> DataLoader[Any]:
    """Returns the loader with workers that are seeded with that number."""
    own = copy.copy(loader)
    own._iterator = None
    own.generator = torch.Generator().manual_seed(seed)
    return own


def _has_equal_batches(loader: DataLoader[Any]) -> bool:
    """Whether all batches of a loader have one shape: torch's own batches and collation, and no smaller last batch."""
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler or loader.collate_fn is not default_collate:
        return False
    if type(batches.sampler) not in (RandomSampler, SequentialSampler):
        return batches.drop_last
    return batches.drop_last or len(cast(Sized, batches.sampler)) % batches.batch_size == 0


def _packed(indices: Any) -> Any:
    """Returns a list of whole numbers in a fifth of the memory, since 16 epochs are kept; anything else as it is."""
    if isinstance(indices, list) and all(type(index) is int and abs(index) < 2**63 for index in indices):
        return array("q", indices)
    return indices


def _has_length(batches: Any) -> bool:
    """Whether batches say how many they are; a DataLoader does not if its dataset does not."""
    try:
        len(batches)
    except Exception:  # a user's object may raise anything
        return False
    return True


def _number(index: Any) -> int:
    """Returns a number for an index of a sampler, which may be a text or a tuple."""
    return int(index) if hasattr(index, "__int__") else derived_seed(0, "index", repr(index))
