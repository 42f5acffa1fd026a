"""The seven datasets of the paper: files found, fetched, checked, and read into arrays."""

from evomal.tasks.datasets.fetching import SOURCES, Source, fetch
from evomal.tasks.datasets.images import ImageData
from evomal.tasks.datasets.registry import DATASETS, DatasetInfo, data_folder, dataset_named, load, missing_files
from evomal.tasks.datasets.tables import TableData

__all__ = [
    "DATASETS",
    "SOURCES",
    "DatasetInfo",
    "ImageData",
    "Source",
    "TableData",
    "data_folder",
    "dataset_named",
    "fetch",
    "load",
    "missing_files",
]
