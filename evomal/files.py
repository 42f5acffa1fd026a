"""Files that are written atomically."""

import contextlib
import glob
import os
import tempfile
from pathlib import Path

from evomal.errors import InputError


def create_folder(folder: Path) -> Path:
    """Creates the folder, and those above it, if missing; returns it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created: {error.strerror}") from None
    return folder


def write_atomically(path: Path, content: bytes) -> None:
    """Writes the content atomically: after a crash the file is the old one or the new one, never a part."""
    temporary = None
    try:
        path = path.resolve()  # a link stays a link, and the file it points to is replaced
        if path.is_dir():
            raise InputError(f"{path}: is a folder, but the name of a file was expected")
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is not a regular file, and is left alone")
        handle, temporary = tempfile.mkstemp(prefix=_prefix(path), dir=path.parent)
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


def _prefix(path: Path) -> str:
    return f".{path.name}."


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
