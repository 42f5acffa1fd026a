"""The temporary folder of a Ray cluster that is started here: private, short, and removed afterwards.

Ray's default folder is shared by every program on the machine and keeps the logs of all of them for ever.
"""

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from evomal.errors import InputError

_IS_MAC = sys.platform == "darwin"
_LONGEST_SOCKET = 103 if _IS_MAC else 107  # bytes in the path of a Unix socket
# What Ray adds to the folder's path, with the longest number a process can have.
_ADDED_BY_RAY = len("/session_2000-01-01_00-00-00_000000_4194304/sockets/plasma_store.1")
_NAME = "ray-{}"  # counted, not random: every byte is needed
_REMOVING = 10.0  # seconds for Ray's processes to write their last lines

LONGEST_PLACE = _LONGEST_SOCKET - _ADDED_BY_RAY - len("/" + _NAME.format(99))
"""Bytes that the path of the folder around it may have."""


@contextlib.contextmanager
def cluster_folder() -> Iterator[Path]:
    """Make a new folder where Ray would put its own (`RAY_TMPDIR`, else the temporary folder), and remove it after.

    Yields:
        The folder's absolute path, short enough for the sockets that Ray makes in it.

    Raises:
        InputError: The path would be too long, or nothing can be written there.
    """
    folder = _made(_place())
    try:
        yield folder
    finally:
        _remove(folder)


def _place() -> Path:
    # macOS has long paths for temporary files, and Ray does not use them either.
    place = Path(os.environ.get("RAY_TMPDIR") or ("/tmp" if _IS_MAC else tempfile.gettempdir())).absolute()
    length = len(os.fsencode(place))
    if length > LONGEST_PLACE:
        raise InputError(
            f"no Ray cluster could be started here: the path of its temporary folder must have at most "
            f"{LONGEST_PLACE} bytes but {place} has {length}: set RAY_TMPDIR to a shorter one"
        )
    return place


def _made(place: Path) -> Path:
    try:
        place.mkdir(parents=True, exist_ok=True)
        for number in itertools.count():
            folder = place / _NAME.format(number)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                return folder
    except OSError as error:
        raise InputError(f"no Ray cluster could be started here: {place}: {error.strerror}") from None
    raise AssertionError("unreachable")


def _remove(folder: Path) -> None:
    """Processes of the cluster that are still ending may add a file while it is being emptied."""
    deadline = time.monotonic() + _REMOVING
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)
