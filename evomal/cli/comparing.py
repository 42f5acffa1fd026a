"""`evomal compare` and `evomal transfer`."""

import contextlib
import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evomal.cli.options import (
    TRAININGS,
    AsJson,
    DataFolder,
    Losses,
    Model,
    Seeds,
    SettingsOptions,
    TaskName,
    compile_ahead,
    echo,
    echo_json,
    executor_settings,
    hardship_options,
    jobs_option,
    listed,
    split_losses,
    split_rates,
    with_options,
)
from evomal.cli.task_specs import given_command, task_from_spec
from evomal.errors import EvomalError, InputError

if TYPE_CHECKING:
    from evomal.cli.display import TerminalDisplay
    from evomal.tasks import Hardships
    from evomal.verdict.folder import Result

Methods = Annotated[
    list[str] | None, typer.Option(help='Methods to search with, comma-separated (see evomal methods), or "all".')
]
_USUAL_METHODS = ["evomal"]
SearchSeeds = Annotated[int, typer.Option(help="Number of searches of each method.", min=1)]
TuneRates = Annotated[
    int,
    typer.Option(
        "--tune-lr",
        help="Number of learning rates to try for each loss, with two seeds each and the best with twice --seeds; 0 to "
        "use only the task's own.",
        min=0,
        rich_help_panel=TRAININGS,
    ),
]
TuneDecay = Annotated[
    bool,
    typer.Option("--tune-decay", help="Also tune the weight decay of each loss.", rich_help_panel=TRAININGS),
]
Rescale = Annotated[
    bool,
    typer.Option(help="Also train with each loss scaled to the gradient of the baseline.", rich_help_panel=TRAININGS),
]
Jobs = Annotated[int, jobs_option("searches and trainings")]
Out = Annotated[
    Path | None, typer.Option(help="Folder for results and records; the same command resumes from it if interrupted.")
]


@with_options(options=SettingsOptions, workplace=executor_settings, hardships=hardship_options)
def compare_losses(
    task: TaskName,
    *,
    model: Model = None,
    methods: Methods = None,
    losses: Losses = None,
    seeds: Seeds = 5,
    search_seeds: SearchSeeds = 1,
    tune_lr: TuneRates = 0,
    tune_decay: TuneDecay = False,
    rescale: Rescale = True,
    rates: Annotated[
        list[str] | None, typer.Option(help="Learning rates to compare at, comma-separated.", rich_help_panel=TRAININGS)
    ] = None,
    search_each: Annotated[
        bool, typer.Option("--search-each", help="Repeat the searches at each of the --rates.")
    ] = False,
    options: SettingsOptions,
    jobs: Jobs = 1,
    workplace: list[str],
    out: Out = None,
    data: DataFolder = None,
    as_json: AsJson = False,
    hardships: "Hardships",
) -> None:
    """Compare losses, given or found by searches, with the task's own loss over the same seeds."""
    settings = options.settings(*workplace)
    compile_ahead(settings)

    from evomal.verdict.comparing import compare, rate_curve

    if search_each and not rates:
        raise InputError("--search-each needs --rates: it searches at each of them")
    if rates and tune_lr:
        raise InputError("--tune-lr cannot be combined with --rates, which compares at each of the given rates")
    if tune_decay and rates:
        raise InputError("--tune-decay cannot be combined with --rates, which compares at each of the given rates")
    _require_rates(tune_lr, tune_decay=tune_decay)
    chosen = task_from_spec(task, model, data, hardships, preset=options.preset_name)
    common: dict[str, Any] = {
        "methods": _methods(methods), "losses": split_losses(losses, chosen), "seeds": seeds,
        "search_seeds": search_seeds, "settings": settings, "folder": out, "jobs": jobs,
    }  # fmt: skip
    with _stoppable(out) as listener:
        common["listener"] = listener
        if not rates:
            found: Result = compare(chosen, tune_lr=tune_lr, tune_decay=tune_decay, rescale=rescale, **common)
        else:
            found = rate_curve(chosen, rates=split_rates(rates), search_each=search_each, **common)
    _show(found, out, as_json=as_json)


def _require_rates(tune_lr: int, *, tune_decay: bool) -> None:
    if tune_decay and not tune_lr:
        raise InputError("--tune-decay needs --tune-lr: both are tuned together")


@with_options(options=SettingsOptions, workplace=executor_settings)
def transfer_losses(
    *,
    to: Annotated[str, typer.Option("--to", help="The task to compare on: built-in, or file.py:function.")],
    loss: Losses = None,
    source: Annotated[
        str | None, typer.Option("--from", help="The task to learn losses on first, instead of --loss.")
    ] = None,
    model: Model = None,
    source_model: Annotated[str | None, typer.Option(help="The model of the --from task.")] = None,
    methods: Methods = _USUAL_METHODS,
    seeds: Seeds = 5,
    search_seeds: SearchSeeds = 5,
    tune_lr: TuneRates = 0,
    tune_decay: TuneDecay = False,
    rescale: Rescale = True,
    options: SettingsOptions,
    jobs: Jobs = 1,
    workplace: list[str],
    out: Out = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compare losses that were learned on another task with the task's own loss."""
    from evomal.verdict.comparing import transfer

    settings = options.settings(*workplace)
    if (not loss) == (source is None):
        raise InputError("either --loss or --from must be given: losses, or a task on which to learn them")
    _require_rates(tune_lr, tune_decay=tune_decay)
    target = task_from_spec(to, model, data, preset=options.preset_name)
    learned_on = None if source is None else task_from_spec(source, source_model, data, preset=options.preset_name)
    with _stoppable(out) as listener:
        found = transfer(
            target, losses=split_losses(loss, target), source=learned_on, methods=_methods(methods), seeds=seeds,
            search_seeds=search_seeds, tune_lr=tune_lr, tune_decay=tune_decay, rescale=rescale, settings=settings,
            folder=out, listener=listener, jobs=jobs,
        )  # fmt: skip
    _show(found, out, as_json=as_json)


def _stoppable(out: Path | None) -> "AbstractContextManager[TerminalDisplay]":
    from evomal.cli.display import stoppable

    again = f"give the same command again to resume in {out}" if out else "without --out nothing was recorded"
    return stoppable(lambda: f"; {again}")


def _show(result: "Result", out: Path | None, *, as_json: bool) -> None:
    """Write the result with its command to the folder, and print it."""
    from evomal.verdict.folder import comparisons_of, write_result
    from evomal.verdict.tables import comparison_text

    result = dataclasses.replace(result, command=given_command())
    if out is not None and (earlier := _earlier(result, out)):
        echo(f"evomal: replaced {earlier}", err=True)
    files = [] if out is None else write_result(result, out)
    if as_json:
        echo_json(result.to_dict())
        return
    for name, comparison in comparisons_of(result).items():
        lines = comparison_text(comparison).rstrip("\n").split("\n")
        echo(*([name, *lines, ""] if name else lines))
    if files:
        echo(f"files: {', '.join(map(str, files))}")


def _earlier(result: "Result", out: Path) -> str:
    """The file of another result that a folder holds, for a sentence; empty if there is none, or it is the same."""
    from evomal.runs.canonical import canonical
    from evomal.verdict.folder import read_result

    with contextlib.suppress(EvomalError):
        found = read_result(type(result), out)
        if found is None:
            return ""
        texts = {canonical(dataclasses.replace(one, command=None).to_dict()) for one in (found, result)}
        if len(texts) == 1:
            return ""
    return f"{out / result.file_name}.json, which was of another command or is damaged; its trainings are kept"


def _methods(values: list[str] | None) -> list[str]:
    from evomal.methods import METHODS

    names = listed(values) or []
    # Without the baseline, which every comparison includes.
    every = [one for name in names for one in (METHODS if name == "all" else [name])]
    return [name for name in dict.fromkeys(every) if name and name != "baseline"]
