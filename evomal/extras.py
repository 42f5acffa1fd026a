"""Libraries that only some parts of evomal need, imported when they are first used."""

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evomal.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame


def optional_library(module: str, what: str, package: str) -> Any:
    """Returns a module of an optional library.

    Args:
        module: The name to import, such as `onnx` or `torch.utils.tensorboard`.
        what: What needs it, as the beginning of the sentence: "export to onnx".
        package: What to install, such as `pandas` or `'evomal[onnx]'`.

    Raises:
        InputError: The library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = error.name or module
        raise InputError(f"{what} needs {name}, which is not installed: pip install {package}") from None


def data_frame(columns: Mapping[str, Sequence[Any]]) -> "DataFrame":
    """Returns a table as a data frame of pandas. Raises InputError if pandas is not installed."""
    return optional_library("pandas", "a data frame", "pandas").DataFrame(dict(columns))
