"""Pickling for other processes: the user's own code is included, and errors name the part that cannot be pickled."""

import functools
import inspect
import os
import pickle
import sys
import threading
from collections.abc import Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle

from evomal.errors import InputError
from evomal.text import one_line, with_article
from evomal.users_code import own_folder

_DEEPEST = 8  # names in a row, as in task.model.net.lock
_MOST_PARTS = 100

_lock = threading.Lock()


def pickled(value: Any, name: str) -> bytes:
    """The value as bytes for a worker; an InputError with its name if it cannot be pickled.

    What a script, a notebook or a task's file defines is pickled by value, as workers may be unable to import it.
    """
    with _lock:  # searches in other threads share the registry
        known = cloudpickle.list_registry_pickle_by_value()
        added = [
            module for module, _ in _users_modules(tuple(map(id, sys.modules.values()))) if module.__name__ not in known
        ]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            content: bytes = cloudpickle.dumps(value)
        except Exception as error:  # a user's object may raise anything
            path, part = _unpicklable_part(value, name)
            kind = with_article(type(part).__name__)
            raise InputError(f"{path} is {kind}, which cannot be sent to a worker: {one_line(error)}") from None
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)
    return content


def unpickle(content: Any) -> Any:
    """The value, in another process."""
    return pickle.loads(content)  # comes from this program's own driver


def folders_of_users_code() -> list[str]:
    """The folders of modules that are not installed: on a shared disk, workers import other modules from there."""
    return sorted({folder for _, folder in _users_modules(tuple(map(id, sys.modules.values())))})


@functools.lru_cache(maxsize=1)
def _users_modules(loaded: tuple[int, ...]) -> list[tuple[ModuleType, str]]:
    """Modules that are not installed, so that other machines may lack them, with their folders.

    They are looked through again only when other modules are `loaded`.
    """
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # Some modules of libraries, such as torch.ops, name a file in no folder.
        if file and os.path.isabs(file) and getattr(module, "__name__", None) == name != "__main__":
            folder = own_folder(file)
            if folder is not None:
                found.append((module, folder))
    return found


def _unpicklable_part(value: Any, name: str) -> tuple[str, Any]:
    """The innermost part that cannot be pickled, with the path to it."""
    path, seen = [name], {id(value)}
    while len(path) < _DEEPEST:
        for inner_name, inner in list(_parts(value).items())[:_MOST_PARTS]:
            if id(inner) not in seen and not _can_be_pickled(inner):
                path.append(inner_name)
                seen.add(id(inner))
                value = inner
                break
        else:
            break
    return ".".join(path), value


def _parts(value: Any) -> dict[str, Any]:
    """What is pickled with a value, by name."""
    if isinstance(value, functools.partial):
        return {"func": value.func, **{str(index): part for index, part in enumerate(value.args)}, **value.keywords}
    if isinstance(value, MethodType):
        return {"__self__": value.__self__}
    if isinstance(value, FunctionType):
        used, parameters = inspect.getclosurevars(value), inspect.signature(value).parameters.values()
        defaults = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
        return {**used.nonlocals, **used.globals, **defaults}
    if isinstance(value, Mapping):
        return {str(key): part for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return {str(index): part for index, part in enumerate(value)}
    if isinstance(value, type):
        return {name: part for name, part in vars(value).items() if not inspect.isdatadescriptor(part)}
    slots = {name for kind in type(value).__mro__ for name in _slots(kind)}
    own = {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)}
    # The class of an object from a script is pickled with it.
    return {**own, **getattr(value, "__dict__", {}), type(value).__name__: type(value)}


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    return [slots] if isinstance(slots, str) else list(slots)


def _can_be_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True
