"""Tasks a user has written: `file.py:function`, the function returning a `Task`."""

import importlib.util
from pathlib import Path

from evomal.errors import InputError
from evomal.tasks.task import Task


def task_from_file(spec: str) -> Task:
    """Run the user's own file and call the function it names."""
    path, _, function = spec.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{spec}: there is no file {path!r}")
    module_spec = importlib.util.spec_from_file_location(file.stem, file)
    if module_spec is None or module_spec.loader is None:
        raise InputError(f"{spec}: {path!r} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    make = getattr(module, function, None)
    if not callable(make):
        raise InputError(f"{spec}: {path} has no function {function!r}")
    task = make()
    if not isinstance(task, Task):
        raise InputError(f"{spec}: {function} must return a Task but returned a {type(task).__name__}")
    return task
