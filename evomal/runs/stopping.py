"""Requests to stop a search after its current generation, or after the current trainings of its final.

A request is a file in the folder of the run, which the search looks for whenever it has recorded something. So it
reaches a search on another machine that shares the folder, no signal can hit a wrong process, and nothing that was
computed is lost.
"""

import os
from pathlib import Path

from evomal.errors import EvomalError, StoppedError

STOP_NAME = ".run.stop"


def request_stop(folder: Path) -> None:
    """Ask the search in the folder to stop when it has recorded what it computes now; may be repeated."""
    try:
        handle = os.open(folder / STOP_NAME, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise EvomalError(f"{folder}: a request to stop cannot be written: {error.strerror}") from None
    os.close(handle)


def is_stop_requested(folder: Path) -> bool:
    """Whether the search in the folder has been asked to stop."""
    return os.path.lexists(folder / STOP_NAME)


def withdraw_stop(folder: Path) -> None:
    """Remove a request: when it has been obeyed, and when a search begins or ends, as a request is for one process."""
    try:
        (folder / STOP_NAME).unlink(missing_ok=True)
    except OSError as error:
        raise EvomalError(f"{folder}: a request to stop cannot be removed: {error.strerror}") from None


def stop_if_requested(folder: Path) -> None:
    """Raise StoppedError if the search in the folder has been asked to stop; it can be resumed as after Ctrl-C."""
    if is_stop_requested(folder):
        withdraw_stop(folder)
        raise StoppedError(f"{folder}: the search was stopped on request; search again to resume it")
