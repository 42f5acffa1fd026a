"""The seven datasets of the paper: files found, fetched, checked, and read into arrays."""

from evomal.tasks.datasets.fetching import SOURCES, Download, fetch
from evomal.tasks.datasets.readers import ImageData, TableData
from evomal.tasks.datasets.registry import DATASETS, DatasetInfo, data_folder, dataset_named, load, missing_files

__all__ = [
    "DATASETS",
    "SOURCES",
    "DatasetInfo",
    "Download",
    "ImageData",
    "TableData",
    "data_folder",
    "dataset_named",
    "fetch",
    "load",
    "missing_files",
]
