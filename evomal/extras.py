"""Libraries that only some parts of evomal need, imported when they are first used."""

import importlib
from typing import Any

from evomal.errors import InputError


def optional_library(module: str, what: str, extra: str) -> Any:
    """Returns a module of an optional library.

    Args:
        module: The name to import, such as `onnx` or `torch.utils.tensorboard`.
        what: What needs it, as the beginning of the sentence: "export to onnx".
        extra: The extra of evomal that installs it.

    Raises:
        InputError: The library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = error.name or module
        raise InputError(f"{what} needs {name}, which is not installed: pip install 'evomal[{extra}]'") from None
