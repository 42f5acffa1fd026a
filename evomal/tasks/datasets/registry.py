"""The datasets by name, and the folder that holds their files."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pooch  # type: ignore[import-untyped]

from evomal.checks import named, path_to
from evomal.errors import InputError
from evomal.tasks.datasets import readers
from evomal.tasks.datasets.readers import ImageData, TableData

DATA_VARIABLE = "EVOMAL_DATA"


@dataclass(frozen=True)
class DatasetInfo:
    """A row of the registry."""

    name: str
    rows: int  # of a table: all; of images: the training part
    test_rows: int  # 0 where the authors made no test part
    shape: tuple[int, ...]  # of one sample: (features,) or (channels, height, width)
    classes: int | None  # None for regression
    files: tuple[str, ...]  # inside the dataset's own folder
    read: Callable[[Path, tuple[int, int]], TableData | ImageData]  # from the folder and (rows, test rows)

    @property
    def kind(self) -> Literal["regression", "classification"]:
        return "regression" if self.classes is None else "classification"


_ROWS = (
    DatasetInfo("diabetes", 442, 0, (10,), None, (), readers.read_diabetes),
    DatasetInfo("boston", 506, 0, (13,), None, (readers.BOSTON_FILE,), readers.read_boston),
    DatasetInfo("california", 20_640, 0, (8,), None, (readers.CALIFORNIA_FILE,), readers.read_california),
    DatasetInfo("mnist", 60_000, 10_000, (1, 28, 28), 10, readers.MNIST_FILES, readers.read_mnist),
    DatasetInfo("cifar10", 50_000, 10_000, (3, 32, 32), 10, readers.CIFAR10_FILES, readers.read_cifar10),
    DatasetInfo("cifar100", 50_000, 10_000, (3, 32, 32), 100, readers.CIFAR100_FILES, readers.read_cifar100),
    DatasetInfo("svhn", 73_257, 26_032, (3, 32, 32), 10, tuple(readers.SVHN_CHECKSUMS), readers.read_svhn),
)

DATASETS: dict[str, DatasetInfo] = {row.name: row for row in _ROWS}


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder given, else the one that EVOMAL_DATA names, else the user's cache folder.

    Each dataset has its own subfolder there.
    """
    chosen = folder if folder is not None else os.environ.get(DATA_VARIABLE) or pooch.os_cache("evomal")
    path = path_to("data", chosen)
    try:
        return path.expanduser()
    except RuntimeError:  # for ~NAME, if there is no such user
        raise InputError(f"data must be a folder but got {str(path)!r}, and there is no such user") from None


def dataset_named(name: str) -> DatasetInfo:
    """Return the registry's row of that name."""
    return named("dataset", name, DATASETS)


def missing_files(name: str, folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the files of a dataset that are not in its folder."""
    home = data_folder(folder) / name
    return [home / file for file in dataset_named(name).files if not os.path.isfile(home / file)]


def load(name: str, folder: str | os.PathLike[str] | None = None) -> TableData | ImageData:
    """Read a dataset from its files; nothing is downloaded."""
    missing = missing_files(name, folder)
    if missing:
        raise InputError(
            f"{name} needs the file {missing[0]}, which is not there: fetch it with `evomal data fetch {name}`"
        )
    info = dataset_named(name)
    return info.read(data_folder(folder) / name, (info.rows, info.test_rows))
