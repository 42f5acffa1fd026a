"""Tasks that the command line or a record names: a built-in name, or `file.py:function`."""

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evomal.errors import InputError

if TYPE_CHECKING:
    from evomal.tasks import Hardships, Task
    from evomal.verdict.comparison import Command


def absolute_file(name: str) -> str:
    """Returns the absolute path of a file; a name that is not a file, such as that of a loss, is returned unchanged."""
    return str(Path(name).resolve()) if os.path.isfile(name) else name


def absolute_task(spec: str) -> str:
    """Returns the specification of a task with the absolute path of its file."""
    if ":" not in spec:
        return spec
    path, _, function = spec.rpartition(":")
    return f"{Path(path).resolve()}:{function}"


def names_python_file(spec: str) -> bool:
    """Whether the specification names a Python file, which is run to make the task."""
    return ":" in spec


def task_from_spec(
    spec: str,
    model: str | None = None,
    data: Path | None = None,
    hardships: "Hardships | None" = None,
    *,
    preset: str = "quick",
) -> "Task":
    """Returns the task; with the preset `paper`, the default model is the one of the paper."""
    from evomal.tasks import Hardships, load_task, task_from_file

    hardships = hardships or Hardships()
    if spec.endswith(".py"):
        raise InputError(f"{spec} must be followed by the function that makes the task, as in {spec}:make_task")
    if not names_python_file(spec):
        usual = "paper" if preset == "paper" else None
        return load_task(spec, model or usual, data=data, hardships=hardships)
    if model is not None or data is not None or hardships != Hardships():
        raise InputError(
            "a task from a file brings its own model and data: --model, --data and options such as --label-noise "
            "apply to built-in tasks only"
        )
    return task_from_file(spec)


def task_source(specs: list[str], tasks: "list[Task]", model: str | None, hardships: "Hardships") -> dict[str, Any]:
    """Returns what a record needs to load the tasks again, with absolute paths."""
    absolute = [absolute_task(spec) for spec in specs]
    if model is None and not any(names_python_file(spec) for spec in specs):
        # Recorded by name, because the default model depends on the preset and the version.
        models = {task.record["model"] for task in tasks}
        model = models.pop() if len(models) == 1 else None
    described = {"tasks": absolute, "model": model, "hardships": dataclasses.asdict(hardships)}
    command = given_command()
    return {**described, "command": {"words": list(command.words), "folder": command.folder}}


def recorded_specs(source: Any) -> list[str]:
    """Returns the specifications of the tasks in a record, which may contain anything."""
    specs = source.get("tasks") if isinstance(source, Mapping) else source
    if not isinstance(specs, list) or not all(isinstance(spec, str) for spec in specs):
        raise InputError(f"the record does not say which tasks it is about: its list of them is {specs!r:.60}")
    return specs


def recorded_tasks(source: Mapping[str, Any], data: Path | None) -> "list[Task]":
    """Returns the tasks of a record; Python files that it names are run."""
    from evomal.tasks import Hardships

    specs = recorded_specs(source)
    try:
        hardships = Hardships(**source["hardships"])
        if not isinstance(source["model"], str | None):
            raise TypeError(f"its model is {source['model']!r:.60}")
        return [task_from_spec(spec, source["model"], data, hardships) for spec in specs]
    except (KeyError, TypeError) as error:
        raise InputError(f"the record does not say which tasks it is about: {error}") from None


def given_command() -> "Command":
    """Returns the command line of this process, with the folder that relative paths start from."""
    from evomal.verdict.comparison import Command

    return Command(("evomal", *sys.argv[1:]), str(Path.cwd()))
