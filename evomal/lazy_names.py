"""Names of a package that are imported when they are first used: importing torch takes seconds."""

import importlib
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

from evomal.extras import missing_library


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
