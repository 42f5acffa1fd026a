"""CIFAR-10: Krizhevsky, "Learning multiple layers of features from tiny images", 2009; the binary version."""

from pathlib import Path

import numpy as np

from evomal.tasks.datasets.cifar_records import read_records
from evomal.tasks.datasets.raw import ImageData

_FOLDER = "cifar-10-batches-bin"
TRAIN_FILES = tuple(f"{_FOLDER}/data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = f"{_FOLDER}/test_batch.bin"
FILES = (*TRAIN_FILES, TEST_FILE)
ROWS_PER_FILE = 10_000
ROWS = (len(TRAIN_FILES) * ROWS_PER_FILE, ROWS_PER_FILE)
CLASSES = 10


def read_cifar10(folder: Path, rows_per_file: int = ROWS_PER_FILE) -> ImageData:
    """The five training files in their order, then the test file."""
    parts = [read_records(folder / name, rows_per_file, (CLASSES,)) for name in TRAIN_FILES]
    test_images, (test_labels,) = read_records(folder / TEST_FILE, rows_per_file, (CLASSES,))
    return ImageData(
        name="cifar10",
        train_images=np.concatenate([images for images, _ in parts]),
        train_labels=np.concatenate([labels for _, (labels,) in parts]),
        test_images=test_images,
        test_labels=test_labels,
        classes=CLASSES,
    )
