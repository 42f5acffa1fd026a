"""Which code is the user's own, and where in it an error was raised."""

import functools
import os
import site
import sysconfig
import traceback
from typing import Any

_TYPED = ("<stdin>", "<string>", "<ipython")  # names of code that was typed in, without a file


@functools.cache
def own_folder(file: str) -> str | None:
    """The folder of a file that is not installed; None for one that is, and for evomal's own."""
    path = os.path.realpath(file)
    return None if path.startswith(_installed()) else os.path.dirname(path)


def place_of_error(error: BaseException) -> str:
    """File and line of the innermost call in the user's own code, or nothing where there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(_TYPED) or (
            not frame.filename.startswith("<") and own_folder(frame.filename) is not None
        ):
            return f"{frame.filename}, line {frame.lineno}"
    return ""


def place_of_function(function: Any) -> str:
    """File and first line of a function of the user's own, or nothing where it is none."""
    code = getattr(function, "__code__", None)
    if code is None or own_folder(code.co_filename) is None:
        return ""
    return f"{code.co_filename}, line {code.co_firstlineno}"


@functools.cache
def _installed() -> tuple[str, ...]:
    places = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    folders = {os.path.realpath(place) for place in places} | {os.path.dirname(os.path.realpath(__file__))}
    return tuple(folder + os.sep for folder in folders)
