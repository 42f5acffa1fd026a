"""One writer for a run folder at a time, and requests to stop it.

A request is a file in the folder, which a search looks for whenever it has recorded something. So it reaches a search
on another machine that shares the folder, no signal can hit a wrong process, and nothing that was computed is lost.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from evomal.errors import EvomalError, InputError, StoppedError
from evomal.files import open_foreign, read_foreign, unwritable

LOCK_NAME = ".run.lock"
PROCESS_NAME = ".run.process"
STOP_NAME = ".run.stop"
Purpose = Literal["search", "comparison"]
_WITHOUT_FLOCK = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}
_RETRY_SECONDS = 0.25
_LONGEST_NAME = 4096  # bytes


@dataclass(frozen=True)
class Holder:
    """The process that holds a folder."""

    process: int
    host: str
    purpose: Purpose = "search"
    """What it does in the folder; older versions of evomal did not say."""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @property
    def is_dead(self) -> bool:
        """Whether it is known to be gone; nothing is known about the processes of another host."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.process, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            return False
        return False


class FolderLock:
    """The right to write into a folder, until `release` or the end of the process.

    The kernel holds the lock (`flock`) and releases it when the process ends in any way; the lock file only names the
    holder, and stays. Processes that are forked from the holder hold the lock, too. On file systems without `flock`, a
    file with the holder's process id and host is used instead. If it was left by a dead process of this host, it is
    taken over; if it was left by another host, it has to be deleted by hand. A process id that was assigned again looks
    alive.
    """

    def __init__(self, folder: Path, purpose: Purpose = "search") -> None:
        self._process_file: Path | None = None
        self._name = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "purpose": purpose}).encode()
        try:
            with open_foreign(folder / LOCK_NAME, writable=True, create=True) as file:
                self._handle = os.dup(file.fileno())
        except OSError as error:
            raise EvomalError(f"{folder}: cannot be locked: {error.strerror}") from None
        try:
            self._acquire(folder)
        except BaseException:
            os.close(self._handle)
            raise

    def release(self) -> None:
        """Release the lock; may be called again."""
        if self._process_file is not None:
            self._process_file.unlink(missing_ok=True)
            self._process_file = None
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _acquire(self, folder: Path) -> None:
        try:
            if not _try_flock(self._handle, fcntl.LOCK_EX, _RETRY_SECONDS):
                raise _in_use(folder, _holder(folder / LOCK_NAME))
        except OSError as error:
            if error.errno not in _WITHOUT_FLOCK:
                raise EvomalError(f"{folder}: cannot be locked: {error.strerror}") from None
            self._process_file = _create_process_file(folder, self._name)
            return
        with contextlib.suppress(OSError):  # on a full disk the lock works without the name of its holder
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, self._name, 0)


def holder_of(folder: Path) -> Holder | None:
    """The process that holds the folder, or that held it last; None if that is not known."""
    return _holder(folder / PROCESS_NAME) or _holder(folder / LOCK_NAME)


def is_held(folder: Path) -> bool:
    """Whether a living process holds the lock of the folder."""
    try:
        with open_foreign(folder / LOCK_NAME) as file:
            try:
                return not _try_flock(file.fileno(), fcntl.LOCK_SH, 0.0)
            except OSError:
                holder = _holder(folder / PROCESS_NAME)
                return holder is not None and not holder.is_dead
    except InputError:  # there is no lock, or something that cannot be one
        return False


def held_for(folder: Path) -> Purpose | None:
    """What a living process holds the folder for; None if it is free. A comparison may hold the folder of a run."""
    if not is_held(folder):
        return None
    holder = holder_of(folder)
    return "search" if holder is None else holder.purpose


def _try_flock(handle: int, kind: int, seconds: float) -> bool:
    """Take the lock within that time; returns whether that succeeded."""
    # A writer retries for a moment, because `is_held` takes the lock for an instant to find out whether it is free.
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def _create_process_file(folder: Path, name: bytes) -> Path:
    path = folder / PROCESS_NAME
    for _ in range(2):
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            holder = _holder(path)
            if holder is None or not holder.is_dead:
                raise _in_use(folder, holder, f"; if that process has ended, delete {path}") from None
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(f"{folder}: cannot be written", error) from None
        else:
            with os.fdopen(handle, "wb") as file:
                file.write(name)
            return path
    raise _in_use(folder, _holder(path))


def _in_use(folder: Path, holder: Holder | None, remedy: str = "") -> InputError:
    return InputError(f"{folder}: the run is in use by {holder or 'another process'}{remedy}")


def _holder(path: Path) -> Holder | None:
    try:
        content = json.loads(read_foreign(path, limit=_LONGEST_NAME))
        process, host = content["process"], content["host"]
    except (ValueError, TypeError, KeyError, RecursionError):  # also an InputError
        return None
    if type(process) is not int or process <= 0 or not isinstance(host, str) or not host.isprintable():
        return None
    purpose = content.get("purpose")
    return Holder(process, host[:100], purpose if purpose in get_args(Purpose) else "search")


def request_stop(folder: Path) -> None:
    """Ask the search in the folder to stop once it has recorded what it is computing; may be repeated."""
    try:
        handle = os.open(folder / STOP_NAME, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise EvomalError(f"{folder}: a request to stop cannot be written: {error.strerror}") from None
    os.close(handle)


def is_stop_requested(folder: Path) -> bool:
    """Whether the search in the folder has been asked to stop."""
    return os.path.lexists(folder / STOP_NAME)


def withdraw_stop(folder: Path | None) -> None:
    """Remove a request to stop: once it is obeyed, and when a search begins or ends, as it is for one process."""
    if folder is None:  # a search that is not recorded
        return
    try:
        (folder / STOP_NAME).unlink(missing_ok=True)
    except OSError as error:
        raise EvomalError(f"{folder}: a request to stop cannot be removed: {error.strerror}") from None


def stop_if_requested(folder: Path | None) -> None:
    """Raise StoppedError if the search in the folder has been asked to stop; it can be resumed as after Ctrl-C."""
    if folder is not None and is_stop_requested(folder):
        withdraw_stop(folder)
        raise StoppedError(f"{folder}: the search was stopped on request; search again to resume it")
