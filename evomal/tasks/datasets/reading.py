"""Reading data files with suspicion: whatever is wrong becomes one sentence that begins with the file's path."""

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evomal.errors import InputError


@contextmanager
def opened_safely(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals into sentences."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_sized(path: Path, size: int, meaning: str) -> bytes:
    """The bytes of a file that must have exactly this size; the size is compared before anything is read."""
    with opened_safely(path):
        found = path.stat().st_size
        if found == size:
            content = path.read_bytes()
            found = len(content)
    if found != size:
        raise InputError(f"{path}: {meaning} must take {size} bytes, but the file has {found}")
    return content


def read_gzip(path: Path, limit: int) -> bytes:
    """The unpacked bytes, at most one more than the limit, so that a file which swells cannot fill the memory."""
    with opened_safely(path):
        try:
            with gzip.open(path) as file:
                return file.read(limit + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path}: is not a whole gzip file: {str(error).rstrip('.')}") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a table; every line must be finished, as a number cut short would still be a number."""
    with opened_safely(path):
        content = path.read_bytes()
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: must be plain text, but byte {error.start} is {content[error.start]:#04x}") from None
    if not text.endswith("\n"):
        raise InputError(f"{path}: ends in the middle of a line")
    return text.splitlines()


def read_numbers(path: Path, lines: list[str], columns: int, *, first_line: int = 1) -> NDArray[np.float64]:
    """Finite numbers separated by commas, the same count in every line."""
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


def check_labels(path: Path, labels: NDArray[Any], lowest: int, highest: int) -> None:
    """Every label is a class there is."""
    outside = (labels < lowest) | (labels > highest)
    if outside.any():
        record = int(np.argmax(outside))
        raise InputError(
            f"{path}: labels must be from {lowest} to {highest}, but record {record} has {labels[record].item()}"
        )


def check_rows(path: os.PathLike[str], found: int, expected: int, noun: str = "rows") -> None:
    """The file has as many rows as the dataset."""
    if found != expected:
        raise InputError(f"{path}: must have {expected} {noun}, but has {found}")
