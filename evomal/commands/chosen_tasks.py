"""From what people type to tasks: a built-in name or `file.py:function`, a model, a folder, hardships."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evomal.commands.whole_paths import whole_task
from evomal.errors import InputError
from evomal.tasks import Hardships, Task, load_task, task_from_file


def is_of_a_file(spec: str) -> bool:
    """Whether a specification names a Python file, which is run to have the task."""
    return ":" in spec


def chosen_task(spec: str, model: str | None, data: Path | None, hardships: Hardships) -> Task:
    """The task that a specification names."""
    if not is_of_a_file(spec):
        return load_task(spec, model, data=data, hardships=hardships)
    if model is not None or data is not None or hardships != Hardships():
        raise InputError(
            "a task from a file brings its own model and data: --model, --data and hardships are its own affair"
        )
    return task_from_file(spec)


def source_of(specs: list[str], model: str | None, hardships: Hardships) -> dict[str, Any]:
    """What a record keeps, so that the tasks can be had again; files by their whole paths."""
    whole = [whole_task(spec) for spec in specs]
    return {"tasks": whole, "model": model, "hardships": dataclasses.asdict(hardships)}


def specs_in(source: Any) -> list[str]:
    """The specifications of tasks that a record keeps, which may be a stranger's."""
    specs = source.get("tasks") if isinstance(source, Mapping) else source
    if not isinstance(specs, list) or not all(isinstance(spec, str) for spec in specs):
        raise InputError(f"the record does not say which tasks it is about: its list of them is {specs!r:.60}")
    return specs


def tasks_from(source: Mapping[str, Any], data: Path | None) -> list[Task]:
    """The tasks of a record; a Python file that it names is run."""
    specs = specs_in(source)
    try:
        hardships = Hardships(**source["hardships"])
        if not isinstance(source["model"], str | None):
            raise TypeError(f"its model is {source['model']!r:.60}")
        return [chosen_task(spec, source["model"], data, hardships) for spec in specs]
    except (KeyError, TypeError) as error:
        raise InputError(f"the record does not say which tasks it is about: {error}") from None
