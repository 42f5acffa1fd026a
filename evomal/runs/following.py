"""The record of a run, followed while it grows.

A record can be read in one piece by `evomal.runs.reading`. A page that stays open for hours needs something else: only
what was appended is read, in transactions of a few milliseconds, because a reader of a rollback journal makes the
writer wait. Of every candidate a few numbers are kept; whole candidates are read again when a page shows them.
"""

import contextlib
import itertools
import json
import math
import os
import re
import sqlite3
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import Candidate, Carried, State
from evomal.runs.canonical import checksum, parsed
from evomal.runs.database import (
    DamageError,
    check_identity,
    check_schema,
    column_names,
    connect,
    explained,
    has_table,
    is_intact,
    rows,
    transaction,
    version_of,
)
from evomal.runs.finals import recorded_final
from evomal.runs.lock import held_for
from evomal.runs.measured_rivals import recorded_headroom, rivals_of
from evomal.runs.reading import require_sense, task_metrics
from evomal.runs.recorded_run import Run, RunState
from evomal.runs.rows import RecordedTrial, read_candidate, read_trial
from evomal.runs.store import RECORD_NAME
from evomal.runs.trials_of_tasks import combined, recorded_rule, values_by_task
from evomal.text import one_line, short_repr

_AT_ONCE = 2_000  # rows that are read in one transaction, which takes a few milliseconds
_MOST_TRIALS, _MOST_STAGES = 20_000, 20
_SETTLED_SECONDS = 2.0  # the coarsest clock of a file system
_FIRST_ROWS = 256
_MOST_RUNGS = 127
_IN_ONE_QUERY = 500
_PLACE = re.compile(r"[0-9]{1,9}:[0-9]{1,9}")
_TOKENS = re.compile(r"[^\s(),]+")
_STATES = tuple(State)
_CARRIED = get_args(Carried)
_COLUMNS = np.dtype(
    [
        ("rowid", np.int64), ("generation", np.int32), ("index", np.int32), ("state", np.int8), ("carried", np.bool_),
        ("trained", np.bool_), ("rungs", np.int8), ("size", np.int32), ("fitness", np.float64),
    ]
)  # fmt: skip
"""What is kept of a candidate; `trained` also holds for one whose training diverged."""

Table = npt.NDArray[np.void]


@dataclass(frozen=True)
class RunSample(Run):
    """A run of which only some candidates are in memory: those that a page shows."""

    recorded_generations: int = 0

    @property
    def generations(self) -> int:
        """The number of recorded generations, with those of which no candidate is in memory."""
        return self.recorded_generations


@dataclass(frozen=True)
class RunView:
    """A run at one moment: what is recorded, with a few numbers of each candidate."""

    folder: Path
    version: int
    """Counts changes, from 1."""
    head: Run
    """The run without candidates."""
    table: Table = field(default_factory=lambda: np.zeros(0, _COLUMNS))
    """One row per candidate, in the order of writing: see `_COLUMNS`."""
    times: tuple[tuple[int, str], ...] = ()
    """For each chunk its generation and when it was written."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds of all candidates by stage."""
    trials: tuple[RecordedTrial, ...] = ()
    is_whole: bool = True
    """Whether everything that was recorded at that moment has been read."""

    @property
    def generations(self) -> int:
        """The number of recorded generations."""
        return 1 + self.times[-1][0] if self.times else 0

    @property
    def planned_generations(self) -> int | None:
        """The number of generations that the search is to have; None if the record does not say."""
        budgets = self.head.settings.get("budgets")
        planned = budgets.get("generations") if isinstance(budgets, Mapping) else None
        return planned if isinstance(planned, int) and 0 < planned < 10**9 else None

    @cached_property
    def evaluated(self) -> Table:
        """The candidates whose fitness was measured, without those carried over."""
        found: Table = self.table[(self.table["state"] == _STATES.index(State.EVALUATED)) & ~self.table["carried"]]
        return found

    @cached_property
    def comparable(self) -> Table:
        """Evaluated candidates on the longest rung: fitness on shorter ones is of trainings of another length."""
        found: Table = self.evaluated[self.evaluated["rungs"] == self.evaluated["rungs"].max(initial=0)]
        return found

    @cached_property
    def by_rank(self) -> npt.NDArray[np.int64]:
        """Row ids of all candidates, best first: by the longest rung reached, fitness, size and place."""
        found = self.table
        unfit = ~np.isfinite(found["fitness"])
        carried = found["carried"]
        keys = (found["rowid"], found["size"], found["fitness"], -found["rungs"].astype(np.int64), carried, unfit)
        return np.asarray(found["rowid"][np.lexsort(keys)], dtype=np.int64)

    @cached_property
    def best_row(self) -> np.void | None:
        """The best evaluated candidate of the search, before any final."""
        found = self.evaluated
        if not len(found):
            return None
        keys = (found["rowid"], found["size"], found["fitness"], -found["rungs"].astype(np.int64))
        return found[np.lexsort(keys)[0]]  # type: ignore[no-any-return]

    @cached_property
    def front(self) -> Table:
        """Comparable candidates that are better than all that are as small or smaller, smallest first."""
        found = self.comparable
        found = found[found["size"] > 0]
        found = found[np.lexsort((found["rowid"], found["fitness"], found["size"]))]
        lowest = np.minimum.accumulate(found["fitness"]) if len(found) else found["fitness"]
        is_better = np.r_[True, found["fitness"][1:] < lowest[:-1]] if len(found) else np.zeros(0, np.bool_)
        return found[is_better]

    @cached_property
    def best_by_generation(self) -> npt.NDArray[np.float64]:
        """The lowest comparable fitness up to each generation; infinite until there is one. It ends at `best_row`."""
        lowest = np.full(self.generations, np.inf)
        np.minimum.at(lowest, self.comparable["generation"], self.comparable["fitness"])
        return np.minimum.accumulate(lowest) if len(lowest) else lowest

    @cached_property
    def counts(self) -> dict[State, npt.NDArray[np.int64]]:
        """How many candidates of each generation came to each state, without those carried over."""
        found = self.table[~self.table["carried"]]
        counts = np.zeros((len(_STATES), self.generations), np.int64)
        np.add.at(counts, (found["state"].astype(np.intp), found["generation"].astype(np.intp)), 1)
        return {state: row for state, row in zip(_STATES, counts, strict=True) if row.any()}

    def read(self, rowids: Iterable[int]) -> list[Candidate]:
        """Read candidates again, in the given order; those that are no longer there are left out."""
        wanted = [int(rowid) for rowid in rowids]
        found: dict[int, tuple[tuple[Any, ...], Any]] = {}
        try:
            with _reading(self.folder / RECORD_NAME) as connection:
                for begin in range(0, len(wanted), _IN_ONE_QUERY):
                    part = wanted[begin : begin + _IN_ONE_QUERY]
                    marks = ", ".join("?" * len(part))
                    for rowid, *row in _raw_rows(connection, f"WHERE rowid IN ({marks})", part):
                        found[rowid] = (row[0], row[1])
            return [_candidate(*found[rowid]) for rowid in wanted if rowid in found]
        except DamageError as damage:
            raise InputError(f"{self.folder / RECORD_NAME}: is damaged ({damage})") from None

    def rowid_of(self, generation: int, index: int) -> int | None:
        """The row id of the candidate at a place; None if there is none."""
        found = self.table[(self.table["generation"] == generation) & (self.table["index"] == index)]
        return int(found["rowid"][0]) if len(found) else None

    def ancestors(self, candidate: Candidate, most: int = 300) -> list[Candidate]:
        """The recorded ancestors of a candidate, latest first; of a long line only the last ones."""
        found: list[Candidate] = []
        generation, wanted = candidate.generation - 1, set(candidate.parents)
        try:
            with _reading(self.folder / RECORD_NAME) as connection:
                while wanted and generation >= 0 and len(found) < most:
                    places = sorted(wanted)[:_IN_ONE_QUERY]
                    clause = f"WHERE generation = ? AND position IN ({', '.join('?' * len(places))})"
                    rows_found = _raw_rows(connection, clause, (generation, *places))
                    parents = [_candidate(values, row_checksum) for _, values, row_checksum in rows_found]
                    found += parents
                    generation, wanted = generation - 1, {index for parent in parents for index in parent.parents}
        except DamageError as damage:
            raise InputError(f"{self.folder / RECORD_NAME}: is damaged ({damage})") from None
        return found

    def sample(self, rowids: Iterable[int]) -> RunSample:
        """The run with these candidates, and with those of its final."""
        finalists = [trial.loss for trial in self.trials if trial.stage != "rivals"]
        places = [tuple(map(int, loss.split(":"))) for loss in dict.fromkeys(finalists) if _PLACE.fullmatch(loss)]
        also = [rowid for place in places if (rowid := self.rowid_of(*place)) is not None]
        wanted = list(dict.fromkeys([*map(int, rowids), *also]))
        candidates = sorted(self.read(wanted) if wanted else [], key=lambda one: (one.generation, one.index))
        settings, trials = self.head.settings, tuple(combined(self.trials, recorded_rule(self.head.settings)))
        final = recorded_final(settings, candidates, trials)
        head = {name: getattr(self.head, name) for name in self.head.__dataclass_fields__}
        return RunSample(
            **head | {
                "candidates": tuple(candidates), "final": final,
                "by_task": values_by_task(self.trials, final, task_metrics(settings)),
            },
            recorded_generations=self.generations,
        )  # fmt: skip


class _ReplacedError(Exception):
    """The record is not a longer version of the one that was read."""


class _Chunk(NamedTuple):
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
    """One run folder; `refresh` reads what was appended since, and `view` is what is known.

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
        self._table, self._count, self._complete = np.zeros(_FIRST_ROWS, _COLUMNS), 0, 0
        self._rowid = 0
        self._times: list[tuple[int, str]] = []
        self._waiting: deque[_Chunk] = deque()
        self._checksums: list[str] = []
        self._stages: defaultdict[str, float] = defaultdict(float)
        self._small: _SmallTables | None = None
        self._content = ""
        self._trials: tuple[RecordedTrial, ...] = ()

    def _read_new(self, deadline: float) -> None:
        with _reading(self._path) as connection:
            with transaction(connection, writing=False):
                check_schema(connection)
                self._read_small_tables(connection)
            while self._waiting and time.monotonic() < deadline:
                with transaction(connection, writing=False):  # one for each piece, so that the writer gets its turn
                    found = _raw_rows(connection, "WHERE rowid > ? ORDER BY rowid LIMIT ?", (self._rowid, _AT_ONCE))
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
        known = len(self._times) + len(self._waiting)
        (count,) = connection.execute("SELECT COUNT(*) FROM chunks").fetchone()
        if count < known or (self._small is not None and small.created != self._small.created):
            raise _ReplacedError
        self._small = small
        last = self._waiting[-1].generation if self._waiting else self._times[-1][0] if self._times else 0
        for expected, (row, _) in enumerate(
            rows(connection, "chunks", "WHERE number >= ? ORDER BY number", (known,)), known
        ):
            chunk = _Chunk(*row)
            if chunk.number != expected or type(chunk.candidates) is not int or chunk.candidates < 1:
                raise DamageError(f"its chunk {expected} is missing")
            if type(chunk.generation) is not int or not last <= chunk.generation <= expected:
                raise DamageError(f"its chunk {expected} is of generation {short_repr(chunk.generation)}")
            self._waiting.append(chunk)
            last = chunk.generation

    def _add(self, found: Sequence[tuple[int, tuple[Any, ...], Any]]) -> None:
        """Take over rows, and count them in when their chunk is complete."""
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

    def _append(self, rowid: int, values: tuple[Any, ...], row_checksum: Any, chunk: _Chunk) -> None:
        """Keep the numbers of a row; what else is in it is checked when a page shows the candidate."""
        _require_intact(values, row_checksum)
        generation, index, number, origin, _, genome, state, fitness, _, _, _, seconds, rungs = (*values, "[]")[:13]
        if (generation, number) != (chunk.generation, chunk.number):
            raise DamageError(f"its chunk {chunk.number} is incomplete")
        try:
            taken: dict[str, float] = json.loads(seconds)
            code, cost = _STATES.index(state), math.inf if fitness is None else float(fitness)
            if math.isnan(cost) or cost == -math.inf:
                raise ValueError("its fitness is not a number")
            carried = origin in _CARRIED
            trained = (state == State.EVALUATED or "evaluate" in taken) and not carried
            rung_count = min(max(rungs.count("[") - 1, 0), _MOST_RUNGS)
            row = (rowid, generation, index, code, carried, trained, rung_count, _size(genome), cost)
            if self._count == len(self._table):  # earlier views keep the smaller table
                self._table = np.concatenate((self._table, np.zeros(len(self._table), _COLUMNS)))
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
            require_sense(settings)
            self._trials = tuple(map(read_trial, small.trials))
        except InputError as error:
            raise DamageError(str(error)) from None
        self._content = small.content
        trials = tuple(combined(self._trials, recorded_rule(settings)))
        return Run(
            folder=self.folder, state=self._state(small.ending), settings=settings, created=str(small.created),
            written=self._times[-1][1] if self._times else None, ending=small.ending, forced=small.forced,
            rivals=rivals_of(trials), headroom=recorded_headroom(trials),
        )  # fmt: skip

    def _state(self, ending: str | None) -> RunState:
        if ending is not None:
            return RunState.COMPLETE
        return RunState.RUNNING if held_for(self.folder) == "search" else RunState.INTERRUPTED

    def _publish_state(self) -> bool:
        state = self._state(self.view.head.ending)
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


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(connect(path, writable=False)) as connection:
            check_identity(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise explained(path, error) from None
    except OSError as error:
        raise EvomalError(f"{path}: cannot be read: {error.strerror}") from None


def _raw_rows(
    connection: sqlite3.Connection, clause: str, parameters: Sequence[int]
) -> list[tuple[int, tuple[Any, ...], Any]]:
    names = ", ".join(column_names("candidates", version_of(connection)))
    found = connection.execute(f"SELECT rowid, {names}, checksum FROM candidates {clause}", tuple(parameters))
    return [(rowid, tuple(values), row_checksum) for rowid, *values, row_checksum in found.fetchall()]


def _require_intact(values: tuple[Any, ...], row_checksum: Any) -> None:
    if not is_intact("candidates", values, row_checksum):
        raise DamageError("a row of its table candidates does not match its checksum")


def _candidate(values: tuple[Any, ...], row_checksum: Any) -> Candidate:
    _require_intact(values, row_checksum)
    try:
        return read_candidate(values)[0]
    except InputError as error:
        raise DamageError(f"one of its rows {error}") from None


def _size(genome: str) -> int:
    """The size as `Candidate.size` has it, without the time that parsing takes."""
    if genome.startswith("["):
        return genome.count(",") + 1
    return len(_TOKENS.findall(genome)) if "(" in genome else 1
