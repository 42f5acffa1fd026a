"""SVHN: Netzer et al., "Reading digits in natural images", 2011; the cropped digits, MATLAB version 5 files."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evomal.errors import InputError
from evomal.tasks.datasets.matlab import read_arrays
from evomal.tasks.datasets.raw import ImageData
from evomal.tasks.datasets.reading import check_labels

TRAIN_FILE, TEST_FILE = "train_32x32.mat", "test_32x32.mat"
FILES = (TRAIN_FILE, TEST_FILE)
ROWS = (73_257, 26_032)
CLASSES = 10
SHAPE = (3, 32, 32)


def read_svhn(folder: Path, rows: tuple[int, int] = ROWS) -> ImageData:
    """Both parts, with the digit itself as the label."""
    train, test = rows
    train_images, train_labels = _read_part(folder / TRAIN_FILE, train)
    test_images, test_labels = _read_part(folder / TEST_FILE, test)
    return ImageData(
        name="svhn",
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        classes=CLASSES,
    )


def _read_part(path: Path, rows: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    arrays = read_arrays(path, limit=rows * math.prod(SHAPE))
    for name in ("X", "y"):
        if name not in arrays:
            raise InputError(f"{path}: must hold the array {name}, but has none")
    images, labels = arrays["X"], arrays["y"]
    expected = (32, 32, 3, rows)
    if images.shape != expected or images.dtype != np.uint8:
        raise InputError(f"{path}: X must be bytes of shape {expected}, but is {images.dtype} of {images.shape}")
    if labels.shape != (rows, 1) or labels.dtype.kind not in "uif":
        raise InputError(f"{path}: y must be numbers of shape {(rows, 1)}, but is {labels.dtype} of {labels.shape}")
    check_labels(path, labels[:, 0], 1, CLASSES)
    if (labels % 1 != 0).any():
        raise InputError(f"{path}: labels must be whole numbers, but one is {labels[labels % 1 != 0][0]}")
    # MATLAB counts from one, so the authors wrote the digit 0 as label 10.
    digits = labels[:, 0].astype(np.int64) % CLASSES
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits
