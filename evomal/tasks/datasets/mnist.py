"""MNIST: LeCun, Cortes and Burges; four gzip files in the IDX format.

IDX: a magic number (type 8 for bytes, then how many dimensions), the dimensions as big-endian 32-bit numbers,
the bytes.
"""

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evomal.errors import InputError
from evomal.tasks.datasets.raw import ImageData
from evomal.tasks.datasets.reading import check_labels, read_gzip

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)
ROWS = (60_000, 10_000)
CLASSES = 10
SIDE = 28
_BYTES = 0x08


def read_mnist(folder: Path, rows: tuple[int, int] = ROWS) -> ImageData:
    """The digits as they were published."""
    train, test = rows
    return ImageData(
        name="mnist",
        train_images=_images(folder / TRAIN_IMAGES, train),
        train_labels=_labels(folder / TRAIN_LABELS, train),
        test_images=_images(folder / TEST_IMAGES, test),
        test_labels=_labels(folder / TEST_LABELS, test),
        classes=CLASSES,
    )


def _images(path: Path, rows: int) -> NDArray[np.uint8]:
    return _read_idx(path, (rows, SIDE, SIDE)).reshape(rows, 1, SIDE, SIDE).copy()


def _labels(path: Path, rows: int) -> NDArray[np.int64]:
    labels = _read_idx(path, (rows,))
    check_labels(path, labels, 0, CLASSES - 1)
    return labels.astype(np.int64)


def _read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    start, size = 4 * (1 + len(shape)), math.prod(shape)
    content = read_gzip(path, start + size)
    magic = _BYTES << 8 | len(shape)
    found_magic = int.from_bytes(content[:4], "big")
    if found_magic != magic:
        raise InputError(f"{path}: must begin with the magic number {magic:#010x}, but begins with {found_magic:#010x}")
    if len(content) < start:
        raise InputError(f"{path}: must have a header of {start} bytes, but has {len(content)} bytes in all")
    found_shape = struct.unpack(f">{len(shape)}I", content[4:start])
    if found_shape != shape:
        raise InputError(f"{path}: must hold an array of {_times(shape)}, but announces {_times(found_shape)}")
    if len(content) != start + size:
        found = "more" if len(content) > start + size else str(len(content))
        raise InputError(f"{path}: must unpack to {start + size} bytes, but unpacks to {found}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
