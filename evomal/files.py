"""Files that are written whole or not at all."""

import contextlib
import glob
import os
import tempfile
from pathlib import Path

from evomal.errors import InputError


def made_folder(folder: Path) -> Path:
    """The folder, made with those above it where they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    return folder


def write_whole(path: Path, content: bytes) -> None:
    """Put the content where the path says in one step: a crash leaves the old file or the new one, never half."""
    temporary = None
    try:
        path = path.resolve()  # a link stays a link, and what it points to is replaced
        if path.is_dir():
            raise InputError(f"{path}: is a folder, but the name of a file was expected")
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is not a regular file, and is left alone")
        handle, temporary = tempfile.mkstemp(prefix=_prefix(path), dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files for their owner alone
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, (OSError, ValueError)) and not isinstance(error, InputError):
            raise InputError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
        raise


def remove_unfinished(path: Path) -> None:
    """Remove what processes left beside the path that died while they wrote it; nobody else may be writing it."""
    for left in path.parent.glob(f"{glob.escape(_prefix(path))}*"):
        with contextlib.suppress(OSError):
            left.unlink()


def _prefix(path: Path) -> str:
    return f".{path.name}."


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
