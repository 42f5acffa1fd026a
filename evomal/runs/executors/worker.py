"""What all workers must agree on, as their numbers could differ otherwise."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from evomal.errors import EvomalError, InputError
from evomal.runs.canonical import versions
from evomal.runs.executors.local import is_out_of_memory
from evomal.runs.executors.shipping import unpacked
from evomal.text import one_line, short_repr


def differing(found: Any, expected: Any, path: str = "") -> str | None:
    """The first value inside the one that is another inside the other: its name and both."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        pairs = [(str(key), found.get(key), expected.get(key)) for key in {**expected, **found}]
    elif isinstance(found, list | tuple) and isinstance(expected, list | tuple) and len(found) == len(expected):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(found, expected, strict=True))]
    else:
        return None if found == expected else f"{path} {short_repr(found)} and not {short_repr(expected)}"
    inner = (differing(theirs, ours, f"{path}.{name}" if path else name) for name, theirs, ours in pairs)
    return next((text for text in inner if text is not None), None)


TOO_SMALL = "its worker ran out of memory"


def reason_of(error: Exception) -> str:
    """Why a worker was lost, in the words of a record: no numbers of processes, which differ from run to run."""
    text = f"{type(error).__name__} {error}"
    if "OutOfMemory" in text or "running low on memory" in text:
        return TOO_SMALL
    if "NodeDied" in text or "node has died" in text or "node was terminated" in text:
        return "its worker's machine was lost"
    return "its worker died"


class Ability(Protocol):
    """What a worker can do once it has built what it needs."""

    def about(self) -> dict[str, Any]:
        """What all workers must agree on."""

    def work(self, order: Any) -> list[Any]:
        """A result for each row of the order."""


@dataclass(frozen=True)
class Answer:
    """A worker's answer: a value, or an error that is nobody's defect, which its driver raises again."""

    value: Any = None
    error: str | None = None
    is_input_error: bool = False
    is_out_of_memory: bool = False
    """Whether there is no value because memory was short, which it may not be in another process."""

    def opened(self) -> Any:
        """The value, or the error raised."""
        if self.error is not None:
            raise (InputError if self.is_input_error else EvomalError)(self.error)
        return self.value


class Worker:
    """Holds one ability at a time, and what it was made of, as far as that is data worth keeping."""

    def __init__(self, threads: int, folders: Sequence[str]) -> None:
        torch.set_num_threads(threads)
        sys.path += [folder for folder in folders if folder not in sys.path and os.path.isdir(folder)]
        self._shared: tuple[str, Any] = ("", None)
        self._ability: Ability | None = None

    def begin(self, make: bytes, name: str, shared: Any) -> Answer:
        """Build the ability that `make` describes from what all workers share, and say what it is."""
        self._ability = None  # its memory is needed before
        try:
            if self._shared[0] != name:
                self._shared = ("", None)
                self._shared = (name, unpacked(shared))
            self._ability = unpacked(make)(self._shared[1])
            assert self._ability is not None
            return Answer(
                {
                    "about": self._ability.about(),
                    "versions": versions(),
                    "device": _device(),
                    "machine": socket.gethostname(),
                }
            )
        except Exception as error:  # a user's code may raise anything, and may miss what is not installed here
            if is_out_of_memory(error):
                return Answer(is_out_of_memory=True)
            if isinstance(error, EvomalError):
                return _refused(error)
            return Answer(error=f"a worker could not begin: {type(error).__name__}: {one_line(error)}")

    def work(self, order: bytes) -> Answer:
        """Results of a piece."""
        assert self._ability is not None
        try:
            return Answer(self._ability.work(unpacked(order)))
        except (MemoryError, RuntimeError, EvomalError) as error:
            if is_out_of_memory(error):
                return Answer(is_out_of_memory=True)
            if isinstance(error, EvomalError):
                return _refused(error)
            raise  # a defect, which must be seen


def _refused(error: EvomalError) -> Answer:
    return Answer(error=str(error), is_input_error=isinstance(error, InputError))


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
