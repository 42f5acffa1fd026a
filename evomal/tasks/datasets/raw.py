"""What a loader returns: the numbers of the files, neither split nor standardised."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class TableData:
    """A regression table: one row a sample."""

    name: str
    features: NDArray[np.float64]  # n × d
    targets: NDArray[np.float64]  # n
    feature_names: tuple[str, ...]
    target_name: str


@dataclass(frozen=True, eq=False)
class ImageData:
    """Labelled images in the two parts their authors made: samples × channels × height × width."""

    name: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    classes: int
