"""The process of a worker: it builds a job runner and runs jobs with it."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from evomal.engine.device_memory import device_error, is_out_of_memory, share_gpu
from evomal.errors import EvomalError
from evomal.runs.canonical import versions
from evomal.runs.executors.jobs import JobRunner
from evomal.runs.executors.pickling import unpickle
from evomal.text import one_line, short_repr


class Worker:
    """Has one job runner at a time, and keeps the data that it was built from for the next one.

    `sharing`: how many such processes use the same GPU.
    """

    def __init__(self, threads: int, folders: Sequence[str], *, sharing: int = 1) -> None:
        torch.set_num_threads(threads)
        share_gpu(sharing)
        sys.path += [folder for folder in folders if folder not in sys.path and os.path.isdir(folder)]
        self._data: dict[int, Any] = {}
        self._runner: JobRunner | None = None

    def prepare(self, build: bytes, keys: Sequence[int], *data: Any) -> dict[str, Any]:
        """Build a job runner from pickled data; the keys say which data the worker has already."""
        self._runner = None  # frees its memory for the next one
        self._data = {key: value for key, value in self._data.items() if key in keys}
        try:
            for key, content in zip(keys, data, strict=True):
                if key not in self._data:
                    self._data[key] = unpickle(content)
            self._runner = unpickle(build)(*(self._data[key] for key in keys))
            assert self._runner is not None
            description = self._runner.describe()
        except (
            Exception
        ) as error:  # the user's code may raise anything, even an error that other processes cannot unpickle
            _raise_if_lost(error)
            if isinstance(error, EvomalError):
                raise
            raise EvomalError(f"a worker cannot start: {type(error).__name__}: {one_line(error)}") from None
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        return {
            "description": description, "versions": versions(), "device": device, "machine": socket.gethostname()
        }  # fmt: skip

    def run(self, jobs: bytes) -> list[Any]:
        """The results of pickled jobs."""
        assert self._runner is not None
        try:
            return self._runner.run(unpickle(jobs))
        except (MemoryError, RuntimeError, EvomalError) as error:
            _raise_if_lost(error)
            raise


def _raise_if_lost(error: Exception) -> None:
    """Raise MemoryError or DeviceError, by which the pool knows that the process is lost, if the error means that."""
    if is_out_of_memory(error):
        raise MemoryError from None
    if (failure := device_error(error)) is not None:
        raise failure from None


def difference(found: Any, expected: Any, path: str = "") -> str | None:
    """The first place at which two nested values differ, with both values; None if they are equal."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        pairs = [(str(key), found.get(key), expected.get(key)) for key in {**expected, **found}]
    elif isinstance(found, list | tuple) and isinstance(expected, list | tuple) and len(found) == len(expected):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(found, expected, strict=True))]
    else:
        return None if found == expected else f"{path} {short_repr(found)} instead of {short_repr(expected)}"
    inner = (difference(theirs, ours, f"{path}.{name}" if path else name) for name, theirs, ours in pairs)
    return next((text for text in inner if text is not None), None)
