"""Run folders: records with valid checksums and hostile content, odd files beside them, and what reads them."""

import contextlib
import hashlib
import json
import random
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzzing import json_edits
from tests.fuzzing.oracle import Box, Command
from tests.fuzzing.values import KINDS_OF_FILE, NUMBERS, RAW, chosen, replace_file, text

RECORD = "run.sqlite"
NAMES = (
    RECORD, f"{RECORD}-journal", f"{RECORD}-wal", f"{RECORD}-shm", f".{RECORD}.new", ".run.lock", ".run.process",
    "best.json",
    "report.html", "comparison.json", "comparison.md", "transfer.json", "transfer.md", "learning-rates.json",
    "learning-rates.md", "trainings.jsonl",
)  # fmt: skip
READERS = (
    ("runs", "."), ("runs", "."), ("runs", "."), ("runs", "run"), ("runs", ".", "--json"), ("runs", ".", "--json"),
    ("report", "run"), ("report", "run", "--json"), ("report", ".", "--out", "page.html"), ("card", "run/best.json"),
    ("card", "run/best.json", "--out", "made"), ("resume", "run", "--json"), ("resume", "run"),
    ("analyse", "curves", "run", "--out", "made"), ("analyse", "filters", "run", "--out", "made", "--json"),
    ("analyse", "runtime", "run", "--out", "made"), ("analyse", "front", "run", "--out", "made"),
    ("analyse", "ancestry", "run", "--out", "made", "--json"),
)  # fmt: skip
_WRITERS = {
    "report.html": ("report", "run"), "best.json": ("resume", "run"), RECORD: ("resume", "run"),
    ".run.lock": ("resume", "run"), "comparison.md": ("card", "run/best.json", "--out", "made"),
}  # fmt: skip
"""What writes a file, or shows it to others."""
_LINKS = tuple(kind for kind in KINDS_OF_FILE if "link" in kind)
_SCHEMA = (
    "DROP TABLE trials", "DROP TABLE settings", "DROP TABLE candidates", "DROP TABLE ending", "DELETE FROM settings",
    "DELETE FROM chunks", "DELETE FROM candidates", "DELETE FROM trials", "DELETE FROM ending",
    "CREATE TABLE forged (x)", "ALTER TABLE settings ADD COLUMN forged", "ALTER TABLE trials RENAME TO forged",
    "CREATE VIEW forged AS SELECT load_extension('forged')", "CREATE INDEX forged ON candidates (genome)",
    "CREATE TRIGGER forged AFTER INSERT ON candidates BEGIN DELETE FROM candidates; END",
    "PRAGMA user_version = 1", "PRAGMA user_version = 99", "PRAGMA application_id = 1", "PRAGMA journal_mode = WAL",
    "PRAGMA encoding = 'UTF-16'",
)  # fmt: skip
_JSON_COLUMNS = {
    "settings": ("content",),
    "candidates": ("parents", "weights", "seconds", "rungs"),
    "trials": ("seconds",),
}


class RunFolders:
    """A folder `run`, edited, and commands that read it."""

    def __init__(self, corpus: Path) -> None:
        self._folder = corpus / "run"
        self._beside = {
            path.name: path
            for folder in ("compared", "rates", "transfer")
            for path in (corpus / folder).iterdir()
            if path.name in NAMES
        }
        with _connected(self._folder / RECORD) as connection:
            self._tables = {name: _columns(connection, name) for name in _table_names(connection)}
            ((self._settings,),) = connection.execute("SELECT content FROM settings")

    def draw(self, rng: random.Random) -> list[Any]:
        """Edits of the record, of files, and the commands."""
        if rng.random() < 0.1:
            name = rng.choice(sorted(_WRITERS))
            return [("file", name, rng.choice(_LINKS)), ("command", _WRITERS[name])]
        edits: list[Any] = []
        way = rng.random()
        if way < 0.4:
            document = json.loads(self._settings)
            edits += [("settings", json_edits.drawn(document, rng)) for _ in range(rng.choice([1, 1, 2, 3]))]
        elif way < 0.75:
            edits += [self._cell(rng) for _ in range(rng.choice([1, 1, 2, 4]))]
        elif way < 0.8:
            edits += [("sql", statement) for statement in chosen(rng, 3, _SCHEMA)]
        elif way < 0.85:
            edits += [("bytes", json_edits.drawn_bytes(rng)) for _ in range(rng.randint(1, 3))]
        if way >= 0.85 or rng.random() < 0.1:
            edits += [("file", rng.choice(NAMES), rng.choice(KINDS_OF_FILE)) for _ in range(rng.choice([1, 1, 2]))]
        if rng.random() < 0.3:
            name = rng.choice(sorted(self._beside))
            edits.append(("beside", name, None))
            if name.endswith(".json"):
                content = json.loads(self._beside[name].read_bytes())
                edits += [("beside", name, json_edits.drawn(content, rng)) for _ in range(rng.choice([1, 2]))]
            elif name.endswith(".md"):
                edits.append(("text", name, "\n\n".join(text(rng) for _ in range(rng.randint(1, 4)))))
        rng.shuffle(edits)
        return [*edits, *(("command", words) for words in rng.sample(READERS, rng.choice([1, 1, 2])))]

    def _cell(self, rng: random.Random) -> tuple[Any, ...]:
        table = rng.choice(sorted(set(self._tables) - {"settings"}) + ["candidates"] * 4)
        column = rng.choice(self._tables[table])
        value: Any = rng.choice([text(rng), str(rng.choice(RAW)), rng.choice(NUMBERS), None, b"\xff\x00forged"])
        if column in _JSON_COLUMNS.get(table, ()) and rng.random() < 0.7:
            value = json_edits.written(json_edits.edited([1.0, 0, {}], [json_edits.drawn([1.0, 0, {}], rng)]))
        return ("cell", table, rng.choice([None, 0, 1, 2, 3]), column, value)

    def stage(self, edits: Sequence[Any], box: Box) -> list[Any]:
        """The folder with all edits; checksums are computed anew before bytes are changed."""
        folder = box.here / "run"
        shutil.copytree(self._folder, folder)
        record = folder / RECORD
        of_settings = [edit for kind, *edit in edits if kind == "settings"]
        cells = [edit for kind, *edit in edits if kind == "cell"]
        statements = [statement for kind, statement, *_ in edits if kind == "sql"]
        if of_settings or cells:
            content = json_edits.edited(json.loads(self._settings), [edit for (edit,) in of_settings])
            changed = [("settings", 0, "content", json_edits.written(content, canonical=True))] if of_settings else []
            _forge(record, [*changed, *cells])
        with contextlib.suppress(sqlite3.Error), _connected(record) as connection:
            for statement in statements:
                connection.execute(statement)
        if of_bytes := [edit for kind, edit, *_ in edits if kind == "bytes"]:
            record.write_bytes(json_edits.edited_bytes(record.read_bytes(), of_bytes))
        self._write_beside(folder, edits)
        for kind, *named in edits:
            if kind == "file":
                replace_file(folder / named[0], named[1], box.outside)
        return [Command(edit[1]) for edit in edits if edit[0] == "command"]

    def _write_beside(self, folder: Path, edits: Sequence[Any]) -> None:
        for name in {edit[1] for edit in edits if edit[0] == "beside"}:
            changes = [edit[2] for edit in edits if edit[:2] == ("beside", name) and edit[2] is not None]
            content = self._beside[name].read_bytes()
            if changes:
                content = json_edits.written(json_edits.edited(json.loads(content), changes)).encode()
            (folder / name).write_bytes(content)
        for kind, *named in edits:
            if kind == "text":
                (folder / named[0]).write_bytes(named[1].encode(errors="surrogatepass"))


def _forge(record: Path, cells: Sequence[Sequence[Any]]) -> None:
    """Change cells of a record, against its own rules where need be, and compute all checksums anew."""
    with _connected(record) as connection:
        schema = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        _rewrite_schema(
            connection, [(name, sql.replace(" NOT NULL", "").replace(" CHECK (id = 1)", "")) for name, sql in schema]
        )
    with _connected(record) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for table, place, column, value in cells:
            where = "" if place is None else f"WHERE rowid IN (SELECT rowid FROM {table} LIMIT 1 OFFSET {place})"
            with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):  # what SQLite cannot hold
                connection.execute(f"UPDATE {table} SET {column} = ? {where}", (value,))
        for table in ("settings", "candidates", "chunks", *_table_names(connection)):
            _prove(connection, table)
        _rewrite_schema(connection, schema)


def _rewrite_schema(connection: sqlite3.Connection, schema: Sequence[tuple[str, str]]) -> None:
    connection.execute("PRAGMA writable_schema = ON")
    for name, sql in schema:
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, name))


def _prove(connection: sqlite3.Connection, table: str) -> None:
    """The checksums of all rows, and before that the digests of chunks."""
    if table == "chunks":
        for (number,) in connection.execute("SELECT rowid FROM chunks").fetchall():
            chunk = "(SELECT number FROM chunks WHERE rowid = ?)"
            query = f"SELECT checksum FROM candidates WHERE chunk = {chunk} ORDER BY rowid"
            proofs = [proof for (proof,) in connection.execute(query, (number,))]
            with contextlib.suppress(TypeError):
                connection.execute("UPDATE chunks SET digest = ? WHERE rowid = ?", (checksum(proofs), number))
    names = _columns(connection, table)
    for number, *values in connection.execute(f"SELECT rowid, {', '.join(names)} FROM {table}").fetchall():
        with contextlib.suppress(TypeError, ValueError):  # bytes have no checksum
            proof = checksum([table, *values])
            connection.execute(f"UPDATE {table} SET checksum = ? WHERE rowid = ?", (proof, number))


def checksum(value: Any) -> str:
    """What evomal writes beside a row or a line, made without evomal."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _table_names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] != "checksum"]


@contextlib.contextmanager
def _connected(path: Path) -> Any:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        yield connection
