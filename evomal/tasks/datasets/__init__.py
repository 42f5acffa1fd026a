"""The seven datasets of the paper: files found, fetched, checked, and read into arrays."""

from evomal.tasks.datasets.fetching import SOURCES, Source, fetch
from evomal.tasks.datasets.readers import ImageData, TableData
from evomal.tasks.datasets.registry import DATASETS, DatasetInfo, data_folder, dataset_named, load, missing_files

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
