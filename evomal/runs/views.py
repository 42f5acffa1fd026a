"""A run at one moment: a few numbers of each candidate in a table, whole candidates when they are asked for."""

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import Candidate, State
from evomal.runs.database import DamageError, check_identity, column_names, connect, explained, is_intact, version_of
from evomal.runs.generations import best_so_far
from evomal.runs.reading import with_candidates
from evomal.runs.recorded_run import Run
from evomal.runs.rows import RecordedTrial, read_candidate
from evomal.runs.store import RECORD_NAME

MOST_RUNGS = 127
_IN_ONE_QUERY, _MOST_ANCESTORS = 500, 300
_PLACE = re.compile(r"[0-9]{1,9}:[0-9]{1,9}")
STATES = tuple(State)
"""The states by their numbers in a table."""
COLUMNS = np.dtype(
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
        """The number of recorded generations, including those without a candidate in memory."""
        return self.recorded_generations


@dataclass(frozen=True)
class RunView:
    """A run at one moment: what is recorded, with a few numbers of each candidate."""

    folder: Path
    version: int
    """Counts changes, from 1."""
    head: Run
    """The run without candidates."""
    table: Table = field(default_factory=lambda: np.zeros(0, COLUMNS))
    """One row per candidate, in the order of writing: see `COLUMNS`."""
    times: tuple[tuple[int, str], ...] = ()
    """For each chunk its generation and when it was written."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds of all candidates by stage."""
    trials: tuple[RecordedTrial, ...] = ()
    is_whole: bool = True
    """Whether everything that was recorded at that moment has been read."""
    held: tuple[Candidate, ...] | None = None
    """All candidates, in the order of the table, of a run that was read as a whole; None if they are in the record."""

    @classmethod
    def of(cls, run: Run) -> "RunView":
        """The view of a run that was read as a whole."""
        table = np.zeros(len(run.candidates), COLUMNS)
        stages: Counter[str] = Counter()
        for place, one in enumerate(run.candidates):
            is_trained = (one.state is State.EVALUATED or "evaluate" in one.seconds) and not one.is_carried
            table[place] = (
                place, one.generation, one.index, STATES.index(one.state or State.FAILED), one.is_carried, is_trained,
                min(len(one.rungs), MOST_RUNGS), one.size or 0, one.fitness,
            )  # fmt: skip
            stages.update({} if one.is_carried else one.seconds)
        times = ((run.generations - 1, run.written or ""),) if run.generations else ()
        return cls(run.folder, 1, run, table, times, stages, held=run.candidates)

    @property
    def generations(self) -> int:
        """The number of recorded generations."""
        return 1 + self.times[-1][0] if self.times else 0

    @property
    def planned_generations(self) -> int | None:
        """The number of generations that the search will have; None if the record does not say."""
        planned = self.head.settings.get("budgets", {}).get("generations")
        return planned if isinstance(planned, int) and 0 < planned < 10**9 else None

    @cached_property
    def evaluated(self) -> Table:
        """The candidates whose fitness was measured, without those carried over."""
        found: Table = self.table[(self.table["state"] == STATES.index(State.EVALUATED)) & ~self.table["carried"]]
        return found

    @cached_property
    def comparable(self) -> Table:
        """Evaluated candidates that reached the longest rung; fitness on shorter rungs cannot be compared."""
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
        return best_so_far(self.comparable["generation"], self.comparable["fitness"], self.generations)

    @cached_property
    def counts(self) -> dict[State, npt.NDArray[np.int64]]:
        """How many candidates of each generation came to each state, without those carried over."""
        found = self.table[~self.table["carried"]]
        counts = np.zeros((len(STATES), self.generations), np.int64)
        np.add.at(counts, (found["state"].astype(np.intp), found["generation"].astype(np.intp)), 1)
        return {state: row for state, row in zip(STATES, counts, strict=True) if row.any()}

    def read(self, rowids: Iterable[int]) -> list[Candidate]:
        """Read candidates again, in the given order; those that are no longer there are left out."""
        wanted = [int(rowid) for rowid in rowids]
        if self.held is not None:
            return [self.held[place] for place in wanted]
        found: dict[int, tuple[tuple[Any, ...], Any]] = {}
        try:
            with reading_record(self.folder / RECORD_NAME) as connection:
                for begin in range(0, len(wanted), _IN_ONE_QUERY):
                    part = wanted[begin : begin + _IN_ONE_QUERY]
                    marks = ", ".join("?" * len(part))
                    for rowid, *row in raw_rows(connection, f"WHERE rowid IN ({marks})", part):
                        found[rowid] = (row[0], row[1])
            return [_candidate(*found[rowid]) for rowid in wanted if rowid in found]
        except DamageError as damage:
            raise InputError(f"{self.folder / RECORD_NAME}: is damaged ({damage})") from None

    def rowid_of(self, generation: int, index: int) -> int | None:
        """The row id of the candidate at a place; None if there is none."""
        found = self.table[(self.table["generation"] == generation) & (self.table["index"] == index)]
        return int(found["rowid"][0]) if len(found) else None

    def ancestors(self, candidate: Candidate) -> list[Candidate]:
        """The recorded ancestors of a candidate, latest first; of a long line only the last ones."""
        found: list[Candidate] = []
        generation, wanted = candidate.generation - 1, set(candidate.parents)
        try:
            with reading_record(self.folder / RECORD_NAME) as connection:
                while wanted and generation >= 0 and len(found) < _MOST_ANCESTORS:
                    places = sorted(wanted)[:_IN_ONE_QUERY]
                    clause = f"WHERE generation = ? AND position IN ({', '.join('?' * len(places))})"
                    rows_found = raw_rows(connection, clause, (generation, *places))
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
        head = {name: getattr(self.head, name) for name in self.head.__dataclass_fields__}
        return with_candidates(RunSample(**head, recorded_generations=self.generations), candidates, self.trials)


@contextlib.contextmanager
def reading_record(path: Path) -> Iterator[sqlite3.Connection]:
    """A context with a connection that reads the record; errors of SQLite become those of evomal."""
    try:
        with contextlib.closing(connect(path, writable=False)) as connection:
            check_identity(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise explained(path, error) from None
    except OSError as error:
        raise EvomalError(f"{path}: cannot be read: {error.strerror}") from None


def raw_rows(
    connection: sqlite3.Connection, clause: str, parameters: Sequence[int]
) -> list[tuple[int, tuple[Any, ...], Any]]:
    """Row id, values and checksum of the candidates that a clause selects, unchecked."""
    names = ", ".join(column_names("candidates", version_of(connection)))
    found = connection.execute(f"SELECT rowid, {names}, checksum FROM candidates {clause}", tuple(parameters))
    return [(rowid, tuple(values), row_checksum) for rowid, *values, row_checksum in found.fetchall()]


def require_intact(values: tuple[Any, ...], row_checksum: Any) -> None:
    """Raise `DamageError` if a candidate's row does not match its checksum."""
    if not is_intact("candidates", values, row_checksum):
        raise DamageError("a row of its table candidates does not match its checksum")


def _candidate(values: tuple[Any, ...], row_checksum: Any) -> Candidate:
    require_intact(values, row_checksum)
    try:
        return read_candidate(values)[0]
    except InputError as error:
        raise DamageError(f"one of its rows {error}") from None
