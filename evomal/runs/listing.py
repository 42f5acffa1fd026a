"""The runs below a folder, and how each stands."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import Candidate, best_of
from evomal.runs.finals import Scores
from evomal.runs.recorded_run import RunState, read_run
from evomal.runs.store import RECORD_NAME


@dataclass(frozen=True)
class FoundRun:
    """A run in its folder; the sentence says why it is complete, or what keeps it from being read."""

    folder: Path
    state: RunState
    sentence: str
    settings: Mapping[str, Any]
    created: str | None = None
    written: str | None = None
    generations: int = 0
    candidates: int = 0
    best: Candidate | None = None
    scores: Scores | None = None
    """What the best came to in the final; None where there was none."""

    def __repr__(self) -> str:
        return f"FoundRun({str(self.folder)!r}, {self.state}, {self.generations} generations, best={self.best!r})"


def runs_in(folder: str | os.PathLike[str]) -> tuple[FoundRun, ...]:
    """Every run in the folder and below it, by path; linked folders are not entered, unreadable ones passed over."""
    top = Path(folder)
    if not top.is_dir():
        raise InputError(f"{top}: is not a folder")
    return tuple(_found(place) for place in sorted(_run_folders(top)))


def _run_folders(top: Path) -> Iterator[Path]:
    waiting = [top]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.name == RECORD_NAME:
                        yield place
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(place / entry.name)
        except OSError:
            continue


def _found(folder: Path) -> FoundRun:
    try:
        run = read_run(folder)
    except InputError as error:
        return FoundRun(folder, RunState.DAMAGED, str(error), {})
    except EvomalError as error:
        return FoundRun(folder, RunState.UNREADABLE, str(error), {})
    return FoundRun(
        folder,
        run.state,
        run.ending or "",
        run.settings,
        created=run.created,
        written=run.written,
        generations=len({candidate.generation for candidate in run.candidates}),
        candidates=len(run.candidates),
        best=best_of(run.candidates) if run.final is None else run.final.winner[0],
        scores=None if run.final is None else run.final.winner[1],
    )
