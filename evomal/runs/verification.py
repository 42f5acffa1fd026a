"""Checks that a record is as it was written, and how much of a damaged one is still intact."""

import contextlib
import itertools
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evomal.errors import EvomalError, InputError
from evomal.runs.canonical import checksum, parsed, settings_text
from evomal.runs.database import (
    MAX_ROWS,
    DamageError,
    check_identity,
    check_schema,
    connect,
    has_table,
    is_intact,
    rows,
    unchecked_rows,
)
from evomal.runs.rows import read_candidate, read_trial
from evomal.text import plural

_LEAST_ROW_BYTES = 64  # every row holds a checksum of that length


def verify(connection: sqlite3.Connection) -> None:
    """Check every row and every chunk as a whole, in the caller's transaction; `check_schema` comes first."""
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != ("ok",):
        raise DamageError(str(found[0]).splitlines()[-1][:200] if found else "its structure cannot be checked")
    if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise DamageError("a candidate belongs to no chunk")
    try:
        _verify_settings(connection)
        _verify_chunks(connection)
        _verify_trials(connection)
        _verify_forced(connection)
        _verify_ending(connection)
    except InputError as error:
        raise DamageError(f"one of its rows {error}") from None


def damaged(path: Path, damage: DamageError) -> InputError:
    """The error for a damaged record: the file, what is wrong with it, and how much of it can still be read."""
    places = _verified_places(path)
    generations = len({generation for generation, _ in places})
    saved = f"{plural(generations, 'generation')} and {plural(len(places), 'candidate')}"
    return InputError(f"{path}: is damaged ({damage}); {saved} of it can still be read and verified")


def _verify_settings(connection: sqlite3.Connection) -> None:
    found = [values for values, _ in rows(connection, "settings", "LIMIT 2")]
    if len(found) != 1:
        raise DamageError("its settings are missing")
    content = found[0][1]
    settings = parsed(content) if isinstance(content, str) else None
    if not isinstance(settings, dict) or settings_text(settings) != content:
        raise DamageError("its settings are not written in canonical form")


def _verify_chunks(connection: sqlite3.Connection) -> None:
    # Both in the order of writing, so that neither table has to be held in memory.
    with (
        contextlib.closing(rows(connection, "candidates", "ORDER BY rowid")) as candidates,
        contextlib.closing(rows(connection, "chunks", "ORDER BY number")) as chunks,
    ):
        latest = -1
        for expected, (values, _) in enumerate(chunks):
            number, generation, count, digest, _ = values
            if number != expected or type(count) is not int or not 1 <= count <= sys.maxsize:
                raise DamageError(f"its chunk {expected} is missing")
            if type(generation) is not int or generation not in (max(latest, 0), latest + 1):
                raise DamageError(f"its chunk {number} is of generation {generation}, after generation {latest}")
            latest = generation
            if checksum(_row_checksums(itertools.islice(candidates, count), number, generation)) != digest:
                raise DamageError(f"its chunk {number} is incomplete")
        if next(candidates, None) is not None:
            raise DamageError("it holds candidates without a chunk")


def _row_checksums(found: Iterable[tuple[tuple[Any, ...], str]], number: int, generation: int) -> list[str]:
    """The checksums of a chunk's rows, which must be candidates of that chunk."""
    found_checksums = []
    for row, row_checksum in found:
        candidate, chunk = read_candidate(row)
        if (candidate.generation, chunk) != (generation, number):
            raise DamageError(f"its chunk {number} is incomplete")
        found_checksums.append(row_checksum)
    return found_checksums


def _verify_trials(connection: sqlite3.Connection) -> None:
    if not has_table(connection, "trials"):
        return
    for expected, (values, _) in enumerate(rows(connection, "trials", "ORDER BY number")):
        read_trial(values)
        if values[0] != expected:
            raise DamageError(f"its trial {expected} is missing")


def _verify_forced(connection: sqlite3.Connection) -> None:
    for expected, (values, _) in enumerate(rows(connection, "forced", "ORDER BY number")):
        number, chunks, differences, written = values
        if number != expected or type(chunks) is not int or not isinstance(differences, str):
            raise DamageError("its list of forced differences is not written in canonical form")
        if not isinstance(written, str):
            raise DamageError("its list of forced differences has no time")


def _verify_ending(connection: sqlite3.Connection) -> None:
    found = [values for values, _ in rows(connection, "ending", "LIMIT 2")]
    if not all(isinstance(text, str) for _, *texts in found for text in texts):
        raise DamageError("its ending is not a string")


def _verified_places(path: Path) -> set[tuple[int, int]]:
    """Generation and index of every candidate that is intact, from both ends towards the damage."""
    try:
        limit = min(path.stat().st_size // _LEAST_ROW_BYTES, MAX_ROWS)
        connection = connect(path, writable=False)
    except (EvomalError, OSError, sqlite3.Error):
        return set()
    places: set[tuple[int, int]] = set()
    try:
        check_identity(connection, path)
        check_schema(connection)
        for direction in ("ASC", "DESC"):
            _collect(connection, f"ORDER BY rowid {direction} LIMIT {limit}", places)
    except (DamageError, EvomalError, sqlite3.Error):
        return places
    finally:
        connection.close()
    return places


def _collect(connection: sqlite3.Connection, clause: str, places: set[tuple[int, int]]) -> None:
    with contextlib.suppress(sqlite3.Error):  # beyond the damage nothing can be reached from this end
        for row, row_checksum in unchecked_rows(connection, "candidates", clause):
            with contextlib.suppress(InputError):
                if is_intact("candidates", row, row_checksum):
                    candidate, _ = read_candidate(row)
                    places.add((candidate.generation, candidate.index))
