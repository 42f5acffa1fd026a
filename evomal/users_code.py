"""Code of the user's own: models, metrics, losses, task files. What it raises becomes one sentence."""

import contextlib
import functools
import importlib.metadata
import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from evomal.errors import EvomalError, UserCodeError
from evomal.text import one_line

_PASSES = "_evomal_passes"
_TYPED = ("<stdin>", "<string>", "<ipython")  # names of code that was typed in, without a file


@contextlib.contextmanager
def users_code(what: str, kind: type[EvomalError] = UserCodeError) -> Iterator[None]:
    """A context for a call of the user's code, which may raise anything or exit.

    Args:
        what: What is called, as the beginning of the sentence: "the metric hits".
        kind: What to raise instead; its cause is the error of the user's code.
    """
    try:
        yield
    except EvomalError:
        raise  # a sentence already, perhaps from an inner `users_code`
    except (Exception, SystemExit) as error:
        if getattr(error, _PASSES, False):
            raise
        raise kind(f"{what} failed: {described(error)}") from error


def passing(callback: Callable[[int], None]) -> Callable[[int], None]:
    """The callback, whose exceptions pass through `users_code` unchanged: they are how a caller stops the work."""

    def call(steps: int) -> None:
        try:
            callback(steps)
        except (Exception, SystemExit) as error:
            setattr(error, _PASSES, True)
            raise

    return call


def described(error: BaseException) -> str:
    """Type and message of an error on one line, with the place in the user's code if there is one."""
    place = place_of_error(error)
    try:
        message = one_line(error)
    except Exception:  # its own text may be code of the user's, too
        message = type(error).__name__
    name = type(error).__name__
    return (name if message == name else f"{name}: {message}") + (f" ({place})" if place else "")


@functools.cache
def own_folder(file: str) -> str | None:
    """The folder of a file of the user's own; None for the files of installed packages and of evomal."""
    path = os.path.realpath(file)
    return None if path.startswith(_installed()) else os.path.dirname(path)


def place_of_error(error: BaseException) -> str:
    """File and line of the innermost call in the user's own code; an empty text if there is none."""
    if isinstance(error, SyntaxError) and error.filename is not None and own_folder(error.filename) is not None:
        return f"{error.filename}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(_TYPED) or (
            not frame.filename.startswith("<") and own_folder(frame.filename) is not None
        ):
            return f"{frame.filename}, line {frame.lineno}"
    return ""


def place_of_function(function: Any) -> str:
    """File and first line of a function of the user's own; an empty text for any other function."""
    code = getattr(function, "__code__", None)
    if code is None or own_folder(code.co_filename) is None:
        return ""
    return f"{code.co_filename}, line {code.co_firstlineno}"


@functools.cache
def _installed() -> tuple[str, ...]:
    """The beginnings of the paths of installed files."""
    places = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    folders = {os.path.realpath(place) for place in places} | {os.path.dirname(os.path.realpath(__file__))}
    # Installed elsewhere, as by `pip install --target`, perhaps beside files of the user's own.
    elsewhere = {os.path.realpath(place) for place in sys.path if place} - folders
    for place in sorted(elsewhere):
        for found in importlib.metadata.distributions(path=[place]):
            folders |= {os.path.join(place, file.parts[0]) for file in found.files or () if len(file.parts) > 1}
    return tuple(folder + os.sep for folder in folders)
