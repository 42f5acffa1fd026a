"""Connections to `run.sqlite`, its tables, and one sentence for each way in which SQLite fails."""

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from evomal.errors import EvomalError, InputError
from evomal.files import MissingFileError, open_foreign, require_regular
from evomal.runs.canonical import checksum

MAX_BYTES, MAX_ROW_BYTES = 1024 * 1024 * 1024, 64 * 1024 * 1024
MAX_ROWS = 1_000_000
"""Rows of one table: all of them are read into memory, and reading one takes about 0.1 ms."""
PATIENCE_SECONDS = 60.0
_SIDE_FILES = ("-journal", "-wal", "-shm")
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
REFUSALS = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
"""What SQLite says where the system does not let a file be opened or written."""
_SENTENCES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "access is not permitted",
    sqlite3.SQLITE_IOERR: "reading or writing failed",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened, or its journal beside it cannot",
    sqlite3.SQLITE_BUSY: f"another program kept it locked for {PATIENCE_SECONDS:g} seconds",
    sqlite3.SQLITE_LOCKED: "another connection keeps it locked",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
}
_SENTENCES_OF_EXTENDED_CODES = {
    sqlite3.SQLITE_READONLY_DBMOVED: "was moved or deleted while it was in use",
    sqlite3.SQLITE_READONLY_ROLLBACK: (
        "was interrupted during a write, which can be undone only if the folder can be written to"
    ),
}


def require_record(path: Path) -> None:
    """Raise an error unless there is a file that can be a record, and only files where SQLite keeps its journal."""
    try:
        if not os.path.lexists(path):
            raise InputError(f"{path.parent}: holds no run, as there is no {path.name} in it")
        for name in (path.name, *(f"{path.name}{ending}" for ending in _SIDE_FILES)):
            # SQLite follows links and waits for pipes.
            require_regular(path.with_name(name), missing_ok=name != path.name)
    except OSError as error:
        raise EvomalError(f"{path}: cannot be read: {error.strerror}") from None


def require_writable(path: Path) -> None:
    """Raise an error unless file and folder can be written; SQLite would only say so at the first change."""
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        raise InputError(f"{path}: it or its folder cannot be written")


def connect(path: Path, *, writable: bool, create: bool = False) -> sqlite3.Connection:
    """A connection that trusts nothing in the file.

    A reader opens the file read-only, unless there is a journal: SQLite must then first undo the unfinished commit of a
    writer that was killed.
    """
    if not create:
        require_record(path)
    has_journal = _checked_journal(path)
    mode = "rwc" if create else "rw" if writable or has_journal else "ro"
    address = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, timeout=PATIENCE_SECONDS, isolation_level=None)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA mmap_size = 0")  # a truncated file must be an error, not a signal
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA fullfsync = ON")  # on macOS, only this makes a sync reach the disk
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA max_page_count = {MAX_BYTES // PAGE_SIZE}")
        if create:
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
    """A context whose changes are made all or not at all; a reader sees the record at one moment."""
    connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # the journal stays, and the next connection undoes it
                connection.execute("ROLLBACK")
        raise


def explained(path: Path, error: sqlite3.Error) -> Exception:
    """The error to raise: EvomalError if the disk or the system failed, `DamageError` if the record is wrong."""
    if isinstance(error, sqlite3.ProgrammingError):  # a mistake of the caller, such as using a closed store
        return EvomalError(f"{path}: cannot be used: {str(error).rstrip('.').lower()}")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    if code == sqlite3.SQLITE_NOTADB:
        return foreign(path)
    sentence = _SENTENCES_OF_EXTENDED_CODES.get(code) or _SENTENCES.get(code & 0xFF)
    if code == sqlite3.SQLITE_FULL and path.stat().st_size > MAX_BYTES - MAX_ROW_BYTES:
        sentence = f"must have at most {MAX_BYTES:,} bytes and cannot grow any further"
    if sentence is None:
        return DamageError(str(error))
    return EvomalError(f"{path}: {sentence}; what was recorded before is kept")


def _checked_journal(path: Path) -> bool:
    """Whether there is a journal; raises InputError if it names another file, which SQLite might then delete."""
    journal = path.with_name(f"{path.name}-journal")
    try:
        with open_foreign(journal) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - len(_JOURNAL_MAGIC)))
            names_a_file = size > len(_JOURNAL_MAGIC) and file.read() == _JOURNAL_MAGIC
    except MissingFileError:
        return False
    if names_a_file:
        raise InputError(f"{journal}: belongs to several databases, and no journal of an evomal run does")
    return True


APPLICATION_ID = 0x65766F6D  # "evom"
VERSION = 4
_READABLE_VERSIONS = {1: frozenset({"trials"}), 2: frozenset[str](), 3: frozenset[str](), 4: frozenset[str]()}
"""Versions that can be read, and the tables that each lacks."""
OLDEST_WRITABLE = 3
"""The oldest version that can be continued: it keeps its version, and rows are written without later columns."""
PAGE_SIZE = 4096

_TABLES = {
    "settings": ("id INTEGER PRIMARY KEY CHECK (id = 1)", "content TEXT NOT NULL", "created TEXT NOT NULL"),
    "chunks": (
        "number INTEGER PRIMARY KEY",
        "generation INTEGER NOT NULL",
        "candidates INTEGER NOT NULL",
        "digest TEXT NOT NULL",
        "written TEXT NOT NULL",
    ),
    "candidates": (
        "generation INTEGER NOT NULL",
        "position INTEGER NOT NULL",
        "chunk INTEGER NOT NULL REFERENCES chunks (number)",
        "origin TEXT NOT NULL",
        "parents TEXT NOT NULL",
        "genome TEXT NOT NULL",
        "state TEXT NOT NULL",
        "fitness TEXT",
        "sentence TEXT NOT NULL",
        "weights TEXT NOT NULL",
        "fingerprint TEXT",
        "seconds TEXT NOT NULL",
    ),
    "trials": (
        "number INTEGER PRIMARY KEY",
        "stage TEXT NOT NULL",
        "loss TEXT NOT NULL",
        "seed INTEGER NOT NULL",
        "score TEXT",
        "sentence TEXT NOT NULL",
        "seconds TEXT NOT NULL",
        "written TEXT NOT NULL",
    ),
    "forced": (
        "number INTEGER PRIMARY KEY",
        "chunks INTEGER NOT NULL",
        "differences TEXT NOT NULL",
        "written TEXT NOT NULL",
    ),
    "ending": ("id INTEGER PRIMARY KEY CHECK (id = 1)", "reason TEXT NOT NULL", "written TEXT NOT NULL"),
}
"""The columns of each table, besides its checksum."""
_ADDED: dict[int, dict[str, tuple[str, ...]]] = {
    3: {
        "candidates": ("rungs TEXT NOT NULL", "factor TEXT NOT NULL"),
        "trials": ("rate TEXT NOT NULL", "steps INTEGER NOT NULL"),
    },
    4: {"trials": ("left_out TEXT NOT NULL",)},
}
"""Further columns since each version."""
_KEYS = {"candidates": ("PRIMARY KEY (generation, position)",)}


def _columns(table: str, version: int) -> tuple[str, ...]:
    added = (columns.get(table, ()) for since, columns in _ADDED.items() if version >= since)
    return (*_TABLES[table], *itertools.chain(*added))


def _definition(table: str, version: int) -> str:
    # The text is compared with that of the file, so its layout belongs to the format.
    columns = (*_columns(table, version), "checksum TEXT NOT NULL", *_KEYS.get(table, ()))
    return f"CREATE TABLE {table} (\n    " + ",\n    ".join(columns) + "\n)"


def column_names(table: str, version: int = VERSION) -> tuple[str, ...]:
    """The columns of a table besides its checksum."""
    return tuple(column.split()[0] for column in _columns(table, version))


_INDICES = {("index", "sqlite_autoindex_candidates_1", "candidates", None)}


class DamageError(Exception):
    """The record is not as it was written; the message says in which way."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Mark the file as evomal's and make its tables, inside the caller's transaction."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    for table in _TABLES:
        connection.execute(_definition(table, VERSION))


def check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file of another program or of a newer evomal.

    The file is read only through SQLite: if it were opened and closed as well, every lock that this process
    holds on the file would be lost.
    """
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path}: is empty, but the record of an evomal run was expected")
    if size > MAX_BYTES:
        raise InputError(f"{path}: must have at most {MAX_BYTES:,} bytes but has {size:,}")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise foreign(path)
    version = version_of(connection)
    if version not in _READABLE_VERSIONS:
        raise InputError(
            f"{path}: is of version {version} but this evomal reads versions 1 to {VERSION}: "
            "it is damaged or comes from a newer evomal"
        )
    expected = {"journal_mode": "delete", "page_size": PAGE_SIZE, "encoding": "UTF-8"}
    for name, value in expected.items():
        (found,) = connection.execute(f"PRAGMA {name}").fetchone()
        if found != value:
            raise DamageError(f"its {name} is {found} but must be {value}")


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the record's format."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def has_table(connection: sqlite3.Connection, table: str) -> bool:
    """Whether records of that version have the table."""
    return table not in _READABLE_VERSIONS[version_of(connection)]


def foreign(path: Path) -> InputError:
    """The refusal of a file that is not evomal's."""
    return InputError(f"{path}: is not the record of an evomal run, or its first bytes are damaged")


def check_schema(connection: sqlite3.Connection) -> None:
    """Require exactly the tables above: nothing missing, and no view or trigger that could act on its own."""
    limit, version = len(_TABLES) + len(_INDICES) + 1, version_of(connection)
    found = set(connection.execute(f"SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT {limit}"))
    expected = {name: _definition(name, version) for name in _TABLES if has_table(connection, name)}
    if found != {("table", name, name, sql) for name, sql in expected.items()} | _INDICES:
        raise DamageError("its tables are not those of an evomal run")


def check_rows(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a record with more rows than can be read in reasonable time."""
    for table in _TABLES:
        if has_table(connection, table):
            (count,) = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
            if count > MAX_ROWS:
                raise InputError(f"{path}: must have at most {MAX_ROWS:,} rows in its table {table} but has {count:,}")


def insert(connection: sqlite3.Connection, table: str, values: tuple[int | str | None, ...]) -> str:
    """Add a row with its checksum, which is returned; values of columns that an older record lacks are left out."""
    columns = column_names(table, version_of(connection))
    values = values[: len(columns)]
    row_checksum = checksum([table, *values])
    marks = ", ".join("?" * (len(values) + 1))
    connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}, checksum) VALUES ({marks})", (*values, row_checksum)
    )
    return row_checksum


def rows(
    connection: sqlite3.Connection, table: str, clause: str, parameters: tuple[int, ...] = ()
) -> Generator[tuple[tuple[Any, ...], str], None, None]:
    """Rows without their checksum, and the checksum; `DamageError` at the first that does not match."""
    with contextlib.closing(unchecked_rows(connection, table, clause, parameters)) as found:
        for values, row_checksum in found:
            if not is_intact(table, values, row_checksum):
                raise DamageError(f"a row of its table {table} does not match its checksum")
            yield values, row_checksum


def unchecked_rows(
    connection: sqlite3.Connection, table: str, clause: str, parameters: tuple[int, ...] = ()
) -> Generator[tuple[tuple[Any, ...], Any], None, None]:
    """Rows as they are in the file, to count what is left of a damaged record."""
    names = ", ".join(column_names(table, version_of(connection)))
    query = f"SELECT {names}, checksum FROM {table} {clause}"
    # A query that is left open keeps the file locked, even beyond the end of its connection.
    with contextlib.closing(connection.execute(query, parameters)) as cursor:
        for *values, row_checksum in cursor:
            yield tuple(values), row_checksum


def is_intact(table: str, values: tuple[Any, ...], row_checksum: Any) -> bool:
    """Whether a row matches its checksum."""
    try:
        return bool(checksum([table, *values]) == row_checksum)
    except InputError:  # bytes or an infinity, neither of which evomal writes
        return False
