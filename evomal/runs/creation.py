"""The beginning of a record: a file that appears with its settings in it."""

import contextlib
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from evomal.errors import EvomalError
from evomal.runs.database import connect, transaction
from evomal.runs.schema import create_tables, insert


def write_first(path: Path, settings: str) -> None:
    """The file with its first transaction, under another name until it is whole: a run is there or it is not.

    The caller holds the folder's lock, so that what lies there under the other name is left by a process that died.
    """
    unfinished = path.with_name(f".{path.name}.new")
    try:
        _remove(unfinished)
        connection = connect(unfinished, writable=True, make=True)
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
            raise EvomalError(f"{path}: cannot be made: {error}") from None
        if isinstance(error, OSError):
            raise EvomalError(f"{path}: cannot be made: {error.strerror}") from None
        raise


def _remove(unfinished: Path) -> None:
    for name in (unfinished.name, f"{unfinished.name}-journal"):
        unfinished.with_name(name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            os.fsync(handle)
    finally:
        os.close(handle)


def now() -> str:
    """This moment in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
