"""CIFAR-100: Krizhevsky, "Learning multiple layers of features from tiny images", 2009; the binary version."""

from pathlib import Path

from evomal.tasks.datasets.cifar_records import read_records
from evomal.tasks.datasets.raw import ImageData

TRAIN_FILE, TEST_FILE = "cifar-100-binary/train.bin", "cifar-100-binary/test.bin"
FILES = (TRAIN_FILE, TEST_FILE)
ROWS = (50_000, 10_000)
CLASSES = 100
_COARSE_CLASSES = 20


def read_cifar100(folder: Path, rows: tuple[int, int] = ROWS) -> ImageData:
    """The fine labels; the coarse byte before them is checked, as a shifted file would show there, and dropped."""
    train, test = rows
    train_images, (_, train_labels) = read_records(folder / TRAIN_FILE, train, (_COARSE_CLASSES, CLASSES))
    test_images, (_, test_labels) = read_records(folder / TEST_FILE, test, (_COARSE_CLASSES, CLASSES))
    return ImageData(
        name="cifar100",
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        classes=CLASSES,
    )
