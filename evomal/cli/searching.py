"""`evomal search` and `evomal resume`."""

import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evomal.checks import LARGEST_SEED
from evomal.cli.options import (
    AsJson,
    DataFolder,
    Model,
    RunFolder,
    SettingsOptions,
    TaskNames,
    compile_ahead,
    echo,
    echo_json,
    executor_settings,
    hardship_options,
    jobs_option,
    listed,
    setting_help,
    with_options,
)
from evomal.cli.task_specs import (
    absolute_file,
    absolute_task,
    names_python_file,
    recorded_specs,
    recorded_tasks,
    task_from_spec,
    task_source,
)
from evomal.errors import InputError
from evomal.settings import SearchSettings
from evomal.text import file_name, labelled, plural, time_text

if TYPE_CHECKING:
    from evomal.runs.results import SearchResult
    from evomal.tasks import Hardships, Task

SearchJobs = Annotated[int, jobs_option("candidates and trainings")]
_MEBIBYTE = 2**20
MOST_GENERATIONS = 10_000
"""The most generations that `--time` chooses, however long the time is."""


def show_estimate(
    tasks: "list[Task]", method: str, settings: SearchSettings, seed: int, folder: Path, *, jobs: int = 1, as_json: bool
) -> None:
    """Print the settings and the estimate; nothing is written anywhere."""
    from evomal.runs.estimates import estimate

    expected = estimate(tasks, method=method, settings=settings, seed=seed, jobs=jobs)
    values = settings.model_dump(mode="json")
    if as_json:
        about: dict[str, Any] = {"tasks": [task.name for task in tasks], "method": method, "seed": seed}
        estimated = {**dataclasses.asdict(expected), "seconds": expected.seconds}
        echo_json({**about, "folder": str(folder), "settings": values, **estimated})
        return
    for task in tasks:
        model = task.record.get("model", "own model")
        _row("task", f"{task.name}, {model}: {task.kind}, {task.train.rows_in_words} training rows, {task.metric.name}")
    _row("method", f"{method}, seed {seed}: {plural(expected.generations, 'generation')} of {expected.population}")
    _row("settings", ", ".join(f"{key}={value}" for key, value in settings.as_texts().items() if value != "none"))
    _row("device", f"{expected.device}; {expected.plan}")
    parts = ", ".join(f"{stage} {time_text(seconds)}" for stage, seconds in expected.stages.items())
    _row("time", f"about {time_text(expected.seconds)} ({parts}); budgets may end it sooner")
    _row("memory", f"about {expected.memory / _MEBIBYTE:,.0f} MiB")
    _row("folder", str(folder))


def _row(label: str, text: str) -> None:
    echo(*labelled(label, text))


@with_options(options=SettingsOptions, workplace=executor_settings, hardships=hardship_options)
def search_losses(
    tasks: TaskNames,
    *,
    model: Model = None,
    method: Annotated[str, typer.Option(help="The search method (see evomal methods).")] = "evomal",
    options: SettingsOptions,
    seed: Annotated[int, typer.Option(help="Seed of the search.", min=0, max=LARGEST_SEED)] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/TASK-METHOD-SEED).")] = None,
    seed_with: Annotated[list[str] | None, typer.Option(help=setting_help("seed_with"))] = None,
    jobs: SearchJobs = 1,
    workplace: list[str],
    duration: Annotated[
        str | None,
        typer.Option("--time", help="Choose the number of generations for a search of about that time, such as 2m."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the settings and an estimate of time and memory, and exit.")
    ] = False,
    data: DataFolder = None,
    as_json: AsJson = False,
    hardships: "Hardships",
) -> None:
    """Search for one loss for all given tasks and record everything; `evomal resume` resumes an interrupted search."""
    seeds = [f"seed_with={','.join(map(absolute_file, listed(seed_with) or ()))}"] if seed_with else []
    settings = options.settings(*workplace, *seeds)
    compile_ahead(settings)

    from evomal.runs.store import RECORD_NAME

    chosen = [task_from_spec(spec, model, data, hardships, preset=options.preset_name) for spec in tasks]
    folder = out or Path("runs") / file_name(f"{'-'.join(task.name for task in chosen)}-{method}-{seed}")
    if duration is not None:
        settings = _settings_within(duration, chosen, method, settings, seed, jobs, options.changes or [])
    if dry_run:
        show_estimate(chosen, method, settings, seed, folder, jobs=jobs, as_json=as_json)
        return
    if os.path.exists(folder / RECORD_NAME):
        again = _resuming(folder, tasks, settings, jobs)
        raise InputError(f"{folder}: holds a run: resume it with `{again}`, or name another --out")
    source = task_source(tasks, chosen, model, hardships)
    _run(chosen, method, settings, seed, folder, source, jobs=jobs, as_json=as_json)


def _resuming(folder: Path, tasks: Sequence[str], settings: SearchSettings, jobs: int) -> str:
    """The command that resumes a run.

    Python files and clusters must be named again, because a record alone is not trusted; jobs are not recorded.
    """
    specs = tasks if any(map(names_python_file, tasks)) else []
    given = [word for spec in specs for word in ("--task", spec)]
    given += [] if settings.address is None else ["--address", settings.address]
    given += [] if jobs == 1 else ["--jobs", str(jobs)]
    return shlex.join(["evomal", "resume", str(folder), *given])


def _settings_within(
    duration: str, tasks: "list[Task]", method: str, settings: SearchSettings, seed: int, jobs: int, given: list[str]
) -> SearchSettings:
    """The settings with as many generations as fit into the time, by an estimate from a few steps."""
    from evomal.runs.estimates import estimate

    if any(text.partition("=")[0].strip() == "generations" for text in given):
        raise InputError("--time chooses the number of generations, so it cannot be combined with --set generations")
    allowed = settings.with_texts([f"max_time={duration}"]).max_time
    assert allowed is not None
    expected = estimate(tasks, method=method, settings=settings, seed=seed, jobs=jobs)
    repeated = sum(expected.stages.get(stage, 0.0) for stage in ("filter", "optimise", "evaluate"))
    once, each = expected.seconds - repeated, repeated / settings.generations
    count = max(1, min(MOST_GENERATIONS, int((allowed - once) / each) if each > 0 else MOST_GENERATIONS))
    seconds = time_text(once + count * each)
    about = f"about {plural(count, 'generation')} of {settings.population} candidates fit into {duration}"
    short = "" if once + each <= allowed else f", which is too short for a search: it will take about {seconds}"
    echo(f"evomal: {about}{short}", err=True)
    return settings.with_changes(generations=count)


@with_options(options=SettingsOptions, hardships=hardship_options)
def show_headroom(
    tasks: TaskNames,
    *,
    model: Model = None,
    options: SettingsOptions,
    seed: Annotated[int, typer.Option(help="Seed of the trainings.", min=0, max=LARGEST_SEED)] = 0,
    jobs: Annotated[int, jobs_option("trainings")] = 1,
    data: DataFolder = None,
    as_json: AsJson = False,
    hardships: "Hardships",
) -> None:
    """Measure what a learned loss must beat: the known losses that fit the task, each at its best learning rate."""
    settings = options.settings()
    compile_ahead(settings)

    from evomal.cli.display import advise_jobs
    from evomal.runs.measuring import headroom

    chosen = [task_from_spec(spec, model, data, hardships, preset=options.preset_name) for spec in tasks]
    on_plan = advise_jobs if jobs == 1 else None
    found = headroom(chosen, settings=settings, seed=seed, progress=True, jobs=jobs, on_plan=on_plan)
    if not as_json:
        echo(*str(found).split("\n"))
        return
    last = {name: found.last(name) for name in found.losses}
    rows = {
        name: {
            "lr": None if found.lr is None else one.rate * found.lr, "rate": one.rate, "costs": one.scores,
            "steps": one.steps,
        }
        for name, one in last.items()
    }  # fmt: skip
    numbers = {"noise": found.noise, "lead": found.lead, "lead_in_noise": found.lead_in_noise}
    about = {"task": " + ".join(task.name for task in chosen), "metric": found.metric.name}
    echo_json({**about, "baseline": found.baseline, "best": found.best, **numbers, "losses": rows})


@with_options(workplace=executor_settings)
def resume_search(
    folder: RunFolder,
    *,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a budget: generations, max_time, max_evaluations or patience; may be repeated.",
        ),
    ] = None,
    jobs: SearchJobs = 1,
    workplace: list[str],
    data: DataFolder = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="FILE:FUNCTION",
            help="A task of the run, whose Python file may be run; repeated for several tasks, in order.",
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the Python files and join the Ray cluster that the record names.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Resume even if versions or threads differ; the result may then not be reproducible."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Resume an interrupted search."""
    from evomal.runs.reading import load_run

    recorded = load_run(folder).settings
    try:
        given = [*(changes or []), *workplace]
        # The recorded workers and address belong to the recorded executor.
        is_same = _last_named("executor", given) in (None, recorded["workplace"]["executor"])
        before = {**recorded["settings"], **recorded["budgets"], **(recorded["workplace"] if is_same else {})}
        settings = SearchSettings(**before).with_texts(given)
        source, method, seed = recorded["source"], recorded["method"], recorded["seed"]
        if (jobs > 1 or settings.executor != recorded["workplace"]["executor"]) and not force:
            _require_as_many_threads(settings, jobs, recorded["threads"], folder)
    except KeyError as error:
        raise InputError(f"{folder}: was not started by `evomal search`: its record lacks {error}") from None
    if source is None:
        raise InputError(f"{folder}: was started from Python: resume it by evomal.search with its tasks")
    specs = recorded_specs(source)
    if tasks:
        source = {**source, "tasks": [absolute_task(spec) for spec in tasks]}
    elif not trust and (spec := next(filter(names_python_file, specs), None)) is not None:
        raise InputError(
            f"{folder}: its record names the Python file of {spec}, which this command does not run unless told "
            f"to: name the task with --task {shlex.quote(spec)}, or add --trust if the run is your own"
        )
    if settings.address is not None and _last_named("address", given) is None and not trust:
        raise InputError(
            f"{folder}: its record names the Ray cluster at {settings.address}, which this command does not join "
            f"unless told to: name it with --address {settings.address}, or add --trust if the run is your own"
        )
    found = recorded_tasks(source, data)
    _run(found, method, settings, seed, folder, source, jobs=jobs, as_json=as_json, force=force)


def _last_named(key: str, texts: list[str]) -> str | None:
    """Returns the last value given for a setting."""
    pairs = (text.partition("=") for text in texts)
    return next((value.strip() for name, _, value in reversed(list(pairs)) if name.strip() == key), None)


def _require_as_many_threads(settings: SearchSettings, jobs: int, recorded: int, folder: Path) -> None:
    """Raise before workers are started if the record would refuse their number of threads."""
    from evomal.runs.executors import threads_of_each

    threads = threads_of_each(jobs, settings)
    # Where none are given, each worker takes those of the record, if it has that many.
    if settings.threads not in (None, recorded) or (jobs > 1 and threads < recorded):
        fewer = " or with fewer jobs" if settings.threads is None else ""
        raise InputError(
            f"{folder}: threads was {recorded} but is {threads}, the number per worker: "
            f"resume with --set threads={recorded}{fewer}"
        )


def _run(
    tasks: "list[Task]", method: str, settings: SearchSettings, seed: int, folder: Path, source: Mapping[str, Any],
    *, jobs: int, as_json: bool, force: bool = False,
) -> None:  # fmt: skip
    from evomal.cli.display import JobsAdvice, stoppable
    from evomal.runs.run_loop import search
    from evomal.runs.store import RECORD_NAME

    def remedy() -> str:
        if not os.path.exists(folder / RECORD_NAME):
            return " before anything was recorded"
        return f"; resume with `{_resuming(folder, source['tasks'], settings, jobs)}`"

    # Without several learning rates, models may be stacked in one chunk, which processes cannot divide.
    is_advised = jobs == 1 and settings.executor == "local" and settings.tried_rates

    with stoppable(remedy) as listener:
        result = search(
            tasks, method=method, seed=seed, folder=folder, settings=settings, source=source, listener=listener,
            force=force, jobs=jobs, callback=JobsAdvice() if is_advised else None,
        )  # fmt: skip
    if as_json:
        about = {"tasks": [task.name for task in tasks], "method": method, "seed": seed, "metric": result.metric}
        echo_json({**about, **_result_data(result)})
    else:
        echo(*result.summary().split("\n"))


def _result_data(result: "SearchResult") -> dict[str, Any]:
    from evomal.methods.candidates import genome_text, size_of

    best, recommended = result.best, result.recommended
    return {
        "best": None if best is None else {
            "genome": genome_text(best.genome), "size": size_of(best.genome), "weights": list(best.weights),
            "fitness": best.fitness, "value": best.value, "formula": best.formula(), "generation": best.generation,
            "lr": best.lr, "scores": best.scores, "mean": best.mean,
        },
        "rivals": result.rivals,
        "final": None if result.final is None else {
            "rivals": {name: found.values for name, found in result.final.rivals.items()},
            "verdict": result.final.verdict(result.metric),
            "by_task": [{"task": one.task, "metric": one.metric, "values": one.values} for one in result.by_task],
        },
        "recommended": None if recommended is None else {
            "name": recommended.name, "learned": recommended.learned is not None, "lr": recommended.lr,
            "rate": recommended.rate,
        },
        "history": [
            {
                "generation": entry.number, "counts": {str(state): n for state, n in entry.counts.items()},
                "best": None if entry.best is None else entry.best.fitness, "seconds": entry.seconds,
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
