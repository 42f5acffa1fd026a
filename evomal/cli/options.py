"""The options that several commands share, and how their values are read."""

import functools
import inspect
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from evomal.checks import MOST_SEEDS
from evomal.errors import InputError
from evomal.extras import has_numba
from evomal.settings import AUTO_SPACE, SearchSettings, describe, preset_of_file, setting_text
from evomal.text import printable

if TYPE_CHECKING:
    from evomal.tasks import Hardships, Task

R = TypeVar("R")

TRAININGS, _RAY, _DATA = "Trainings", "Ray", "Training data"
"""Headings of groups of options in help texts."""


def setting_help(name: str) -> str:
    """Returns the description of a setting with its choices, for the option that sets it."""
    (setting,) = (setting for setting in describe() if setting.name == name)
    choices = f" {setting.type.capitalize()}." if setting.type.startswith("one of ") else ""
    return f"{setting.description}{choices}"


def settings_help() -> str:
    """Returns the settings that `--set` takes, one paragraph each, for the end of a help text."""
    paragraphs = ["Settings for --set, with their defaults in the preset quick:"]
    for setting in describe():
        values = {preset: setting_text(value) for preset, value in setting.presets.items()}
        quick = values.pop("quick")
        others = [f"{preset}: {value}" for preset, value in values.items() if value != quick]
        default = "" if quick == "none" and not others else f" ({'; '.join([quick, *others])})"
        paragraphs.append(f"{setting.name}{default}: {setting_help(setting.name)}")
    return "\n\n".join(paragraphs)


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DataFolder = Annotated[Path | None, typer.Option("--data", help="Folder of the datasets (default: $EVOMAL_DATA).")]
Model = Annotated[
    str | None,
    typer.Option(help='A model with its options, such as "mlp:hidden=64"; "paper" for the model of the paper.'),
]

# Tasks, losses and runs
TaskName = Annotated[str, typer.Argument(help="A built-in task, or file.py:function.", show_default=False)]
TaskNames = Annotated[list[str], typer.Argument(help="Built-in tasks, or file.py:function.", show_default=False)]
LossFile = Annotated[Path, typer.Argument(help="A loss file, or zoo:NAME.", show_default=False)]
Losses = Annotated[
    list[str] | None,
    typer.Option(
        help='Names of losses or loss files, comma-separated; "strong" stands for the known losses that fit the task. '
        "A procedure may follow a loss, as in ce+temperature (see evomal procedures)."
    ),
]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)]
RunFolders = Annotated[list[Path], typer.Argument(help="Folders of runs, at any depth.", show_default=False)]


# Searches
SearchDevice = Annotated[str | None, typer.Option(help=setting_help("device"))]


@dataclass(frozen=True)
class SettingsOptions:
    """The settings of searches, as the command line gives them."""

    preset: Annotated[
        str | None,
        typer.Option(
            help="quick (the default), thorough for a GPU, or paper for the paper's settings and its model of the task."
        ),
    ] = None
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting (see evomal search --help); may be repeated."
        ),
    ] = None
    device: SearchDevice = None

    def settings(self, *texts: str) -> SearchSettings:
        """Returns the settings of the file or the preset, with the changes of `--set` and these texts, `key=value`."""
        chosen = (
            SearchSettings.from_file(self.config, preset=self.preset)
            if self.config
            else SearchSettings.preset(self.preset or "quick")
        )
        own = [*texts, *([] if self.device is None else [f"device={self.device}"])]
        given = {text.partition("=")[0] for text in own}
        for change in self.changes or []:
            if (name := change.partition("=")[0].strip()) in given:
                raise InputError(f"{name} is given by --set and by --{name.replace('_', '-')}: give it once")
        return chosen.with_texts([*(self.changes or []), *own])

    @property
    def preset_name(self) -> str:
        """The preset of the command line, or else of the settings file."""
        return self.preset or (preset_of_file(self.config) if self.config else "quick")


def compile_ahead(settings: SearchSettings) -> None:
    """Start to compile the kernels of a search on the CPU in a second process, while this one imports torch."""
    if has_numba() and settings.executor == "local" and settings.device.startswith(("auto", "cpu")):
        from evomal.forest import numba_ahead

        extended = not {*settings.space} <= {"paper", AUTO_SPACE}
        numba_ahead.start(extended=extended, mixed=settings.tuned_rung is not None)


def jobs_option(work: str) -> Any:
    """Returns the option for a number of processes that the work is divided among."""
    return typer.Option(help=f"Number of processes on this machine that {work} are divided among.", min=1)


def _ray(name: str) -> Any:
    return typer.Option(help=setting_help(name), rich_help_panel=_RAY)


def executor_settings(
    executor: Annotated[str | None, _ray("executor")] = None,
    address: Annotated[str | None, _ray("address")] = None,
    workers: Annotated[int | None, _ray("workers")] = None,
    gpus_per_worker: Annotated[float | None, _ray("gpus_per_worker")] = None,
) -> list[str]:
    """Returns the options of the executor as settings, `key=value`."""
    given = {"executor": executor, "address": address, "workers": workers, "gpus_per_worker": gpus_per_worker}
    return [f"{key}={value}" for key, value in given.items() if value is not None]


# Trainings
Device = Annotated[str, typer.Option(help=setting_help("device"))]
Seeds = Annotated[
    int, typer.Option(help="Number of evaluation seeds.", min=1, max=MOST_SEEDS, rich_help_panel=TRAININGS)
]
Steps = Annotated[
    int | None, typer.Option(help="Number of training steps (default: the task's).", rich_help_panel=TRAININGS)
]
Milestones = Annotated[
    list[int] | None,
    typer.Option(
        "--milestone",
        metavar="STEP",
        help="Divide the learning rate by ten at this step; may be repeated (default: the task's).",
        rich_help_panel=TRAININGS,
    ),
]

_HARDSHIPS: Mapping[str, tuple[float, str]] = {
    "label_noise": (0.0, "Fraction of the training labels to replace by wrong ones."),
    "asymmetric": (False, "Wrong labels are the next class, not a random one."),
    "outliers": (0.0, "Fraction of the training targets to turn into outliers."),
    "imbalance": (1.0, "Size of the smallest training class relative to the largest."),
    "fraction": (1.0, "Fraction of the training samples to keep."),
}
"""Default and help text of each option; importing `Hardships` for them would slow down every command."""

# Figures
FigureFolder = Annotated[Path, typer.Option(help="Folder for the figure (SVG, PDF, PNG) and its data (CSV).")]
Classes = Annotated[int, typer.Option(help="Number of classes.")]


def hardship_options(**given: Any) -> "Hardships":
    """Returns the hardships of the command line."""
    from evomal.tasks import Hardships

    return Hardships(**given)


def options_from(rows: Iterable[tuple[str, Any, Any, dict[str, Any]]]) -> inspect.Signature:
    """Returns the signature of a function with one option per row: name, type, default, arguments of `typer.Option`."""
    parameters = []
    for name, kind, default, arguments in rows:
        flag = [f"--{name.replace('_', '-')}"] if kind is bool else []  # without it, there would be a --no- as well
        annotation: Any = Annotated[kind, typer.Option(*flag, **arguments)]
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    return inspect.Signature(parameters)


hardship_options.__signature__ = options_from(  # type: ignore[attr-defined]
    (name, type(default), default, {"help": text, "rich_help_panel": _DATA})
    for name, (default, text) in _HARDSHIPS.items()
)


def with_options(**groups: Callable[..., Any]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Gives a command the options of some groups.

    A group is a function whose parameters are options. They replace the command's parameter of the group's name; when
    the command is called, that parameter receives what the function returns.
    """
    options = {name: inspect.signature(group).parameters for name, group in groups.items()}

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def called(**given: Any) -> R:
            for name, group in groups.items():
                given[name] = group(**{option: given.pop(option) for option in options[name]})
            return command(**given)

        parameters = inspect.signature(command).parameters.items()
        return with_parameters(
            called, [one for name, own in parameters for one in (options[name].values() if name in options else (own,))]
        )

    return decorate


def with_parameters(command: Callable[..., R], parameters: Iterable[inspect.Parameter]) -> Callable[..., R]:
    """Gives a command these parameters, from which Typer makes options."""
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return command


def given_options(context: typer.Context, *parameters: str) -> str:
    """Returns which of a command's options were given, as in `--seeds, --device`, whatever their values."""
    given = (
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in parameters and (source := context.get_parameter_source(parameter.name)) is not None
        if source.name == "COMMANDLINE"
    )
    return ", ".join(given)


def listed(values: Sequence[str] | None) -> list[str] | None:
    """Returns the entries of an option that takes comma-separated lists and may be repeated; None: it was not given."""
    # Typer gives an empty list for an option that was not given.
    return [part.strip() for value in values for part in value.split(",")] if values else None


def split_losses(values: Sequence[str] | None, task: "Task") -> list[str]:
    """Returns the losses of comma-separated lists; `strong` stands for the rivals that fit the task.

    The options of a loss, as in `a:x=1,y=2`, stay with it. A file with commas in its path has to be given alone.
    """
    from evomal.methods.baseline import strong_rivals

    found: list[str] = []
    for value in values or ():
        own: list[str] = []
        for name in [value] if os.path.isfile(value) else value.split(","):
            if "=" in name and ":" not in name and own and ":" in own[-1]:
                own[-1] += f",{name.strip()}"
            else:
                own.append(name.strip())
        found += own
    # Without the baseline, which every comparison includes.
    strong = strong_rivals(task)[1:]
    losses = [loss for name in found if name for loss in (strong if name == "strong" else [name])]
    if found and not losses:
        raise InputError(f"--losses must name at least one loss but got {', '.join(map(repr, values or ()))}")
    return losses


def split_rates(values: Sequence[str]) -> list[float]:
    """Returns the learning rates of comma-separated lists."""
    try:
        return [float(rate) for rate in listed(values) or ()]
    except ValueError:
        raise InputError(f"rates must be comma-separated numbers but got {','.join(values)!r}") from None


def echo(*lines: object, err: bool = False) -> None:
    """Print each argument on one line, with control characters escaped.

    All commands print with this function, because a line may quote a file or an error of the user's code.
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
