"""The record of a run, followed while it grows.

`evomal.runs.reading` reads a whole record at once. For a page that stays open for hours, only what was appended is
read, in transactions of a few milliseconds, because with a rollback journal a reader makes the writer wait. A few
numbers are kept of each candidate; whole candidates are read again when a page shows them.
"""

import itertools
import json
import math
import os
import re
import sqlite3
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import Carried, State
from evomal.runs.canonical import checksum, parsed
from evomal.runs.database import DamageError, check_schema, has_table, rows, transaction
from evomal.runs.reading import run_without_candidates, state_of
from evomal.runs.recorded_run import Run, RunState
from evomal.runs.rows import RecordedTrial, read_trial
from evomal.runs.store import RECORD_NAME
from evomal.runs.views import COLUMNS, MOST_RUNGS, STATES, RunView, raw_rows, reading_record, require_intact
from evomal.text import one_line, short_repr

_AT_ONCE = 2_000  # rows that are read in one transaction, which takes a few milliseconds
_MOST_TRIALS, _MOST_STAGES = 20_000, 20
_SETTLED_SECONDS = 2.0  # the coarsest clock of a file system
_FIRST_ROWS = 256
_TOKENS = re.compile(r"[^\s(),]+")
_CARRIED = get_args(Carried)


class _ReplacedError(Exception):
    """The record is not a longer version of the one that was read."""


class _ChunkRow(NamedTuple):
    """A row of the table `chunks`."""

    number: int
    generation: int
    candidates: int
    digest: str
    written: str


@dataclass(frozen=True)
class _SmallTables:
    """Everything but chunks and candidates, as it is in the file."""

    content: str
    created: str
    ending: str | None
    forced: tuple[str, ...]
    trials: tuple[tuple[Any, ...], ...]


class FollowedRun:
    """One run folder; `refresh` reads what was appended since, and `view` is the run as it was read.

    Only one thread may refresh; any thread may use the views, which do not change.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.view = RunView(folder, 0, Run(folder, RunState.UNREADABLE), is_whole=False)
        self._path = folder / RECORD_NAME
        self._stamp: tuple[int, ...] = ()
        self._is_settled = False
        self._forget()

    def refresh(self, seconds: float = math.inf) -> bool:
        """Read what is new, for about that many seconds; returns whether anything changed."""
        try:
            return self._refreshed(time.monotonic() + seconds)
        except DamageError as damage:
            return self._fail(RunState.DAMAGED, f"{self._path}: is damaged ({damage})")
        except EvomalError as error:
            return self._fail(RunState.DAMAGED if isinstance(error, InputError) else RunState.UNREADABLE, str(error))
        except Exception as error:  # a forged record can cause any error, and must not hide the other runs
            sentence = f"cannot be understood ({type(error).__name__}: {one_line(error)})"
            return self._fail(RunState.DAMAGED, f"{self._path}: {sentence}")

    def _refreshed(self, deadline: float) -> bool:
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError as error:
            raise EvomalError(f"{self._path}: cannot be read: {error.strerror}") from None
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp == self._stamp and self._is_settled and (self.view.is_whole or self.view.head.problem):
            return not self.view.head.problem and self._publish_state()
        if self._stamp and stamp[0] != self._stamp[0]:
            self._forget()
        # A change within the resolution of the file system's clock would not show.
        self._stamp, self._is_settled = stamp, abs(time.time() - found.st_mtime_ns / 1e9) > _SETTLED_SECONDS
        before = (self._small, self._complete)
        try:
            self._read_new(deadline)
        except _ReplacedError:
            self._forget()
            self._read_new(deadline)
        is_whole = not self._waiting
        if before == (self._small, self._complete) and is_whole == self.view.is_whole and not self.view.head.problem:
            return self._publish_state()
        return self._publish(self._head(), is_whole=is_whole)

    def _forget(self) -> None:
        self._table, self._count, self._complete = np.zeros(_FIRST_ROWS, COLUMNS), 0, 0
        self._rowid = 0
        self._times: list[tuple[int, str]] = []
        self._waiting: deque[_ChunkRow] = deque()
        self._checksums: list[str] = []
        self._stages: defaultdict[str, float] = defaultdict(float)
        self._last: _ChunkRow | None = None
        self._small: _SmallTables | None = None
        self._content = ""
        self._trials: tuple[RecordedTrial, ...] = ()

    def _read_new(self, deadline: float) -> None:
        with reading_record(self._path) as connection:
            with transaction(connection, writing=False):
                check_schema(connection)
                self._read_small_tables(connection)
            while self._waiting and time.monotonic() < deadline:
                with transaction(connection, writing=False):  # one for each piece, so that the writer gets its turn
                    found = raw_rows(connection, "WHERE rowid > ? ORDER BY rowid LIMIT ?", (self._rowid, _AT_ONCE))
                if not found:
                    raise DamageError(f"its chunk {self._waiting[0].number} is incomplete")
                self._add(found)

    def _read_small_tables(self, connection: sqlite3.Connection) -> None:
        settings = [values for values, _ in rows(connection, "settings", "LIMIT 2")]
        if len(settings) != 1:
            raise DamageError("its settings are missing")
        _, content, created = settings[0]
        trials = rows(connection, "trials", f"ORDER BY number LIMIT {_MOST_TRIALS}")
        small = _SmallTables(
            content=content,
            created=created,
            ending=next((str(reason) for (_, reason, _), _ in rows(connection, "ending", "LIMIT 1")), None),
            forced=tuple(str(row[2]) for row, _ in rows(connection, "forced", "ORDER BY number LIMIT 100")),
            trials=tuple(row for row, _ in trials) if has_table(connection, "trials") else (),
        )
        if self._small is not None and small.created != self._small.created:
            raise _ReplacedError
        known = len(self._times) + len(self._waiting)
        found = [
            _ChunkRow(*row) for row, _ in rows(connection, "chunks", "WHERE number >= ? ORDER BY number", (known - 1,))
        ]
        if self._last is not None and (not found or found.pop(0) != self._last):
            raise _ReplacedError
        self._small = small
        for expected, chunk in enumerate(found, known):
            if chunk.number != expected or type(chunk.candidates) is not int or chunk.candidates < 1:
                raise DamageError(f"its chunk {expected} is missing")
            last = 0 if self._last is None else self._last.generation
            if type(chunk.generation) is not int or not last <= chunk.generation <= expected:
                raise DamageError(f"its chunk {expected} is of generation {short_repr(chunk.generation)}")
            self._waiting.append(chunk)
            self._last = chunk

    def _add(self, found: Sequence[tuple[int, tuple[Any, ...], Any]]) -> None:
        """Add rows to the table; they become visible when their chunk is complete."""
        for rowid, values, row_checksum in found:
            if not self._waiting:  # the rest was written after the chunks were read
                return
            chunk = self._waiting[0]
            self._append(rowid, values, row_checksum, chunk)
            self._checksums.append(row_checksum)
            if len(self._checksums) == chunk.candidates:
                if checksum(self._checksums) != chunk.digest:
                    raise DamageError(f"its chunk {chunk.number} is incomplete")
                self._complete, self._checksums = self._count, []
                self._times.append((chunk.generation, chunk.written))
                self._waiting.popleft()

    def _append(self, rowid: int, values: tuple[Any, ...], row_checksum: Any, chunk: _ChunkRow) -> None:
        """Add the numbers of a row to the table; the rest of it is checked when a page shows the candidate."""
        require_intact(values, row_checksum)
        generation, index, number, origin, _, genome, state, fitness, _, _, _, seconds, rungs = (*values, "[]")[:13]
        if (generation, number) != (chunk.generation, chunk.number):
            raise DamageError(f"its chunk {chunk.number} is incomplete")
        try:
            taken: dict[str, float] = json.loads(seconds)
            code, cost = STATES.index(state), math.inf if fitness is None else float(fitness)
            if math.isnan(cost) or cost == -math.inf:
                raise ValueError("its fitness is not a number")
            carried = origin in _CARRIED
            trained = (state == State.EVALUATED or "evaluate" in taken) and not carried
            rung_count = min(max(rungs.count("[") - 1, 0), MOST_RUNGS)
            row = (rowid, generation, index, code, carried, trained, rung_count, _genome_size(genome), cost)
            if self._count == len(self._table):  # earlier views keep the smaller table
                self._table = np.concatenate((self._table, np.zeros(len(self._table), COLUMNS)))
            self._table[self._count] = row
            for stage, time_taken in () if carried else itertools.islice(taken.items(), _MOST_STAGES):
                self._stages[stage] += time_taken
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError, RecursionError) as error:
            raise DamageError(f"one of its rows is not a candidate: {one_line(error)}") from None
        self._count, self._rowid = self._count + 1, rowid

    def _head(self) -> Run:
        """The run without its candidates and its final."""
        small = self._small
        assert small is not None
        settings = self.view.head.settings if small.content == self._content else parsed(small.content)
        try:
            trials = tuple(map(read_trial, small.trials))
            head = run_without_candidates(
                self.folder, settings, trials, created=str(small.created), ending=small.ending, forced=small.forced,
                written=self._times[-1][1] if self._times else None,
            )  # fmt: skip
        except InputError as error:
            raise DamageError(str(error)) from None
        self._content, self._trials = small.content, trials
        return head

    def _publish_state(self) -> bool:
        state = state_of(self.folder, self.view.head.ending)
        if state is self.view.head.state:
            return False
        return self._publish(replace(self.view.head, state=state), is_whole=self.view.is_whole)

    def _publish(self, head: Run, *, is_whole: bool) -> bool:
        self.view = RunView(
            self.folder, self.view.version + 1, head, self._table[: self._complete], tuple(self._times),
            dict(self._stages), self._trials, is_whole,
        )  # fmt: skip
        return True

    def _fail(self, state: RunState, problem: str) -> bool:
        """Publish a problem, once; a damaged record is read again when it has changed, any other at once."""
        self._forget()
        if state is not RunState.DAMAGED:
            self._stamp = ()
        if self.view.head.problem == problem:
            return False
        self.view = RunView(self.folder, self.view.version + 1, Run(self.folder, state, problem=problem))
        return True


def _genome_size(genome: str) -> int:
    """The size as `Candidate.size` has it, without the time that parsing takes."""
    if genome.startswith("["):
        return genome.count(",") + 1
    return len(_TOKENS.findall(genome)) if "(" in genome else 1
