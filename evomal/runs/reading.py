"""Runs read from their folders: one of them, or all below some folders.

A record may be damaged, or forged by somebody who knows how evomal computes its checksums. All code that needs runs
reads them here, so that an invalid record is refused in one sentence and causes no error later.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

from evomal.checks import path_to
from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import Candidate
from evomal.progress import tracked
from evomal.runs.canonical import differences
from evomal.runs.finals import recorded_final, recorded_lr
from evomal.runs.lock import held_for
from evomal.runs.measured_rivals import recorded_headroom, rivals_of
from evomal.runs.recorded_run import Run, Runs, RunState, known_text
from evomal.runs.rows import RecordedTrial
from evomal.runs.store import RECORD_NAME, RunStore
from evomal.runs.trials_of_tasks import combined, recorded_rule, values_by_task
from evomal.tasks.metric_display import ShownMetric
from evomal.text import one_line

_R = TypeVar("_R", bound=Run)
_OBJECTS = ("task", "versions", "settings", "budgets", "first_budgets", "workplace")
_DEEPEST = 20  # levels of objects and lists
_LARGEST = 10**100  # beyond every seed and count, and within the range of a float
_MACHINE_SETTINGS = ("settings.device", "settings.threads", "settings.executor")


def load_run(folder: str | os.PathLike[str]) -> Run:
    """Read the record of a run, complete or not.

    The loss is in `best.json` of the same folder: see `load_loss`.

    Args:
        folder: The folder of the run.

    Returns:
        The run. The parts of its settings are objects, with numbers of a sensible size. The genomes of its candidates
        may be unreadable, since a newer evomal can have operators that this one does not know.

    Raises:
        InputError: The record is damaged, is not evomal's, or holds something that evomal does not write.
        EvomalError: The record cannot be read at the moment.

    Example:
        >>> load_run("runs/diabetes-evomal-0").state  # doctest: +SKIP
        <RunState.COMPLETE: 'complete'>
    """
    place = path_to("folder", folder)
    path = place / RECORD_NAME
    try:
        return _read(place)
    except _InvalidRecordError as error:
        raise InputError(f"{path}: is damaged ({error})") from None
    except EvomalError:
        raise
    except Exception as error:  # a forged record can cause any error, and must not hide the other runs
        raise InputError(f"{path}: cannot be understood ({type(error).__name__}: {one_line(error)})") from None


def find_runs(folder: str | os.PathLike[str]) -> tuple[Run, ...]:
    """Every run in the folder and below it, by path; a run that cannot be read is there with its `problem`.

    Linked folders are not entered, and folders that cannot be read are skipped.
    """
    return tuple(_read_or_problem(place) for place in _run_folders([folder]))


def read_runs(folders: Sequence[str | os.PathLike[str]], *, progress: bool = False) -> Runs:
    """Every readable run in these folders and below them, each once; raises an error if all runs are unreadable."""
    places = _run_folders(folders)
    tracked_places = tracked(places, "reading runs", total=len(places), shown=progress and len(places) > 1)
    found = [_read_or_problem(place) for place in tracked_places]
    runs = Runs(tuple(run for run in found if not run.problem))
    problems = [run for run in found if run.problem]
    if problems and not runs.runs:
        raise (InputError if problems[0].state is RunState.DAMAGED else EvomalError)(problems[0].problem)
    notes = [f"left out: {run.problem}" for run in problems]
    for methods in runs.by_method().values():
        for group in methods.values():
            notes += _notes_on_differences(group)
    sentence = "" if runs.runs else f"there is no run in {', '.join(map(str, folders))}"
    return dataclasses.replace(runs, sentence=sentence, notes=tuple(notes))


class _InvalidRecordError(InputError):
    """Something that evomal does not write; the text says what, but not yet in which record."""


def _read(folder: Path) -> Run:
    with RunStore.read(folder) as store, store.snapshot():
        settings, created, ending, forced = store.settings, store.created, store.ending, store.forced
        candidates, chunks, trials = store.candidates(), store.complete_chunks(), store.trials()
    run = run_without_candidates(
        folder, settings, trials, created=created, written=chunks[-1].written if chunks else None, ending=ending,
        forced=tuple(entry.differences for entry in forced),
    )  # fmt: skip
    return with_candidates(run, candidates, trials)


def run_without_candidates(
    folder: Path, settings: Mapping[str, Any], trials: Sequence[RecordedTrial], *, ending: str | None, **rest: Any
) -> Run:
    """The run without its candidates and its final. Raises InputError if its settings are invalid."""
    require_valid(settings)
    together = tuple(combined(trials, recorded_rule(settings)))
    return Run(
        folder=folder, state=state_of(folder, ending), settings=settings, ending=ending, rivals=rivals_of(together),
        headroom=recorded_headroom(together, recorded_lr(settings)), **rest,
    )  # fmt: skip


def with_candidates(run: _R, candidates: Sequence[Candidate], trials: Sequence[RecordedTrial]) -> _R:
    """The run with these candidates, among them those of its final, and with that final."""
    final = recorded_final(run.settings, candidates, tuple(combined(trials, recorded_rule(run.settings))))
    by_task = values_by_task(trials, final, _task_metrics(run.settings))
    return dataclasses.replace(run, candidates=tuple(candidates), final=final, by_task=by_task)


def state_of(folder: Path, ending: str | None) -> RunState:
    """The state of a readable run; `ending` says why it is complete, and is None if it is not."""
    if ending is not None:
        return RunState.COMPLETE
    return RunState.RUNNING if held_for(folder) == "search" else RunState.INTERRUPTED


def _task_metrics(settings: Mapping[str, Any]) -> list[tuple[str, ShownMetric]]:
    """The names of the recorded tasks with their metrics."""
    found = []
    for task in settings.get("task", {}).values():
        if isinstance(task, Mapping):
            metric = ShownMetric(known_text(task.get("metric")), task.get("higher_is_better") is True)
            found.append((known_text(task.get("name")), metric))
    return found


def require_valid(settings: Mapping[str, Any]) -> None:
    """Raise InputError unless recorded settings have the structure that their readers rely on."""
    for key in _OBJECTS:
        value = settings.get(key, {})
        if not isinstance(value, Mapping):
            raise _InvalidRecordError(f"its {key} must be an object but is of type {type(value).__name__}")
    waiting: list[tuple[Any, int]] = [(settings, 1)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, Mapping | list):
            if depth > _DEEPEST:
                raise _InvalidRecordError(f"its settings are nested more than {_DEEPEST} levels deep")
            inner = value.values() if isinstance(value, Mapping) else value
            waiting += [(item, depth + 1) for item in inner]
        elif isinstance(value, int) and abs(value) > _LARGEST:
            raise _InvalidRecordError("its settings hold a number of more than 100 digits")


def _read_or_problem(folder: Path) -> Run:
    try:
        return load_run(folder)
    except InputError as error:
        return Run(folder, RunState.DAMAGED, problem=str(error))
    except EvomalError as error:
        return Run(folder, RunState.UNREADABLE, problem=str(error))


def _run_folders(folders: Sequence[str | os.PathLike[str]]) -> list[Path]:
    found: dict[Path, Path] = {}
    for folder in folders:
        top = Path(folder)
        if not os.path.isdir(top):  # unlike `Path.is_dir`, False for a name that is too long
            raise InputError(f"{top}: is not a folder")
        for place in sorted(place for place, _ in folders_with({RECORD_NAME}, top)):
            found.setdefault(place.resolve(), place)
    return list(found.values())


def folders_with(wanted: Set[str], top: Path) -> Iterator[tuple[Path, set[str]]]:
    """Every folder at or below the top that has any of the files, with the names of those that it has.

    Linked folders are not entered, and folders that cannot be read are skipped.
    """
    waiting = [top]
    while waiting:
        place = waiting.pop()
        names: set[str] = set()
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.name in wanted:
                    names.add(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(place / entry.name)
        if names:
            yield place, names


def _notes_on_differences(group: Sequence[Run]) -> list[str]:
    """Sentences on settings and seeds that should not be as they are in searches that will be averaged."""
    first = group[0]
    keys = sorted({key for run in group[1:] for key in _differing(first.settings, run.settings)})
    notes = []
    if keys:
        notes.append(f"the searches of {first.method} on {first.task} differ in {', '.join(keys)}")
    seeds = [run.seed for run in group if run.seed is not None]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        named = ", ".join(map(str, twice))
        notes.append(f"more than one search of {first.method} on {first.task} has seed {named}")
    return notes


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    keys = {entry.key for entry in differences(one, other)} - {*_MACHINE_SETTINGS}
    return {key.split(".", 1)[1] for key in keys if key.startswith(("settings.", "task."))}
