"""Tasks a user has written: `file.py:function`, the function returning a `Task`."""

import importlib.util
import sys
import traceback
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
    sys.modules.setdefault(file.stem, module)  # dataclasses look their module up there
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # for what lies beside the file; behind everything else, so as to hide nothing
    try:
        module_spec.loader.exec_module(module)
        make = getattr(module, function, None)
        if not callable(make):
            raise InputError(f"{spec}: {path} has no function {function!r}")
        task = make()
    except InputError:
        raise
    except Exception as error:  # a user's file may raise anything
        raise InputError(f"{spec}: {_place(error, file)}{type(error).__name__}: {error}") from None
    if not isinstance(task, Task):
        raise InputError(f"{spec}: {function} must return a Task but returned a {type(task).__name__}")
    return task


def _place(error: Exception, file: Path) -> str:
    """The last line of the file that had a part in it."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"line {error.lineno}: "
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return f"line {lines[-1]}: " if lines else ""
