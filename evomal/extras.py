"""Libraries that only some parts of evomal need, and what is imported only when it is used.

Losses work with torch and NumPy alone, and importing torch takes seconds.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evomal.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

_DISTRIBUTIONS = {"markdown_it": "markdown-it-py", "sklearn": "scikit-learn"}
"""The distributions whose name is not that of their module."""


class MissingLibraryError(InputError, ImportError):
    """A library that a part of evomal needs is not installed; the sentence says how to install it."""


def optional_library(module: str, what: str, package: str) -> Any:
    """Returns a module of an optional library.

    Args:
        module: The name to import, such as `onnx` or `torch.utils.tensorboard`.
        what: What needs it, as the beginning of the sentence: "export to onnx".
        package: What to install, such as `pandas` or `'evomal[onnx]'`.

    Raises:
        MissingLibraryError: The library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_library(what, error, package) from None


@contextlib.contextmanager
def imports_of(what: str) -> Iterator[None]:
    """A context for imports that raises the sentence of `missing_library` where a library is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_library(what, error) from None


def data_frame(columns: Mapping[str, Sequence[Any]]) -> "DataFrame":
    """Returns a table as a pandas data frame. Raises InputError if pandas is not installed."""
    return optional_library("pandas", "a data frame", "pandas").DataFrame(dict(columns))


def missing_library(
    what: str, error: ModuleNotFoundError, package: str | None = None
) -> ModuleNotFoundError | InputError:
    """Returns the error to raise for a missing module, which is the given one if no extra of evomal installs it.

    Args:
        what: What needs the module, as the beginning of the sentence.
        error: The error of its import.
        package: What to install; by default the smallest extra of evomal that has the library.
    """
    name = (error.name or "").partition(".")[0]
    if name in sys.stdlib_module_names:
        return MissingLibraryError(f"{what} needs Python's module {name}, which this platform does not have")
    distribution = _DISTRIBUTIONS.get(name, name).replace("_", "-")
    if package is None:
        fitting = [(len(libraries), extra) for extra, libraries in extras().items() if distribution in libraries]
        if not fitting:
            return error
        package = f"'evomal[{min(fitting)[1]}]'"
    return MissingLibraryError(f"{what} needs {distribution}, which is not installed: pip install {package}")


def extras() -> dict[str, tuple[str, ...]]:
    """Returns the libraries of each extra by name, as evomal declares them if it is installed."""
    found: dict[str, list[str]] = {}
    try:
        lines = importlib.metadata.requires("evomal") or ()
    except importlib.metadata.PackageNotFoundError:
        return {}
    for line in lines:
        needed = re.match(r"([\w.-]+).*;.*\bextra == ['\"]([\w-]+)['\"]", line)
        if needed and needed[1] != "evomal":
            found.setdefault(needed[2], []).append(needed[1].lower())
    return {extra: tuple(libraries) for extra, libraries in found.items()}


@functools.cache
def has_numba() -> bool:
    """Whether numba is installed, which compiles the kernels for the CPU."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed, which compiles the kernels for CUDA."""
    return importlib.util.find_spec("triton") is not None


def lazy_names(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package, from the names, separated by spaces, that each module defines.

    Type checkers must be shown the imports instead, as they would otherwise accept every name.

    Example:
        >>> found = lazy_names("evomal", {"evomal.units": "Units"})
        >>> found("Units").__name__
        'Units'
    """
    modules = {name: module for module, listed in names.items() for name in listed.split()}

    def imported(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        state = random.getstate()
        try:
            module = importlib.import_module(modules[name])
        except ModuleNotFoundError as error:
            raise missing_library(f"{package}.{name}", error) from None
        finally:
            random.setstate(state)  # rich draws from it when it is imported
        found = module if modules[name].endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return imported


class Displayed:
    """A class whose objects notebooks display as HTML, which `evomal.report.notebook` makes."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        try:
            # Imported by name and only now: drawing needs matplotlib, and is above everything that can be displayed.
            notebook = importlib.import_module("evomal.report.notebook")
            html: str = notebook.html_of(self)
            return html
        except Exception:  # The notebook then shows the plain text: a display must never cost anyone a result.
            return None
