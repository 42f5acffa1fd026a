"""The image sets: MNIST, CIFAR-10, CIFAR-100 and SVHN."""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evomal.errors import InputError
from evomal.tasks.datasets.reading import check_labels, read_gzip, read_sized, verify

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
