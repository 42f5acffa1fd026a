"""Files by their whole paths, so that what is recorded of a command can be done again from elsewhere."""

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from evomal.errors import InputError
from evomal.tasks import Hardships, Task, load_task, task_from_file
from evomal.verdict.comparison import Command
from evomal.verdict.contestants import STRONG


def whole_file(name: str) -> str:
    """The path of a file; a name that is no file, such as a loss's, as it is."""
    return str(Path(name).resolve()) if Path(name).is_file() else name


def whole_task(spec: str) -> str:
    """A task with the path of its file, or its name."""
    if ":" not in spec:
        return spec
    path, _, function = spec.rpartition(":")
    return f"{Path(path).resolve()}:{function}"


def listed_losses(names: str, task: Task) -> list[str]:
    """The losses; `strong` stands for the usual rivals, and options of a loss, `a:x=1,y=2`, stay with it."""
    found: list[str] = []
    for name in (part.strip() for part in names.split(",")):
        if "=" in name and ":" not in name and found and ":" in found[-1]:
            found[-1] += f",{name}"
        else:
            found += STRONG[task.kind] if name == "strong" else [name] if name else []
    return found


def listed_rates(text: str) -> list[float]:
    """The learning rates."""
    try:
        return [float(rate) for rate in text.split(",")]
    except ValueError:
        raise InputError(f"rates must be numbers, comma-separated, but got {text!r}") from None


def is_of_a_file(spec: str) -> bool:
    """Whether a specification names a Python file, which is run to have the task."""
    return ":" in spec


def chosen_task(
    spec: str, model: str | None, data: Path | None, hardships: Hardships, *, preset: str = "quick"
) -> Task:  # fmt: skip
    """The task that a specification names; with the preset `paper` its model is the paper's unless one is named."""
    if not is_of_a_file(spec):
        usual = "paper" if preset == "paper" else None
        return load_task(spec, model or usual, data=data, hardships=hardships)
    if model is not None or data is not None or hardships != Hardships():
        raise InputError(
            "a task from a file brings its own model and data: --model, --data and options such as --label-noise "
            "apply to built-in tasks only"
        )
    return task_from_file(spec)


def source_of(specs: list[str], tasks: list[Task], model: str | None, hardships: Hardships) -> dict[str, Any]:
    """What a record keeps to load the tasks again; files by their absolute paths."""
    whole = [whole_task(spec) for spec in specs]
    if model is None and not any(is_of_a_file(spec) for spec in specs):
        # By its name, as the default model depends on preset and version.
        models = {task.record["model"] for task in tasks}
        model = models.pop() if len(models) == 1 else None
    described = {"tasks": whole, "model": model, "hardships": dataclasses.asdict(hardships)}
    command = given_command()
    return {**described, "command": {"words": list(command.words), "folder": command.folder}}


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


def given_command() -> Command:
    """The command line of this process as it was given, with the working folder that relative paths start from."""
    return Command(("evomal", *sys.argv[1:]), str(Path.cwd()))


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
TaskName = Annotated[str, typer.Argument(help="A built-in task, or file.py:function.", show_default=False)]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)]
RunFolders = Annotated[list[Path], typer.Argument(help="Folders of runs, or of folders of runs.", show_default=False)]
FigureFolder = Annotated[Path, typer.Option(help="Folder for the figure (SVG, PDF, PNG) and its data (CSV).")]
Classes = Annotated[int, typer.Option(help="Number of classes C.")]
LossNames = Annotated[
    str | None,
    typer.Option(
        help="Losses by name or file, comma-separated; strong: the usual rivals (default: the task's, strong)."
    ),
]
Steps = Annotated[int | None, typer.Option(help="Training steps (default: the task's).")]
Milestones = Annotated[
    list[int] | None,
    typer.Option(
        "--milestone", help="Step at which the learning rate is divided by ten; may be repeated (default: the task's)."
    ),
]
TrainingDevice = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def echo_json(content: Any) -> None:
    """Print a result, with null for what is not finite: JSON has no other word for it."""
    typer.echo(json.dumps(_finite(content), indent=2, allow_nan=False))


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
