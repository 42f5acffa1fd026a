"""Connections to `run.sqlite`, and the one sentence for each way in which they fail."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from evomal.errors import EvomalError, InputError
from evomal.runs.schema import PAGE_SIZE, DamageError, foreign

MAX_ROW_BYTES = 64 * 1024 * 1024
PATIENCE_SECONDS = 60.0
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_ENVIRONMENT = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "access is not permitted",
    sqlite3.SQLITE_IOERR: "reading or writing failed",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened, or its journal beside it cannot",
    sqlite3.SQLITE_BUSY: f"another program kept it locked for {PATIENCE_SECONDS:g} seconds",
    sqlite3.SQLITE_LOCKED: "another connection keeps it locked",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
}
_PRECISELY = {
    sqlite3.SQLITE_READONLY_DBMOVED: "was moved or deleted while it was in use",
    sqlite3.SQLITE_READONLY_ROLLBACK: (
        "was interrupted in the middle of a write, which can only be undone in a folder that can be written to"
    ),
}


def require_record(path: Path) -> None:
    """An error unless there is a file that can be a record."""
    try:
        if not os.path.lexists(path):
            raise InputError(f"{path.parent}: holds no run, as there is no {path.name} in it")
        if not path.is_file():
            raise InputError(f"{path}: is not a regular file")
    except OSError as error:
        raise EvomalError(f"{path}: cannot be read: {error.strerror}") from None


def require_writable(path: Path) -> None:
    """An error unless file and folder can be written; SQLite would only say so at the first change."""
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        raise EvomalError(f"{path}: it or its folder cannot be written")


def connect(path: Path, *, writable: bool, make: bool = False) -> sqlite3.Connection:
    """A connection that trusts nothing in the file.

    A reader opens the file for writing too where it may, but with queries only: so SQLite can undo the half-made commit
    of a writer that was killed, which it must do before anything can be read.
    """
    _refuse_foreign_journal(path)
    address = f"{path.absolute().as_uri()}?mode={'rwc' if make else 'rw'}"
    connection = sqlite3.connect(address, uri=True, timeout=PATIENCE_SECONDS, isolation_level=None)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA mmap_size = 0")  # a truncated file must be an error, not a signal
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA fullfsync = ON")  # what macOS needs for a sync to reach the disk
        connection.execute("PRAGMA synchronous = FULL")
        if make:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            connection.execute("PRAGMA journal_mode = DELETE")
        if not writable:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, *, writing: bool) -> Iterator[None]:
    """All of what happens inside, or nothing of it; a reader sees one moment of the record."""
    connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # then the journal stays, and the next to open undoes it
                connection.execute("ROLLBACK")
        raise


def explained(path: Path, error: sqlite3.Error) -> Exception:
    """What to raise: EvomalError where the surroundings failed, `DamageError` where the record itself is wrong."""
    if isinstance(error, sqlite3.ProgrammingError):  # a mistake of the caller, such as using a closed store
        return EvomalError(f"{path}: cannot be used: {str(error).rstrip('.').lower()}")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    if code == sqlite3.SQLITE_NOTADB:
        return foreign(path)
    sentence = _PRECISELY.get(code) or _ENVIRONMENT.get(code & 0xFF)
    if sentence is None:
        return DamageError(str(error))
    return EvomalError(f"{path}: {sentence}; what was recorded before is kept")


def _refuse_foreign_journal(path: Path) -> None:
    """A journal that names a further file comes from elsewhere, and may make SQLite delete that file."""
    journal = path.with_name(f"{path.name}-journal")
    try:
        with journal.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - len(_JOURNAL_MAGIC)))
            ends_with_a_name = size > len(_JOURNAL_MAGIC) and file.read() == _JOURNAL_MAGIC
    except FileNotFoundError:
        return
    except OSError as error:
        raise EvomalError(f"{journal}: cannot be read: {error.strerror}") from None
    if ends_with_a_name:
        raise InputError(f"{journal}: belongs to several databases, and no journal of an evomal run does")
