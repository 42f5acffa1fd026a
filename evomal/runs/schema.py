"""The tables of `run.sqlite`, and rows that carry their own checksum.

`settings` has one row, written with the file itself; `chunks` a row for every transaction of a generation; `candidates`
what was recorded in it; `trials` a row for every training outside the generations, of the rivals and in the final;
`forced` a row for every time it was gone on with although something differed; `ending` at most one row, once the run is
complete.
"""

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

from evomal.errors import InputError
from evomal.runs.canonical import checksum

APPLICATION_ID = 0x65766F6D  # "evom"
VERSION = 2
_READ = {1: frozenset({"trials"}), 2: frozenset[str]()}
"""Versions that can be read, and which tables each has not."""
PAGE_SIZE = 4096

COLUMNS = {
    "settings": ("id", "content", "created"),
    "chunks": ("number", "generation", "candidates", "digest", "written"),
    "candidates": (
        *("generation", "position", "chunk", "origin", "parents", "genome", "state", "fitness", "sentence"),
        *("weights", "fingerprint", "seconds"),
    ),
    "trials": ("number", "stage", "loss", "seed", "score", "sentence", "seconds", "written"),
    "forced": ("number", "chunks", "differences", "written"),
    "ending": ("id", "reason", "written"),
}
_DEFINITIONS = {
    "settings": """CREATE TABLE settings (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    content TEXT NOT NULL,
    created TEXT NOT NULL,
    checksum TEXT NOT NULL
)""",
    "chunks": """CREATE TABLE chunks (
    number INTEGER PRIMARY KEY,
    generation INTEGER NOT NULL,
    candidates INTEGER NOT NULL,
    digest TEXT NOT NULL,
    written TEXT NOT NULL,
    checksum TEXT NOT NULL
)""",
    "candidates": """CREATE TABLE candidates (
    generation INTEGER NOT NULL,
    position INTEGER NOT NULL,
    chunk INTEGER NOT NULL REFERENCES chunks (number),
    origin TEXT NOT NULL,
    parents TEXT NOT NULL,
    genome TEXT NOT NULL,
    state TEXT NOT NULL,
    fitness TEXT,
    sentence TEXT NOT NULL,
    weights TEXT NOT NULL,
    fingerprint TEXT,
    seconds TEXT NOT NULL,
    checksum TEXT NOT NULL,
    PRIMARY KEY (generation, position)
)""",
    "trials": """CREATE TABLE trials (
    number INTEGER PRIMARY KEY,
    stage TEXT NOT NULL,
    loss TEXT NOT NULL,
    seed INTEGER NOT NULL,
    score TEXT,
    sentence TEXT NOT NULL,
    seconds TEXT NOT NULL,
    written TEXT NOT NULL,
    checksum TEXT NOT NULL
)""",
    "forced": """CREATE TABLE forced (
    number INTEGER PRIMARY KEY,
    chunks INTEGER NOT NULL,
    differences TEXT NOT NULL,
    written TEXT NOT NULL,
    checksum TEXT NOT NULL
)""",
    "ending": """CREATE TABLE ending (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    reason TEXT NOT NULL,
    written TEXT NOT NULL,
    checksum TEXT NOT NULL
)""",
}
_INDICES = {("index", "sqlite_autoindex_candidates_1", "candidates", None)}


class DamageError(Exception):
    """The record is not as it was written; the text says where it shows."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Mark the file as evomal's and make its tables, inside the caller's transaction."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    for definition in _DEFINITIONS.values():
        connection.execute(definition)


def check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse by name what another program or a newer evomal wrote.

    The file is asked through SQLite only: were it opened and closed beside it, every lock that this process holds on
    the file would be gone.
    """
    if path.stat().st_size == 0:
        raise InputError(f"{path}: is empty, but the record of an evomal run was expected")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise foreign(path)
    version = version_of(connection)
    if version not in _READ:
        raise InputError(
            f"{path}: is of version {version} but this evomal reads versions {' and '.join(map(str, _READ))}: "
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
    return table not in _READ[version_of(connection)]


def foreign(path: Path) -> InputError:
    """The refusal of a file that is not evomal's."""
    return InputError(f"{path}: is not the record of an evomal run, or its first bytes are damaged")


def check_schema(connection: sqlite3.Connection) -> None:
    """Exactly the tables above: nothing missing, and no view or trigger beside them that could act on its own."""
    limit = len(_DEFINITIONS) + len(_INDICES) + 1
    found = set(connection.execute(f"SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT {limit}"))
    expected = {name: sql for name, sql in _DEFINITIONS.items() if has_table(connection, name)}
    if found != {("table", name, name, sql) for name, sql in expected.items()} | _INDICES:
        raise DamageError("its tables are not those of an evomal run")


def insert(connection: sqlite3.Connection, table: str, values: tuple[int | str | None, ...]) -> str:
    """Add a row with its checksum, which is returned."""
    proof = checksum([table, *values])
    marks = ", ".join("?" * (len(values) + 1))
    connection.execute(
        f"INSERT INTO {table} ({', '.join(COLUMNS[table])}, checksum) VALUES ({marks})", (*values, proof)
    )
    return proof


def rows(
    connection: sqlite3.Connection, table: str, clause: str, parameters: tuple[int, ...] = ()
) -> Generator[tuple[tuple[Any, ...], str], None, None]:
    """Rows without their checksum, and the checksum; `DamageError` at the first that does not match."""
    with contextlib.closing(unchecked_rows(connection, table, clause, parameters)) as found:
        for values, proof in found:
            if not is_intact(table, values, proof):
                raise DamageError(f"a row of its table {table} does not match its checksum")
            yield values, proof


def unchecked_rows(
    connection: sqlite3.Connection, table: str, clause: str, parameters: tuple[int, ...] = ()
) -> Generator[tuple[tuple[Any, ...], Any], None, None]:
    """Rows as the file gives them, for those who count what is left."""
    query = f"SELECT {', '.join(COLUMNS[table])}, checksum FROM {table} {clause}"
    # A query that is left open keeps the file locked, even beyond the end of its connection.
    with contextlib.closing(connection.execute(query, parameters)) as cursor:
        for *values, proof in cursor:
            yield tuple(values), proof


def is_intact(table: str, values: tuple[Any, ...], proof: Any) -> bool:
    """Whether a row is what its checksum was made of."""
    try:
        return bool(checksum([table, *values]) == proof)
    except InputError:  # bytes or an infinity, neither of which evomal writes
        return False
