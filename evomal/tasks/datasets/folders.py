"""The folder that holds the data files: one subfolder a dataset."""

import os
from pathlib import Path

import pooch  # type: ignore[import-untyped]

VARIABLE = "EVOMAL_DATA"


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder given, else the one the environment names, else the user's cache."""
    chosen = folder if folder is not None else os.environ.get(VARIABLE) or pooch.os_cache("evomal")
    return Path(chosen).expanduser()
