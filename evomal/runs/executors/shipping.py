"""Objects made fit to be sent to other processes, a user's own code included."""

import contextlib
import functools
import inspect
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from evomal.errors import InputError
from evomal.users_code import own_folder

_DEEPEST = 8  # names in a row, as in task.model.net.lock; behind that it would help nobody
_MOST_PARTS = 100

_lock = threading.Lock()
_lent: list[ModuleType] = []
_packers = 0


@contextlib.contextmanager
def packing() -> Iterator[Callable[[Any, str], bytes]]:
    """For this block, a function that makes bytes of a value of some name.

    What a script, a notebook or a task's file defines goes along whole, not as a name that others cannot look up.
    """
    from ray import cloudpickle

    global _packers
    with _lock:
        known = cloudpickle.list_registry_pickle_by_value()
        added = [module for module, _ in _users_modules() if module.__name__ not in known]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        _lent.extend(added)
        _packers += 1
    try:
        yield _packed
    finally:
        with _lock:
            _packers -= 1
            if _packers == 0:  # searches in other threads may still need them
                for module in _lent:
                    cloudpickle.unregister_pickle_by_value(module)
                _lent.clear()


def unpacked(content: Any) -> Any:
    """The value again, in another process."""
    return pickle.loads(content)  # from this program's own driver


def folders_of_users_code() -> list[str]:
    """Where modules lie that are not installed: what they import later may be found there, if the disk is shared."""
    return sorted({folder for _, folder in _users_modules()})


def _packed(value: Any, name: str) -> bytes:
    from ray import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:  # what refuses to be pickled may raise anything
        path, culprit = _culprit(value, name)
        kind = type(culprit).__name__
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is a {kind}, which cannot be sent to a worker: {reason}") from None
    return content


def _users_modules() -> Iterator[tuple[ModuleType, str]]:
    """Modules that other machines need not have, with their folders: all that are not installed."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and getattr(module, "__name__", None) == name != "__main__":
            folder = own_folder(file)
            if folder is not None:
                yield module, folder


def _culprit(value: Any, name: str) -> tuple[str, Any]:
    """The innermost part that cannot be pickled, and what leads to it."""
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
    if isinstance(value, functools.partial):
        return {"func": value.func, **{str(index): part for index, part in enumerate(value.args)}, **value.keywords}
    if isinstance(value, MethodType):
        return {"__self__": value.__self__}
    if isinstance(value, FunctionType):
        used = inspect.getclosurevars(value)
        return {**used.nonlocals, **used.globals, **_defaults(value)}
    if isinstance(value, Mapping):
        return {str(key): part for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return {str(index): part for index, part in enumerate(value)}
    if isinstance(value, type):
        return {name: part for name, part in vars(value).items() if not inspect.isdatadescriptor(part)}
    slots = {name for kind in type(value).__mro__ for name in _slots(kind)}
    own = {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)}
    # A class of a script goes along whole, so that its methods may be to blame.
    return {**own, **getattr(value, "__dict__", {}), type(value).__name__: type(value)}


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    return [slots] if isinstance(slots, str) else list(slots)


def _defaults(function: FunctionType) -> dict[str, Any]:
    """Of the parameters that have one, by their names."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}


def _can_be_pickled(value: Any) -> bool:
    from ray import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True
