"""`evomal search --dry-run`: what would be done, and what it is expected to take."""

import math
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from evomal.cli.display import TerminalDisplay
from evomal.cli.options import (
    AsJson,
    chosen_task,
    echo_json,
    is_of_a_file,
    source_of,
    specs_in,
    tasks_from,
    whole_file,
    whole_task,
)
from evomal.errors import InputError, StoppedError
from evomal.methods import METHODS
from evomal.methods.candidates import genome_text, size_of
from evomal.runs import find_runs
from evomal.runs.estimates import Estimate, estimate
from evomal.runs.finals import Scores
from evomal.runs.reading import read_run
from evomal.runs.results import SearchResult, scores_text
from evomal.runs.run_loop import search
from evomal.runs.store import RECORD_NAME
from evomal.settings import SearchSettings, preset_of_file
from evomal.tasks import Hardships, Task
from evomal.text import printable, shorten

_WIDTH, _LABEL = 80, 13
_MEBIBYTE = 2**20


def show_estimate(
    tasks: list[Task], method: str, settings: SearchSettings, seed: int, folder: Path, *, as_json: bool
) -> None:
    """Print the settings and the estimate; nothing is written anywhere."""
    expected = estimate(tasks, method=method, settings=settings, seed=seed)
    values = settings.model_dump(mode="json")
    if as_json:
        about: dict[str, Any] = {"tasks": [task.name for task in tasks], "method": method, "seed": seed}
        echo_json({**about, "folder": str(folder), "settings": values, **_as_data(expected)})
        return
    for task in tasks:
        model = task.record.get("model", "own model")
        _row("task", f"{task.name}, {model}: {task.kind}, {len(task.train)} training rows, {task.metric.name}")
    _row("method", f"{method}, seed {seed}: {expected.generations} generations of {expected.population}")
    _row("settings", ", ".join(f"{key}={_plain(value)}" for key, value in values.items() if value is not None))
    _row("device", f"{expected.device}; {expected.plan}")
    parts = ", ".join(f"{stage} {_duration(seconds)}" for stage, seconds in expected.stages.items())
    _row("time", f"about {_duration(expected.seconds)} ({parts}); budgets may end it sooner")
    _row("memory", f"about {expected.memory / _MEBIBYTE:,.0f} MiB")
    _row("folder", str(folder))


def _as_data(expected: Estimate) -> dict[str, Any]:
    return {
        "generations": expected.generations, "population": expected.population, "device": expected.device,
        "plan": expected.plan, "seconds": expected.seconds, "stages": expected.stages, "memory": expected.memory,
    }  # fmt: skip


def _row(label: str, text: str) -> None:
    lines = textwrap.wrap(
        text, _WIDTH - _LABEL, break_on_hyphens=False, break_long_words=False, subsequent_indent=" " * _LABEL
    )
    typer.echo(f"{label:<{_LABEL}}" + "\n".join(lines))


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:.1f} h"


ExecutorName = Annotated[str | None, typer.Option("--executor", help="Where the work is done: local or ray.")]
Address = Annotated[
    str | None, typer.Option(help="Of a Ray cluster: auto or HOST:PORT (default: one is started here).")
]
Workers = Annotated[int | None, typer.Option(help="Ray workers (default: as many as there is room for).")]
GpusPerWorker = Annotated[float | None, typer.Option(help="GPUs of each Ray worker; 0.5: two share one.")]
_LONGEST_LINE = 1_000  # characters
DataFolder = Annotated[Path | None, typer.Option("--data", help="Folder of the files (default: $EVOMAL_DATA).")]


def search_losses(
    tasks: Annotated[list[str], typer.Argument(help="Built-in tasks, or file.py:function.", show_default=False)],
    model: Annotated[str | None, typer.Option(help='A model, such as "mlp:hidden=64", or "paper".')] = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "evomal",
    preset: Annotated[
        str | None, typer.Option(help="quick or paper, which is also the paper's model unless another is named.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the search.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/TASK-METHOD-SEED).")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="A setting as key=value; may be repeated.")] = None,
    seed_with: Annotated[
        str | None, typer.Option(help="Losses to begin with: names or files, comma-separated.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    executor: ExecutorName = None,
    address: Address = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done, and what it would take.")
    ] = False,
    label_noise: Annotated[float, typer.Option(help="Share of wrong training labels.")] = 0.0,
    asymmetric: Annotated[bool, typer.Option(help="Wrong labels are those of the next class.")] = False,
    outliers: Annotated[float, typer.Option(help="Share of training targets thrown far off.")] = 0.0,
    imbalance: Annotated[float, typer.Option(help="Rarest over commonest class in training.")] = 1.0,
    fraction: Annotated[float, typer.Option(help="Share of the training samples kept.")] = 1.0,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Search for a loss and record everything; `evomal resume` continues an interrupted search."""
    given = [*(changes or []), *workplace_texts(executor, address, workers, gpus_per_worker)]
    given += [] if seed_with is None else [f"seed_with={','.join(map(whole_file, seed_with.split(',')))}"]
    settings = chosen_settings(config, preset, given, device)
    hardships = Hardships(label_noise, asymmetric, outliers, imbalance, fraction)
    named = chosen_preset(config, preset)
    chosen = [chosen_task(spec, model, data, hardships, preset=named) for spec in tasks]
    folder = out or Path("runs") / f"{'-'.join(task.name for task in chosen)}-{method}-{seed}"
    if dry_run:
        show_estimate(chosen, method, settings, seed, folder, as_json=as_json)
        return
    if (folder / RECORD_NAME).exists():
        raise InputError(f"{folder}: holds a run already: go on with `evomal resume {folder}`, or name another --out")
    _run(chosen, method, settings, seed, folder, source_of(tasks, chosen, model, hardships), as_json=as_json)


def chosen_settings(
    config: Path | None, preset: str | None, changes: list[str] | None, device: str | None
) -> SearchSettings:
    """The settings of a file or a preset, changed by what was typed."""
    settings = SearchSettings.from_file(config, preset=preset) if config else SearchSettings.preset(preset or "quick")
    return settings.with_texts([*(changes or []), *([] if device is None else [f"device={device}"])])


def chosen_preset(config: Path | None, preset: str | None) -> str:
    """The preset that was typed, or that of the file of settings."""
    return preset or (preset_of_file(config) if config else "quick")


def workplace_texts(
    executor: str | None, address: str | None, workers: int | None, gpus_per_worker: float | None
) -> list[str]:
    """What was typed of where the work is done, as settings."""
    typed = {"executor": executor, "address": address, "workers": workers, "gpus_per_worker": gpus_per_worker}
    return [f"{key}={value}" for key, value in typed.items() if value is not None]


def resume_search(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="A budget as key=value: max_time, max_evaluations, patience, …")
    ] = None,
    executor: ExecutorName = None,
    address: Address = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    data: DataFolder = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task", help="A task of the run, named again, as its Python file is run; of several, each in order."
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the Python files and join the Ray cluster that the record names.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Go on although versions, threads or the like differ, giving up that the result repeats."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a search where its record ends."""
    recorded = read_run(folder).settings
    try:
        given = [*(changes or []), *workplace_texts(executor, address, workers, gpus_per_worker)]
        # Another executor has workers of its own.
        place = (
            recorded["workplace"] if _last_named("executor", given) in (None, recorded["workplace"]["executor"]) else {}
        )
        settings = SearchSettings(**{**recorded["settings"], **recorded["budgets"], **place}).with_texts(given)
        source, method, seed = recorded["source"], recorded["method"], recorded["seed"]
        if settings.executor != recorded["workplace"]["executor"] and not force:
            _require_as_many_threads(settings, recorded["threads"], folder)
    except KeyError as error:
        raise InputError(f"{folder}: was not begun by `evomal search`: it does not record its {error}") from None
    if source is None:
        raise InputError(f"{folder}: was begun from Python, so that evomal.search with its tasks must go on with it")
    specs = specs_in(source)
    if tasks:
        source = {**source, "tasks": [whole_task(spec) for spec in tasks]}
    elif not trust:
        _require_no_files(specs, folder)
    if settings.address is not None and _last_named("address", given) is None and not trust:
        raise InputError(
            f"{folder}: its record names the Ray cluster at {settings.address}, which this command does not join "
            f"unless told to: name it with --address {settings.address}, or add --trust if the run is your own"
        )
    _run(tasks_from(source, data), method, settings, seed, folder, source, as_json=as_json, force=force)


def _require_no_files(specs: list[str], folder: Path) -> None:
    """Raise where resuming would run a Python file that only the record names."""
    for spec in specs:
        if is_of_a_file(spec):
            raise InputError(
                f"{folder}: its record names the Python file of {spec}, which this command does not run unless told "
                f"to: name the task with --task {shlex.quote(spec)}, or add --trust if the run is your own"
            )


def _last_named(key: str, texts: list[str]) -> str | None:
    """What was typed last for a setting."""
    pairs = (text.partition("=") for text in texts)
    return next((value.strip() for name, _, value in reversed(list(pairs)) if name.strip() == key), None)


def _require_as_many_threads(settings: SearchSettings, recorded: int, folder: Path) -> None:
    """Raise before a cluster is started that the record would refuse."""
    if settings.threads not in (None, recorded):
        raise InputError(
            f"{folder}: threads was {recorded} but is {settings.threads}, the number of each worker: "
            f"go on with --set threads={recorded}"
        )


def list_runs(
    folder: Annotated[Path, typer.Argument(help="Where to look for runs.", show_default=False)], as_json: AsJson = False
) -> None:
    """List the runs in a folder, and how each stands."""
    rows: list[dict[str, Any]] = []
    for run in find_runs(folder):
        scores = None if run.scores is None else list(map(_finite, run.scores.values))
        best = None
        if run.best is not None:
            best = {"fitness": run.best.fitness, "genome": run.best.genome, "scores": scores}
        rows.append(
            {
                "folder": str(run.folder), "state": str(run.state), "sentence": run.problem or run.ending or "",
                "tasks": _task_names(run.settings.get("task")),
                "method": run.settings.get("method"), "seed": run.settings.get("seed"),
                "generations": run.generations, "candidates": len(run.candidates), "best": best,
            }
        )  # fmt: skip
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        best_text = f", best {row['best']['fitness']:.4g}" if row["best"] else ""
        if row["best"] and row["best"]["scores"]:
            values = tuple(math.inf if score is None else score for score in row["best"]["scores"])
            best_text += f" ({scores_text(Scores(values))} in the final)"
        noun = "generation" if row["generations"] == 1 else "generations"
        lines = [f"{row['folder']}: {row['state']}, {row['generations']} {noun}{best_text}"]
        if row["method"]:
            lines.append(f"    {' + '.join(row['tasks'])}, {row['method']}, seed {row['seed']}")
        if row["sentence"]:
            lines.append(f"    {row['sentence']}")
        for line in lines:  # a record may be a stranger's
            typer.echo(printable(shorten(line, _LONGEST_LINE)))
    if not rows:
        typer.echo(f"there is no run in {folder}")


def _task_names(tasks: Any) -> list[str]:
    """As `search` records them; records may have been written by others."""
    found = tasks.values() if isinstance(tasks, dict) else ()
    return [str(task["name"]) for task in found if isinstance(task, dict) and "name" in task]


def list_methods(as_json: AsJson = False) -> None:
    """List the methods of search."""
    if as_json:
        rows = [{"name": name, "purpose": method.purpose} for name, method in METHODS.items()]
        echo_json(rows)
        return
    for name, method in METHODS.items():
        typer.echo(f"{name}\n    {method.purpose}")


def _run(
    tasks: list[Task], method: str, settings: SearchSettings, seed: int, folder: Path, source: dict[str, Any],
    *, as_json: bool, force: bool = False,
) -> None:  # fmt: skip
    try:
        with TerminalDisplay() as listener:
            result = search(
                tasks, method=method, seed=seed, folder=folder, settings=settings, source=source, listener=listener,
                force=force,
            )  # fmt: skip
    except KeyboardInterrupt:
        begun = (folder / RECORD_NAME).exists()
        command = shlex.join(["evomal", "resume", str(folder), *_trusted_words(source, settings)])
        raise StoppedError(
            f"interrupted; go on with `{command}`" if begun else "interrupted before anything was recorded"
        ) from None
    if as_json:
        about = {"tasks": [task.name for task in tasks], "method": method, "seed": seed, "metric": result.metric}
        echo_json({**about, **_searching_as_data(result)})
    else:
        typer.echo(result.summary())


def _trusted_words(source: Mapping[str, Any], settings: SearchSettings) -> list[str]:
    """What has to be named again when the search is resumed."""
    specs = source["tasks"] if any(map(is_of_a_file, source["tasks"])) else []
    address = [] if settings.address is None else ["--address", settings.address]
    return [*(word for spec in specs for word in ("--task", spec)), *address]


def _finite(number: float) -> float | None:
    """The number; None, as JSON has it, where there is none."""
    return number if math.isfinite(number) else None


def _searching_as_data(result: SearchResult) -> dict[str, Any]:
    best = result.best
    return {
        "best": None if best is None else {
            "genome": genome_text(best.genome), "size": size_of(best.genome), "weights": list(best.weights),
            "fitness": best.fitness, "value": best.value, "formula": best.formula(), "generation": best.generation,
            "scores": [_finite(score) for score in best.scores], "mean": _finite(best.mean),
        },
        "rivals": {name: _finite(fitness) for name, fitness in result.rivals.items()},
        "final": None if result.final is None else {
            "rivals": {
                name: [_finite(score) for score in found.values] for name, found in result.final.rivals.items()
            },
            "verdict": result.final.verdict,
        },
        "history": [
            {
                "generation": entry.number, "counts": {str(state): n for state, n in entry.counts.items()},
                "best": None if entry.best is None or not math.isfinite(entry.best.fitness) else entry.best.fitness,
                "seconds": dict(entry.seconds),
            }
            for entry in result.history
        ],
        "counts": result.counts,
        "front": [
            {"size": entry.size, "fitness": entry.fitness, "genome": genome_text(entry.genome)}
            for entry in result.front
        ],
        "ending": result.ending,
        "forced": list(result.forced),
        "folder": str(result.folder),
        "seconds": result.seconds,
    }  # fmt: skip
