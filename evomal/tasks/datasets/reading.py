"""Reading data files: whatever is wrong with one becomes one sentence that begins with its path."""

import gzip
import hashlib
import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evomal.errors import InputError
from evomal.files import open_foreign, read_foreign

_LARGEST_FILE = 2**30  # bytes: several times the largest file of a dataset

_LONGEST_TABLE = 256 * 1024 * 1024  # bytes


def read_sized(path: Path, size: int, meaning: str) -> bytes:
    """Read a file that must have exactly this size; the size is compared before anything is read."""
    with open_foreign(path, follow_links=True) as file:
        found = os.fstat(file.fileno()).st_size
        if found == size:
            content = file.read(size + 1)
            found = len(content)
    if found != size:
        raise InputError(f"{path}: {meaning} must take {size} bytes, but the file has {found}")
    return content


def read_gzip(path: Path, limit: int) -> bytes:
    """Unpack at most one byte more than the limit, so that no file can fill the memory."""
    with open_foreign(path, follow_links=True) as packed:
        try:
            with gzip.open(packed) as file:
                return file.read(limit + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path}: is not a complete gzip file: {str(error).rstrip('.')}") from None


def read_lines(path: Path) -> list[str]:
    """Read the lines of a table; the last line must end too, as a number that is cut short is still a number."""
    content = read_foreign(path, limit=_LONGEST_TABLE, follow_links=True)
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: must be plain text, but byte {error.start} is {content[error.start]:#04x}") from None
    if not text.endswith("\n"):
        raise InputError(f"{path}: ends in the middle of a line")
    return text.splitlines()


def read_numbers(path: Path, lines: list[str], columns: int, *, first_line: int = 1) -> NDArray[np.float64]:
    """Parse finite numbers separated by commas, the same count in every line."""
    table = np.empty((len(lines), columns), dtype=np.float64)
    for row, line in enumerate(lines):
        place = f"{path}: line {row + first_line}"
        cells = line.split(",")
        if len(cells) != columns:
            raise InputError(f"{place} must have {columns} numbers, but has {len(cells)}")
        try:
            table[row] = [float(cell) for cell in cells]
        except ValueError:
            raise InputError(f"{place} must hold numbers only, but is {line[:60]!r}") from None
        if not np.isfinite(table[row]).all():
            raise InputError(f"{place} must hold finite numbers only, but is {line[:60]!r}")
    return table


def check_labels(path: Path, labels: NDArray[np.uint8], classes: int) -> None:
    """Raise unless every label is the number of a class."""
    outside = labels >= classes
    if outside.any():
        record = int(np.argmax(outside))
        raise InputError(
            f"{path}: labels must be from 0 to {classes - 1}, but record {record} has {labels[record].item()}"
        )


def check_rows(path: Path, found: int, expected: int) -> None:
    """Raise unless the file has as many rows as the dataset."""
    if found != expected:
        raise InputError(f"{path}: must have {expected} rows, but has {found}")


def verify(path: Path, checksum: str) -> None:
    """Raise unless the file has the checksum, given as "algorithm:hexadecimal digest"."""
    algorithm, expected = checksum.split(":")
    with open_foreign(path, follow_links=True) as file:
        if (size := os.fstat(file.fileno()).st_size) > _LARGEST_FILE:
            raise InputError(f"{path}: must have at most {_LARGEST_FILE:,} bytes but has {size:,}")
        received = hashlib.file_digest(file, algorithm).hexdigest()
    if received != expected:
        raise InputError(
            f"{path}: must have the {algorithm} checksum {expected}, but has {received}: delete it and fetch it again"
        )
