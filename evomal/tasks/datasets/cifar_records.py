"""The record files of CIFAR: label bytes, then the red, green and blue plane of a 32×32 image."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evomal.tasks.datasets.reading import check_labels, read_sized

SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32


def read_records(
    path: Path, records: int, label_classes: tuple[int, ...]
) -> tuple[NDArray[np.uint8], list[NDArray[np.int64]]]:
    """Images and one array a label byte; `label_classes` says how many classes each label byte tells apart."""
    labels = len(label_classes)
    length = labels + _PIXELS
    content = read_sized(path, records * length, f"{records} records of {length} bytes")
    table = np.frombuffer(content, np.uint8).reshape(records, length)
    for column, classes in enumerate(label_classes):
        check_labels(path, table[:, column], 0, classes - 1)
    images = table[:, labels:].reshape(records, *SHAPE).copy()
    return images, [table[:, column].astype(np.int64) for column in range(labels)]
