"""Records that no evomal writes, with the checksums that evomal would have written."""

import contextlib
import json
import sqlite3

from evomal.runs.canonical import canonical, checksum
from evomal.runs.database import column_names
from tests.report.reports import written_run

RECORD = "run.sqlite"


def with_setting(folder, key, value):
    """A run of which one entry of the settings was replaced; keys within each other have dots between them."""
    written_run(folder, workplace={"executor": "local"})
    with _connected(folder) as connection:
        ((text, created),) = connection.execute("SELECT content, created FROM settings")
        settings = json.loads(text)
        *path, last = key.split(".")
        inner = settings
        for name in path:
            inner = inner[name]
        inner[last] = value
        content = canonical(settings)
        proof = checksum(["settings", 1, content, created])
        connection.execute("UPDATE settings SET content = ?, checksum = ?", (content, proof))
    return folder


def with_candidates(folder, **columns):
    """A run of which all trained candidates hold other texts in some columns."""
    written_run(folder)
    with _connected(folder) as connection:
        for column, text in columns.items():
            connection.execute(f"UPDATE candidates SET {column} = ? WHERE state = 'evaluated'", (text,))
        _prove(connection)
    return folder


@contextlib.contextmanager
def _connected(folder):
    with contextlib.closing(sqlite3.connect(folder / RECORD)) as connection, connection:
        yield connection


def _prove(connection):
    """Compute all checksums of candidates and chunks anew."""
    names = ", ".join(column_names("candidates"))
    for number, *values in connection.execute(f"SELECT rowid, {names} FROM candidates").fetchall():
        proof = checksum(["candidates", *values])
        connection.execute("UPDATE candidates SET checksum = ? WHERE rowid = ?", (proof, number))
    names = ", ".join(column_names("chunks"))
    for number, generation, count, _, written in connection.execute(f"SELECT {names} FROM chunks").fetchall():
        query = "SELECT checksum FROM candidates WHERE chunk = ? ORDER BY rowid"
        digest = checksum([proof for (proof,) in connection.execute(query, (number,))])
        values = (digest, checksum(["chunks", number, generation, count, digest, written]), number)
        connection.execute("UPDATE chunks SET digest = ?, checksum = ? WHERE number = ?", values)
