"""Batches of a source read ahead in worker processes, so that a device does not wait for them."""

import copy
import functools
import itertools
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from evomal.errors import EvomalError
from evomal.randomness import preserved_globals
from evomal.tasks.parts import PackedPart, Part
from evomal.tasks.sources import Request, Source
from evomal.threads import processors
from evomal.users_code import users_code

_KEPT_BYTES = 2**30  # on the device; batches in pinned memory are not kept, as that memory is used again
_AHEAD = 2  # batches that each worker reads ahead
_MOST_WORKERS = 12  # that are started unless the user asks for more


class Stream:
    """The batches of some seeds and purposes, step after step.

    Batches that are asked for in order are read ahead. Any other step may be asked for, too, and reading then restarts
    there. Streams of one source share its worker processes, so that one of them reads ahead at a time. Batches are kept
    while there is room, as all candidates of a search are trained on the same ones; they must not be changed.

    Args:
        source: Where the batches come from.
        keys: A seed and a purpose for each batch of a step.
        size: Samples in a batch, where the recipe decides it.
        device: Where the batches are used. CUDA copies them from pinned memory while it computes.
    """

    def __init__(self, source: Source, keys: Sequence[tuple[int, str]], *, size: int, device: torch.device) -> None:
        self._source, self._keys, self._size, self._device = source, list(keys), size, device
        self._token = object()
        self._next: int | None = None

    def at(self, step: int) -> list[Part]:
        """Returns the batches of a step, one for each key, on the device."""
        reader = _reader(self._source, self._device)
        streams = [(seed, purpose, self._size) for seed, purpose in self._keys]
        kept = [reader.kept.batch(stream, step) for stream in streams]
        if all(part is not None for part in kept):
            return [part for part in kept if part is not None]
        if reader.owner is not self._token or self._next != step:
            reader.begin(self._token, _requests(reader.source, self._keys, self._size, step))
        self._next = step + 1
        found = [next(reader) for _ in self._keys]
        for stream, part in zip(streams, found, strict=True):
            reader.kept.keep(stream, step, part)
        return found


def _requests(source: Source, keys: Sequence[tuple[int, str]], size: int, first: int) -> Iterator[Request]:
    for step in itertools.count(first):
        for seed, purpose in keys:
            yield source.request(seed, purpose, step, size)


def whole(source: Source, *, size: int, device: torch.device) -> Iterator[Part]:
    """Yields all samples of a source once, in batches, in their order."""
    reader = _reader(source, device)
    reader.begin(object(), reader.source.whole(size))
    yield from reader


class _KeptBatches:
    """Batches of the most recently used streams, as many as there is room for."""

    def __init__(self) -> None:
        self._streams: dict[tuple[int, str, int], dict[int, Part]] = {}
        self._bytes = 0

    def batch(self, stream: tuple[int, str, int], step: int) -> Part | None:
        """Returns the batch of a step if it was kept."""
        if stream not in self._streams:
            return None
        self._streams[stream] = batches = self._streams.pop(stream)  # at the end: the least recently used one is first
        return batches.get(step)

    def keep(self, stream: tuple[int, str, int], step: int, part: Part) -> None:
        """Keep a batch; those of the least recently used streams make room for it, but none of its own stream."""
        own = self._streams.setdefault(stream, {})
        while self._bytes + part.bytes > _KEPT_BYTES and next(iter(self._streams)) != stream:
            self._bytes -= sum(other.bytes for other in self._streams.pop(next(iter(self._streams))).values())
        if self._bytes + part.bytes <= _KEPT_BYTES and step not in own:
            own[step] = part
            self._bytes += part.bytes


@dataclass(frozen=True)
class _Failure:
    """An error in a worker process: its sentence, without the traces of the process."""

    kind: type[EvomalError]
    sentence: str


class _Requested(Dataset[Any]):
    """What a worker process reads: a batch for each request."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitem__(self, request: Request) -> PackedPart | _Failure | None:
        try:
            return PackedPart.of(self._source.part(request))
        except StopIteration:
            return None
        except EvomalError as error:
            return _Failure(type(error), str(error))


class _Requests:
    """The requests that the workers are given, which are replaced when reading starts anew."""

    def __init__(self) -> None:
        self.current: Iterator[Request] = iter(())

    def __iter__(self) -> Iterator[Request]:
        return self.current


class _Reader:
    """Reads batches of one source to a device, in worker processes or, without workers, when asked."""

    def __init__(self, source: Source, *, workers: int, device: torch.device) -> None:
        # A copy, so that source and reader do not refer to each other: workers must end as soon as nobody needs them.
        # If they waited for the garbage collector, forked processes might collect their handles.
        self.source = copy.copy(source)
        self.device, self.workers = device, workers
        self.kept = _KeptBatches()
        self._requests = _Requests()
        self.owner: object = None
        """The stream that reading ahead is for."""
        self._batches: Iterator[Any] = iter(())
        self._loader: DataLoader[Any] | None = None
        if workers:
            with warnings.catch_warnings():
                # More workers than processors are the user's choice.
                warnings.filterwarnings("ignore", "This DataLoader will create")
                self._loader = DataLoader(
                    _Requested(self.source), batch_size=None, sampler=self._requests, num_workers=workers,
                    prefetch_factor=_AHEAD, persistent_workers=True, collate_fn=_as_it_is,
                    pin_memory=device.type == "cuda",
                    worker_init_fn=functools.partial(_start_worker, source.start_worker),
                    # A loader draws a seed for its workers, which must not come from the caller's generator.
                    generator=torch.Generator(), multiprocessing_context="fork" if sys.platform == "linux" else None,
                )  # fmt: skip

    def begin(self, owner: object, requests: Iterator[Request]) -> None:
        """Read these requests from now on."""
        self.owner, self._requests.current = owner, requests
        if self._loader is not None:
            with users_code(f"a process that reads the {self.source.place} data"), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "This DataLoader will create")
                self._batches = iter(self._loader)

    def __iter__(self) -> Iterator[Part]:
        return self

    def __next__(self) -> Part:
        if self._loader is None:
            request = next(self._requests.current)
            with preserved_globals():
                part = self.source.part(request)
            return PackedPart.of(part).pin_memory().copied(self.device) if self.device.type == "cuda" else part
        with users_code(f"a process that reads the {self.source.place} data"):
            found = next(self._batches, None)
        if isinstance(found, _Failure):
            raise found.kind(found.sentence)
        if found is None:
            raise StopIteration
        assert isinstance(found, PackedPart)
        return found.copied(self.device)


def _reader(source: Source, device: torch.device) -> _Reader:
    """Returns the reader of a source, which is kept so that worker processes are started once."""
    workers = worker_count(source, device)
    kept = source.reader
    if not isinstance(kept, _Reader) or (kept.workers, kept.device) != (workers, device):
        source.reader = kept = _Reader(source, workers=workers, device=device)
    return kept


def worker_count(source: Source, device: torch.device) -> int:
    """Returns the number of processes that read a source: those asked for, else several for CUDA and none for a CPU.

    The number does not change any batch. By default no process is started where it would have to import the user's
    script, as on macOS; none is ever started by a process that may not start any.
    """
    if multiprocessing.current_process().daemon:
        return 0
    wanted = source.workers
    if wanted is None:
        is_useful = device.type == "cuda" and sys.platform == "linux"
        wanted = min(_MOST_WORKERS, max(1, processors() - 1)) if is_useful else 0
    return min(wanted, source.most_workers)


def _start_worker(users_own: Callable[[int], None] | None, number: int) -> None:
    # An interruption is meant for the main process, which may still finish what it does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if users_own is not None:
        users_own(number)


def _as_it_is(batch: Any) -> Any:
    return batch
