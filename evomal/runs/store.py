"""The record of a run: `run.sqlite`, written in whole chunks of candidates."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from evomal.errors import EvomalError, InputError, StoppedError
from evomal.files import unwritable
from evomal.methods.candidates import Candidate
from evomal.runs.canonical import Difference, canonical, checksum, differences, parsed, settings_text
from evomal.runs.database import (
    MAX_ROWS,
    OLDEST_WRITABLE,
    REFUSALS,
    VERSION,
    DamageError,
    check_identity,
    check_rows,
    check_schema,
    connect,
    create_tables,
    explained,
    has_table,
    insert,
    require_record,
    require_writable,
    rows,
    transaction,
    version_of,
)
from evomal.runs.lock import FolderLock
from evomal.runs.rows import (
    MAX_SENTENCE,
    RecordedTrial,
    candidate_content,
    candidate_row,
    checked_text,
    read_candidate,
    read_trial,
    trial_content,
    trial_row,
)
from evomal.runs.verification import damaged, verify


def _write_new_record(path: Path, settings: str) -> None:
    """Write the file with its first transaction under a temporary name, then rename it, so that no record is partial.

    The caller holds the folder's lock, so a file that is already there under the temporary name was left by a process
    that died.
    """
    unfinished = path.with_name(f".{path.name}.new")
    try:
        _remove(unfinished)
        connection = connect(unfinished, writable=True, create=True)
        try:
            with transaction(connection, writing=True):
                create_tables(connection)
                insert(connection, "settings", (1, settings, now()))
        finally:
            connection.close()
        os.replace(unfinished, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            _remove(unfinished)
        if isinstance(error, sqlite3.Error):
            is_refused = getattr(error, "sqlite_errorcode", 0) & 0xFF in REFUSALS
            raise (InputError if is_refused else EvomalError)(f"{path}: cannot be created: {error}") from None
        if isinstance(error, OSError):
            raise unwritable(f"{path}: cannot be created", error) from None
        raise


def _remove(unfinished: Path) -> None:
    for name in (unfinished.name, f"{unfinished.name}-journal"):
        unfinished.with_name(name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system supports it
            os.fsync(handle)
    finally:
        os.close(handle)


def now() -> str:
    """This moment in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


RECORD_NAME = "run.sqlite"
BEST_NAME = "best.json"


@dataclass(frozen=True)
class Chunk:
    """Candidates that were computed together and recorded in one transaction."""

    number: int
    generation: int
    indices: tuple[int, ...]
    written: str


@dataclass(frozen=True)
class Forced:
    """The run was resumed after `chunks` chunks despite these differences in settings."""

    chunks: int
    differences: str


class RunStore:
    """The settings of a run and its candidates, written in whole chunks.

    Made by `create`, `open` (to continue a run) or `read`. However a process ends, the next one finds the record as it
    was after the last chunk that was written. All that is read is checked against its checksum. A damaged record raises
    InputError, with a sentence that says how much of it is left; a full disk or the like raises EvomalError.
    """

    def __init__(self, path: Path, lock: FolderLock | None) -> None:
        self.path = path
        self._lock, self._is_new = lock, False
        with self._explaining():
            require_record(path)
            self._connection = connect(path, writable=lock is not None)
            try:
                check_identity(self._connection, path)
                if lock is not None and version_of(self._connection) < OLDEST_WRITABLE:
                    raise InputError(
                        f"{path}: is of version {version_of(self._connection)}, which can be read but not "
                        f"continued: this evomal continues versions {OLDEST_WRITABLE} and {VERSION}"
                    )
                with transaction(self._connection, writing=lock is not None):
                    check_schema(self._connection)
                    check_rows(self._connection, path)
                    verify(self._connection)
            except BaseException:
                self._connection.close()
                raise

    @classmethod
    def create(cls, folder: str | os.PathLike[str], settings: Mapping[str, Any]) -> Self:
        """Create the record of a new run in a folder, which is created if missing and must not hold a run yet."""
        text = settings_text(settings)
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise InputError(f"{place}: is a file, but a folder for the run was expected") from None
        except OSError as error:
            raise unwritable(f"{place}: cannot be created", error) from None
        except ValueError as error:  # a name that no file can have
            raise InputError(f"{str(place)!r}: is not a valid folder name: {error}") from None
        with _locked(place) as lock:
            path = place / RECORD_NAME
            if os.path.lexists(path):
                raise InputError(f"{path}: exists already, but a new run needs a folder without one")
            _write_new_record(path, text)
            store = cls(path, lock)
            store._is_new = True
            return store

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Open the record of a folder to continue it; raises InputError while another process holds it."""
        path = Path(folder) / RECORD_NAME
        require_record(path)
        require_writable(path)
        with _locked(path.parent) as lock:
            return cls(path, lock)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Self:
        """Open the record of a folder to read it, even while another process writes: calls see the latest chunk."""
        return cls(Path(folder) / RECORD_NAME, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Close the record; a new one that an error, such as of a metric, left empty is removed."""
        with contextlib.suppress(OSError, sqlite3.Error):
            is_failed = isinstance(error, EvomalError) and not isinstance(error, StoppedError)
            if is_failed and self._is_new and self.is_empty:
                self._connection.close()
                _remove(self.path)
        self.close()

    def close(self) -> None:
        """Close the file and unlock the folder; may be called again."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    @property
    def is_empty(self) -> bool:
        """Whether nothing but settings is recorded."""
        found = self._connection.execute("SELECT EXISTS (SELECT 1 FROM chunks) OR EXISTS (SELECT 1 FROM trials)")
        return not found.fetchone()[0]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings with which the run was started, but with the budgets with which it was last resumed."""
        result: dict[str, Any] = parsed(self._first("settings")[1])
        return result

    @property
    def created(self) -> str:
        """When the run was started, in UTC."""
        return str(self._first("settings")[2])

    @property
    def ending(self) -> str | None:
        """Why the run is complete, or None while it is not."""
        found = self._rows("ending")
        return str(found[0][1]) if found else None

    def differences(self, settings: Mapping[str, Any]) -> tuple[Difference, ...]:
        """The keys in which these settings differ from the recorded ones."""
        return differences(self.settings, settings)

    @property
    def forced(self) -> tuple[Forced, ...]:
        """Each time the run was resumed despite differences, in order."""
        return tuple(
            Forced(chunks, differences) for _, chunks, differences, _ in self._rows("forced", "ORDER BY number")
        )

    def force(self, differing: Sequence[Difference]) -> None:
        """Record that the run is resumed despite these differences."""
        text = checked_text("differences", "; ".join(map(str, differing)), MAX_SENTENCE)
        with self._writing():
            chunks = self._connection.execute("SELECT COUNT(*) FROM chunks").fetchone()[0]
            number = self._connection.execute("SELECT COUNT(*) FROM forced").fetchone()[0]
            insert(self._connection, "forced", (number, chunks, text, now()))

    def write_chunk(self, generation: int, candidates: Sequence[Candidate]) -> int:
        """Record candidates that were computed together, all or none; returns the number of their chunk."""
        ordered = sorted(candidates, key=lambda candidate: candidate.index)
        if not ordered:
            raise InputError("a chunk must hold at least 1 candidate but got 0")
        for candidate in ordered:
            if candidate.generation != generation:
                raise InputError(f"a chunk of generation {generation} got a candidate of {candidate.generation}")
        with self._writing():
            (recorded,) = self._connection.execute("SELECT MAX(rowid) FROM candidates").fetchone()
            if (recorded or 0) + len(ordered) > MAX_ROWS:
                raise EvomalError(f"{self.path}: a record has at most {MAX_ROWS:,} candidates, and this one is full")
            number, latest = self._connection.execute("SELECT COUNT(*), MAX(generation) FROM chunks").fetchone()
            allowed = (0,) if latest is None else (latest, latest + 1)
            if generation not in allowed:
                raise InputError(f"the next chunk must be of generation {allowed[-1]} at most but got {generation}")
            taken = self._connection.execute("SELECT position FROM candidates WHERE generation = ?", (generation,))
            known = {position for (position,) in taken}
            prepared = []
            for candidate in ordered:
                if candidate.index in known:
                    raise InputError(f"candidate {candidate.index} of generation {generation} is recorded already")
                known.add(candidate.index)
                prepared.append(candidate_row(candidate, number))
            digest = checksum([checksum(["candidates", *row]) for row in prepared])
            # A final that was run when a budget ended the search is outdated, and is run again at the end.
            self._connection.execute("DELETE FROM trials WHERE stage <> 'rivals'")
            insert(self._connection, "chunks", (number, generation, len(prepared), digest, now()))
            for row in prepared:
                insert(self._connection, "candidates", row)
        return int(number)

    def write_trials(self, trials: Sequence[RecordedTrial]) -> None:
        """Append trainings outside the generations, all or none."""
        with self._writing():
            (count,) = self._connection.execute("SELECT COUNT(*) FROM trials").fetchone()
            for place, trial in enumerate(trials, count):
                insert(self._connection, "trials", trial_row(trial, place, now()))

    def trials(self) -> tuple[RecordedTrial, ...]:
        """Trainings outside the generations in the order of writing: rivals, then the final; none in version 1."""
        with self._explaining():
            if not has_table(self._connection, "trials"):
                return ()
            found = self._rows("trials", "ORDER BY number")
            try:
                return tuple(map(read_trial, found))
            except InputError as error:
                raise DamageError(f"one of its rows {error}") from None

    def finish(self, reason: str) -> None:
        """Record that the run is complete, and why; nothing can be added until `change_settings` continues it."""
        text = checked_text("reason", reason, MAX_SENTENCE)
        with self._writing():
            insert(self._connection, "ending", (1, text, now()))

    def change_settings(self, settings: Mapping[str, Any]) -> None:
        """Record other settings, such as budgets. A complete run is incomplete after that and can be continued."""
        row = (1, settings_text(settings), self.created)
        with self._writing(although_complete=True):
            for table in ("ending", "settings"):
                self._connection.execute(f"DELETE FROM {table}")
            insert(self._connection, "settings", row)

    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, by generation and index."""
        return tuple(candidate for candidate, _ in self._placed())

    def complete_chunks(self) -> tuple[Chunk, ...]:
        """The chunks in the order of writing; incomplete ones are never recorded."""
        with self.snapshot():
            heads = self._rows("chunks", "ORDER BY number")
            places: dict[int, list[int]] = {number: [] for number, *_ in heads}
            for candidate, chunk in self._placed():
                places[chunk].append(candidate.index)
        return tuple(
            Chunk(number, generation, tuple(places[number]), written) for number, generation, _, _, written in heads
        )

    def dump(self) -> str:
        """The record as lines of canonical JSON in a fixed order, without times: what two equal runs share."""
        with self.snapshot():
            settings, chunks, candidates, ending = self.settings, self.complete_chunks(), self.candidates(), self.ending
            trials = self.trials()
        if isinstance(source := settings.get("source"), dict):  # equal runs may have been started by different commands
            settings = {**settings, "source": {key: value for key, value in source.items() if key != "command"}}
        lines: list[dict[str, Any]] = [{"kind": "settings", "settings": settings}]
        for chunk in chunks:
            places = {"number": chunk.number, "generation": chunk.generation, "indices": chunk.indices}
            lines.append({"kind": "chunk", **places})
        lines += [{"kind": "candidate", **candidate_content(candidate)} for candidate in candidates]
        lines += [{"kind": "trial", **trial_content(trial)} for trial in trials]
        lines += [{"kind": "forced", "chunks": entry.chunks, "differences": entry.differences} for entry in self.forced]
        lines += [] if ending is None else [{"kind": "ending", "reason": ending}]
        return "".join(f"{canonical(line)}\n" for line in lines)

    def _placed(self) -> list[tuple[Candidate, int]]:
        """All candidates, each with its chunk."""
        with self._explaining():
            found = self._rows("candidates", "ORDER BY generation, position")
            try:
                return [read_candidate(row) for row in found]
            except InputError as error:
                raise DamageError(f"one of its rows {error}") from None

    def _first(self, table: str) -> tuple[Any, ...]:
        with self._explaining():
            for row in self._rows(table):
                return row
            raise DamageError(f"its table {table} is empty")

    def _rows(self, table: str, clause: str = "") -> list[tuple[Any, ...]]:
        # All at once: a query that is left open would keep the writer waiting.
        with self._explaining():
            return [values for values, _ in rows(self._connection, table, clause)]

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """A context in which all queries see the record at the same moment."""
        with self._explaining(), contextlib.ExitStack() as stack:
            if not self._connection.in_transaction:
                stack.enter_context(transaction(self._connection, writing=False))
            yield

    @contextlib.contextmanager
    def _writing(self, *, although_complete: bool = False) -> Iterator[None]:
        if self._lock is None:
            raise InputError(f"{self.path}: was opened for reading only")
        with self._explaining(), transaction(self._connection, writing=True):
            if (reason := self.ending) is not None and not although_complete:
                raise InputError(f"{self.path}: the run is complete ({reason}), and nothing can be added to it")
            yield

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            reason = explained(self.path, error)
            raise (damaged(self.path, reason) if isinstance(reason, DamageError) else reason) from None
        except DamageError as damage:
            raise damaged(self.path, damage) from None
        except OSError as error:
            raise EvomalError(f"{self.path}: cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[FolderLock]:
    """The folder's lock, which is released if the block raises."""
    lock = FolderLock(folder)
    try:
        yield lock
    except BaseException:
        lock.release()
        raise
