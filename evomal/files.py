"""Untrusted files, opened safely, and files that are written atomically.

Every file that evomal reads may come from somebody else, with a run folder or alone. What was meant as a regular file
can then be a link to another file, a pipe that never ends or a device: opening it must neither block nor leave the
folder. Nothing here follows a link at the end of a path unless a person named that path.
"""

import contextlib
import errno
import glob
import os
import stat
import tempfile
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

from evomal.errors import EvomalError, InputError

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
_REFUSALS = (
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
    errno.EINVAL,
)  # fmt: skip
# Windows has none of these flags. There links are refused by their status, and folders hold no pipes or devices.
_CLOEXEC, _NONBLOCK, _NOFOLLOW = (getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW"))


class MissingFileError(InputError):
    """There is no such file."""


def read_foreign(path: Path, *, limit: int, follow_links: bool = False) -> bytes:
    """Returns the content of a file that may be a stranger's.

    Args:
        path: The file.
        limit: The largest number of bytes that is read.
        follow_links: Whether the file may be a link: only where a person named it, not where it was found in a folder.

    Raises:
        MissingFileError: There is no such file.
        InputError: It cannot be read, or it is a link, not a regular file, or too large.
    """
    with open_foreign(path, follow_links=follow_links) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InputError(f"{path}: must have at most {limit:,} bytes but has more")
    return content


def find_foreign(path: Path, *, limit: int) -> bytes | None:
    """Returns the content of a file in a folder as `read_foreign` does, or None if there is no such file."""
    try:
        return read_foreign(path, limit=limit)
    except MissingFileError:
        return None


@contextlib.contextmanager
def open_foreign(
    path: Path, *, writable: bool = False, create: bool = False, follow_links: bool = False
) -> Iterator[BufferedIOBase]:
    """Opens a regular file that may be a stranger's; never waits for the other end of a pipe.

    Args:
        path: The file.
        writable: Whether to open it to read and write; writing appends.
        create: Whether to create the file if it is missing.
        follow_links: As in `read_foreign`.

    Raises:
        MissingFileError: There is no such file, or no folder for it.
        InputError: It cannot be read, or it is a link or not a regular file.
        EvomalError: The file cannot be written; also for an error of the system inside the block.
    """
    flags = _CLOEXEC | _NONBLOCK | (os.O_RDWR | os.O_APPEND if writable else os.O_RDONLY)
    flags |= (os.O_CREAT if create else 0) | (0 if follow_links else _NOFOLLOW)

    def opener(name: str, _: int) -> int:
        return os.open(name, flags, 0o666)

    try:
        require_regular(path, missing_ok=create, follow_links=follow_links)
        opened = open(path, "r+b", opener=opener) if writable else open(path, "rb", opener=opener)  # noqa: SIM115
    except InputError:
        raise
    except (OSError, ValueError) as error:  # a ValueError is about a name that no file can have
        raise _explained(path, error, writable=writable) from None
    try:
        with opened as file:
            _require_regular(path, os.fstat(file.fileno()))  # it may have been replaced since the first check
            yield file
    except OSError as error:
        raise _explained(path, error, writable=writable) from None


def unwritable(sentence: str, error: OSError | ValueError) -> EvomalError:
    """Returns the error for what the system did not let be written, with its reason.

    It is bad input if another path is needed, such as where the folder is read-only; a full disk, or a network folder
    that does not answer, is not.
    """
    is_refused = isinstance(error, ValueError) or error.errno in _REFUSALS
    return (InputError if is_refused else EvomalError)(f"{sentence}: {getattr(error, 'strerror', None) or error}")


def require_regular(path: Path, *, missing_ok: bool = False, follow_links: bool = False) -> None:
    """Raises InputError unless the path is a regular file; other errors of the system are the caller's to explain."""
    try:
        _require_regular(path, os.stat(path, follow_symlinks=follow_links))
    except (FileNotFoundError, NotADirectoryError):
        if not missing_ok:
            raise MissingFileError(f"{path}: there is no such file") from None


def create_folder(folder: Path, *, follow_links: bool = True) -> Path:
    """Creates the folder, and those above it, if missing; returns it.

    With `follow_links=False`, for a folder inside one that may be a stranger's, the folder itself may not be a link.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not follow_links and folder.is_symlink():
            raise InputError(f"{folder}: is a link, and nothing is written through it")
    except InputError:
        raise
    except (OSError, ValueError) as error:  # also a name that no file can have
        raise InputError(f"{folder}: cannot be created: {getattr(error, 'strerror', None) or error}") from None
    return folder


def write_atomically(path: Path, content: bytes) -> None:
    """Writes the content atomically: after a crash the file is the old one or the new one, never a part.

    A link is replaced, and the file that it points to is left alone.
    """
    temporary = None
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder, but the name of a file was expected")
        if os.path.lexists(path) and not path.is_symlink():
            require_regular(path)
        handle, temporary = tempfile.mkstemp(prefix=_prefix(path), dir=path.parent)  # never an existing file or a link
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp creates files that only their owner can read
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, (OSError, ValueError)) and not isinstance(error, InputError):
            raise InputError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
        raise


def remove_unfinished(path: Path) -> None:
    """Removes temporary files of processes that died while they wrote the path; no process may be writing it."""
    for left in path.parent.glob(f"{glob.escape(_prefix(path))}*"):
        with contextlib.suppress(OSError):
            left.unlink()


def _require_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a device")
        raise InputError(f"{path}: must be a regular file but is {kind}")


def _explained(path: Path, error: OSError | ValueError, *, writable: bool) -> EvomalError:
    """Returns what to raise for an error of the system."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return MissingFileError(f"{path}: there is no such file")
    if getattr(error, "errno", None) == errno.ELOOP:
        return InputError(f"{path}: must be a regular file but is a link")
    if writable:
        return unwritable(f"{path}: cannot be written", error)
    return InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")


def _prefix(path: Path) -> str:
    return f".{path.name}."


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
