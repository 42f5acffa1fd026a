"""One reader of run folders: a run as its record tells it, or one sentence why that cannot be understood."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import Candidate
from evomal.runs.finals import Final, recorded_final, rivals_of
from evomal.runs.lock import is_held
from evomal.runs.store import RECORD_NAME, Forced, RunStore
from evomal.text import one_line

_OBJECTS = ("task", "versions", "settings", "budgets", "workplace")
_DEEPEST = 20  # objects and lists within each other
_LARGEST = 10**100  # beyond every seed and count, and within the range of a float


class RunState(StrEnum):
    """How a run stands."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    RUNNING = "running"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class RecordedRun:
    """All that the record of a run says; times are in UTC."""

    folder: Path
    state: RunState
    settings: Mapping[str, Any]
    created: str
    written: str | None
    """When the last candidates were recorded; None where there are none yet."""
    candidates: tuple[Candidate, ...]
    ending: str | None
    """Why the run is complete; None where it is not."""
    forced: tuple[Forced, ...]
    rivals: Mapping[str, float]
    """Fitness of the baseline and the known losses, one training each; empty where none are recorded."""
    final: Final | None
    """The best candidates and the rivals trained with fresh seeds; None where there is no complete final."""


def read_run(folder: str | os.PathLike[str]) -> RecordedRun:
    """Read the record of a run, whoever wrote it.

    A record may be damaged, or be made by somebody who knows how evomal computes its checksums. Whoever looks at runs
    reads them here, so that a record which makes no sense is one sentence and never an error further on.

    Args:
        folder: The folder of the run.

    Returns:
        The run. The parts of its settings are objects, with numbers of a sensible size. Its genomes are texts, which
        `genome_from` may refuse: a newer evomal can have operators that this one does not know.

    Raises:
        InputError: The record is damaged, is not evomal's, or holds something that evomal does not write.
        EvomalError: The record cannot be read at the moment.

    Example:
        >>> read_run("runs/diabetes-evomal-0").state  # doctest: +SKIP
        <RunState.COMPLETE: 'complete'>
    """
    path = Path(folder) / RECORD_NAME
    try:
        return _read(Path(folder))
    except _SenselessError as error:
        raise InputError(f"{path}: is damaged ({error})") from None
    except EvomalError:
        raise
    except Exception as error:  # a forged record can lead anywhere, and may not hide the others
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(f"{path}: cannot be understood ({reason})") from None


class _SenselessError(InputError):
    """Something that evomal does not write; the text says what, but not yet in which record."""


def _read(folder: Path) -> RecordedRun:
    with RunStore.read(folder) as store, store.snapshot():
        settings, created, ending, forced = store.settings, store.created, store.ending, store.forced
        candidates, chunks, trials = store.candidates(), store.complete_chunks(), store.trials()
    _require_sense(settings)
    unfinished = RunState.RUNNING if is_held(folder) else RunState.INTERRUPTED
    return RecordedRun(
        folder=folder,
        state=RunState.COMPLETE if ending is not None else unfinished,
        settings=settings,
        created=created,
        written=chunks[-1].written if chunks else None,
        candidates=candidates,
        ending=ending,
        forced=forced,
        rivals=rivals_of(trials),
        final=recorded_final(settings, candidates, trials),
    )


def _require_sense(settings: Mapping[str, Any]) -> None:
    for key in _OBJECTS:
        value = settings.get(key, {})
        if not isinstance(value, Mapping):
            raise _SenselessError(f"its {key} must be an object but is of type {type(value).__name__}")
    waiting: list[tuple[Any, int]] = [(settings, 1)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, Mapping | list):
            if depth > _DEEPEST:
                raise _SenselessError(f"its settings are nested more than {_DEEPEST} levels deep")
            inner = value.values() if isinstance(value, Mapping) else value
            waiting += [(item, depth + 1) for item in inner]
        elif isinstance(value, int) and abs(value) > _LARGEST:
            raise _SenselessError("its settings hold a number of more than 100 digits")
