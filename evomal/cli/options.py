"""The options that several commands share, and how their values are read."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evomal.errors import InputError
from evomal.settings import SearchSettings, preset_of_file
from evomal.text import printable

if TYPE_CHECKING:
    from evomal.tasks import Task

WIDTH = 80
"""Columns of the terminal that everything printed is made for."""

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
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
TaskNames = Annotated[list[str], typer.Argument(help="Built-in tasks, or file.py:function.", show_default=False)]
Model = Annotated[str | None, typer.Option(help='A model, such as "mlp:hidden=64".')]
DataFolder = Annotated[Path | None, typer.Option("--data", help="Folder of the datasets (default: $EVOMAL_DATA).")]
ExecutorName = Annotated[str | None, typer.Option("--executor", help="Where candidates are computed: local or ray.")]
Address = Annotated[
    str | None, typer.Option(help="Address of a Ray cluster: auto or HOST:PORT (default: start one on this machine).")
]
Workers = Annotated[
    int | None, typer.Option(help="Number of Ray workers (default: as many as the cluster has room for).")
]
GpusPerWorker = Annotated[
    float | None, typer.Option(help="GPUs of each Ray worker; with 0.5, two workers share a GPU.")
]
LabelNoise = Annotated[float, typer.Option(help="Share of training labels that are made wrong.")]
Asymmetric = Annotated[bool, typer.Option(help="Make wrong labels those of the next class, not of a random one.")]
Outliers = Annotated[float, typer.Option(help="Share of training targets that are made outliers.")]
Imbalance = Annotated[float, typer.Option(help="Size of the rarest class over that of the commonest in training.")]
Fraction = Annotated[float, typer.Option(help="Share of the training samples that is kept.")]


def split_losses(names: str, task: "Task") -> list[str]:
    """Returns the losses of a comma-separated list; `strong` stands for the usual rivals of the task.

    The options of a loss, as in `a:x=1,y=2`, stay with it.
    """
    from evomal.verdict.contestants import STRONG

    found: list[str] = []
    for name in (part.strip() for part in names.split(",")):
        if "=" in name and ":" not in name and found and ":" in found[-1]:
            found[-1] += f",{name}"
        else:
            found += STRONG[task.kind] if name == "strong" else [name] if name else []
    return found


def split_rates(text: str) -> list[float]:
    """Returns the learning rates of a comma-separated list."""
    try:
        return [float(rate) for rate in text.split(",")]
    except ValueError:
        raise InputError(f"rates must be comma-separated numbers but got {text!r}") from None


def settings_from_options(
    config: Path | None, preset: str | None, changes: list[str] | None, device: str | None
) -> SearchSettings:
    """Returns the settings of a file or a preset, with the changes of the command line."""
    settings = SearchSettings.from_file(config, preset=preset) if config else SearchSettings.preset(preset or "quick")
    return settings.with_texts([*(changes or []), *([] if device is None else [f"device={device}"])])


def preset_from_options(config: Path | None, preset: str | None) -> str:
    """Returns the preset of the command line, or else of the settings file."""
    return preset or (preset_of_file(config) if config else "quick")


def executor_settings(
    executor: str | None, address: str | None, workers: int | None, gpus_per_worker: float | None
) -> list[str]:
    """Returns the options of the executor as settings, `key=value`."""
    given = {"executor": executor, "address": address, "workers": workers, "gpus_per_worker": gpus_per_worker}
    return [f"{key}={value}" for key, value in given.items() if value is not None]


def echo(*lines: object, err: bool = False) -> None:
    """Print each argument on one line, with escape sequences for what a terminal would obey.

    All commands print by this function: a line may quote a file or the error of a user's code.
    """
    typer.echo("\n".join(printable(str(line)) for line in lines), err=err)


def echo_json(content: Any) -> None:
    """Print a result as JSON, with null for numbers that are not finite."""
    typer.echo(json.dumps(_finite(content), indent=2, allow_nan=False))


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
