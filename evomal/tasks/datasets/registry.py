"""The datasets by name."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evomal.checks import unknown_name
from evomal.errors import InputError
from evomal.tasks.datasets import boston, california, cifar10, cifar100, diabetes, mnist, svhn
from evomal.tasks.datasets.cifar_records import SHAPE as CIFAR_SHAPE
from evomal.tasks.datasets.folders import data_folder
from evomal.tasks.datasets.raw import ImageData, TableData


@dataclass(frozen=True)
class DatasetInfo:
    """A row of the registry."""

    name: str
    kind: Literal["regression", "classification"]
    rows: int  # of a table, all; of images, the training part
    test_rows: int  # 0 where the authors made no test part
    shape: tuple[int, ...]  # of one sample: (features,) or (channels, height, width)
    classes: int | None
    files: tuple[str, ...]  # inside the dataset's own folder
    read: Callable[[Path], TableData | ImageData]


_ROWS = (
    DatasetInfo("diabetes", "regression", diabetes.ROWS, 0, (10,), None, (), diabetes.read_diabetes),
    DatasetInfo("boston", "regression", boston.ROWS, 0, (13,), None, (boston.FILE,), boston.read_boston),
    DatasetInfo(
        "california", "regression", california.ROWS, 0, (8,), None, (california.FILE,), california.read_california
    ),
    DatasetInfo("mnist", "classification", *mnist.ROWS, (1, mnist.SIDE, mnist.SIDE), 10, mnist.FILES, mnist.read_mnist),
    DatasetInfo("cifar10", "classification", *cifar10.ROWS, CIFAR_SHAPE, 10, cifar10.FILES, cifar10.read_cifar10),
    DatasetInfo("cifar100", "classification", *cifar100.ROWS, CIFAR_SHAPE, 100, cifar100.FILES, cifar100.read_cifar100),
    DatasetInfo("svhn", "classification", *svhn.ROWS, svhn.SHAPE, 10, svhn.FILES, svhn.read_svhn),
)

DATASETS: dict[str, DatasetInfo] = {row.name: row for row in _ROWS}


def dataset_named(name: str) -> DatasetInfo:
    """The registry's row of that name."""
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    return DATASETS[name]


def missing_files(name: str, folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """The files of a dataset that are not where they should be."""
    home = data_folder(folder) / name
    return [home / file for file in dataset_named(name).files if not (home / file).is_file()]


def load(name: str, folder: str | os.PathLike[str] | None = None) -> TableData | ImageData:
    """Reads a dataset from files that are already there; nothing is downloaded here."""
    missing = missing_files(name, folder)
    if missing:
        raise InputError(
            f"{name} needs the file {missing[0]}, which is not there: fetch it with `evomal data fetch {name}`"
        )
    return dataset_named(name).read(data_folder(folder) / name)
