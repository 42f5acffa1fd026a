"""Readers of the datasets' files; every error begins with the path of the file."""

import csv
import gzip
import hashlib
import math
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

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


BOSTON_FILE = "boston_house_prices.csv"
BOSTON_COLUMNS = (
    "CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT", "MEDV",
)  # fmt: skip
CALIFORNIA_FILE = "cal_housing.data"
_CALIFORNIA_COLUMNS = 9
_CALIFORNIA_PRICE_UNIT = 100_000.0  # dollars


@dataclass(frozen=True, eq=False)
class TableData:
    """A regression table as its files hold it, neither split nor standardised."""

    features: NDArray[np.float64]  # samples × features
    targets: NDArray[np.float64]  # samples


def read_diabetes(folder: Path, rows: tuple[int, int]) -> TableData:
    """Read Diabetes (Efron et al., "Least Angle Regression", 2004), which ships with scikit-learn.

    The features are the raw measurements: scikit-learn's scaled version uses the statistics of all rows, also of those
    of the test part.
    """
    # Imported here: importing scikit-learn takes a second, which those who only want a loss should not wait for.
    from sklearn.datasets import load_diabetes

    features, targets = load_diabetes(return_X_y=True, scaled=False)
    return TableData(np.ascontiguousarray(features, dtype=np.float64), np.ascontiguousarray(targets, dtype=np.float64))


def read_boston(folder: Path, rows: tuple[int, int]) -> TableData:
    """Read Boston housing (Harrison and Rubinfeld, "Hedonic prices and the demand for clean air", 1978).

    The file is the one that scikit-learn once shipped: a line of counts, a line of names, then the rows with the price
    last.
    """
    path = folder / BOSTON_FILE
    lines = read_lines(path)
    expected_counts = [str(rows[0]), str(len(BOSTON_COLUMNS) - 1)]
    counts = lines[0].split(",")[:2] if lines else []
    if counts != expected_counts:
        raise InputError(f"{path}: must begin with the counts {','.join(expected_counts)}, but begins with {lines[:1]}")
    names = tuple(next(csv.reader(lines[1:2]), ()))
    if names != BOSTON_COLUMNS:
        columns = ",".join(BOSTON_COLUMNS)
        raise InputError(f"{path}: the second line must name the columns {columns}, but is {lines[1:2]}")
    check_rows(path, len(lines) - 2, rows[0])
    table = read_numbers(path, lines[2:], len(BOSTON_COLUMNS), first_line=3)
    return TableData(table[:, :-1].copy(), table[:, -1].copy())


def read_california(folder: Path, rows: tuple[int, int]) -> TableData:
    """Read California housing (Pace and Barry, "Sparse spatial autoregressions", 1997) from the StatLib file.

    The features are those of scikit-learn's copy, in its order, so that results can be compared: income, age, rooms
    and bedrooms per household, population, people per household, latitude, longitude. The target is the price in
    units of 100 000 dollars.
    """
    path = folder / CALIFORNIA_FILE
    lines = read_lines(path)
    check_rows(path, len(lines), rows[0])
    table = read_numbers(path, lines, _CALIFORNIA_COLUMNS)
    longitude, latitude, age, rooms, bedrooms, population, households, income, price = table.T
    if (households <= 0).any():
        line = int(np.argmax(households <= 0))
        raise InputError(f"{path}: line {line + 1} must count at least one household, but has {households[line]:g}")
    per_household = (rooms / households, bedrooms / households, population, population / households)
    features = np.stack((income, age, *per_household, latitude, longitude), axis=1)
    return TableData(features, price / _CALIFORNIA_PRICE_UNIT)


MNIST_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MNIST_SIDE = 28
_IDX_BYTES = 0x08  # the type code of unsigned bytes

CIFAR_SHAPE = (3, 32, 32)
CIFAR10_FILES = (
    *(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)),
    "cifar-10-batches-bin/test_batch.bin",
)
CIFAR100_FILES = ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin")
_CIFAR100_LABELS = (20, 100)  # coarse classes, fine classes

SVHN_CHECKSUMS: Mapping[str, str] = MappingProxyType(
    {
        "train_32x32.mat": "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        "test_32x32.mat": "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    }
)


@dataclass(frozen=True, eq=False)
class ImageData:
    """Labelled images in the two parts that their authors made: samples × channels × height × width."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


def read_mnist(folder: Path, rows: tuple[int, int]) -> ImageData:
    """Read MNIST (LeCun, Cortes and Burges), four gzip files in the IDX format."""
    parts: list[Any] = []
    for images, labels, count in zip(MNIST_FILES[::2], MNIST_FILES[1::2], rows, strict=True):
        pixels = _read_idx(folder / images, (count, _MNIST_SIDE, _MNIST_SIDE))
        digits = _read_idx(folder / labels, (count,))
        check_labels(folder / labels, digits, classes=10)
        parts += [pixels[:, None].copy(), digits.astype(np.int64)]
    return ImageData(*parts)


def _read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an array of bytes in the IDX format.

    The file holds a magic number (type code, number of dimensions), the dimensions as big-endian 32-bit numbers, and
    the bytes.
    """
    start, size = 4 * (1 + len(shape)), math.prod(shape)
    content = read_gzip(path, start + size)
    magic = _IDX_BYTES << 8 | len(shape)
    found_magic = int.from_bytes(content[:4], "big")
    if found_magic != magic:
        raise InputError(f"{path}: must begin with the magic number {magic:#010x}, but begins with {found_magic:#010x}")
    if len(content) < start:
        raise InputError(f"{path}: must have a header of {start} bytes, but has {len(content)} bytes in all")
    found_shape = struct.unpack(f">{len(shape)}I", content[4:start])
    if found_shape != shape:
        expected, found = ("×".join(map(str, sizes)) for sizes in (shape, found_shape))
        raise InputError(f"{path}: must hold an array of {expected}, but announces {found}")
    if len(content) != start + size:
        found = "more" if len(content) > start + size else str(len(content))
        raise InputError(f"{path}: must unpack to {start + size} bytes, but unpacks to {found}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_cifar10(folder: Path, rows: tuple[int, int]) -> ImageData:
    """Read CIFAR-10 (Krizhevsky, "Learning multiple layers of features from tiny images", 2009), binary version."""
    *train_files, test_file = CIFAR10_FILES
    train_rows, test_rows = rows
    parts = [_read_cifar_records(folder / file, train_rows // len(train_files), (10,)) for file in train_files]
    return ImageData(
        np.concatenate([images for images, _ in parts]),
        np.concatenate([labels for _, labels in parts]),
        *_read_cifar_records(folder / test_file, test_rows, (10,)),
    )


def read_cifar100(folder: Path, rows: tuple[int, int]) -> ImageData:
    """Read CIFAR-100 (Krizhevsky 2009, as above), binary version, with the fine labels."""
    train, test = (
        _read_cifar_records(folder / file, count, _CIFAR100_LABELS)
        for file, count in zip(CIFAR100_FILES, rows, strict=True)
    )
    return ImageData(*train, *test)


def _read_cifar_records(
    path: Path, records: int, label_classes: tuple[int, ...]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read records of label bytes followed by the red, green and blue plane of an image.

    Returns:
        The images, and the last label of each record. Earlier labels are only checked: in a shifted file they are out
        of range.
    """
    length = len(label_classes) + math.prod(CIFAR_SHAPE)
    content = read_sized(path, records * length, f"{records} records of {length} bytes")
    table = np.frombuffer(content, np.uint8).reshape(records, length)
    for column, classes in enumerate(label_classes):
        check_labels(path, table[:, column], classes)
    images = table[:, len(label_classes) :].reshape(records, *CIFAR_SHAPE).copy()
    return images, table[:, len(label_classes) - 1].astype(np.int64)


def read_svhn(folder: Path, rows: tuple[int, int], checksums: Mapping[str, str] = SVHN_CHECKSUMS) -> ImageData:
    """Read SVHN (Netzer et al., "Reading digits in natural images", 2011), the cropped digits.

    Only files with the known checksums are parsed: a damaged MATLAB file can crash the interpreter inside scipy. So
    nothing else about the files has to be checked.
    """
    train, test = (_read_svhn_part(folder / file, checksum) for file, checksum in checksums.items())
    return ImageData(*train, *test)


def _read_svhn_part(path: Path, checksum: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    # Imported here: only this dataset needs it.
    from scipy.io import loadmat  # type: ignore[import-untyped]

    verify(path, checksum)
    arrays = loadmat(path, variable_names=("X", "y"))
    # MATLAB counts from one, so the authors wrote the digit 0 as label 10.
    digits = arrays["y"][:, 0].astype(np.int64) % 10
    return np.ascontiguousarray(arrays["X"].transpose(3, 2, 0, 1)), digits
