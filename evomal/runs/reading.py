"""The runs an analysis is about, read from their records.

Every analysis of this package counts generations from 1, as `evomal search` prints them; the record counts from 0.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from evomal.errors import EvomalError, InputError
from evomal.losses import load_loss
from evomal.losses.contract import Kind, Loss
from evomal.methods import METHODS, learned_loss
from evomal.methods.candidates import Candidate, State, genome_from
from evomal.progress import tracked
from evomal.runs.canonical import differences
from evomal.runs.finals import Final
from evomal.runs.recorded_run import RunState, read_run
from evomal.runs.run_loop import BEST_NAME
from evomal.runs.store import RECORD_NAME
from evomal.tasks import Hardships
from evomal.tasks.datasets import DATASETS
from evomal.tasks.metrics import is_metric_of, recorded_direction
from evomal.text import plural
from evomal.units import Units

UNKNOWN = "unknown"
"""The task, method or metric of a run that does not record it as `search` does."""

_OF_THE_MACHINE = ("settings.device", "settings.threads", "settings.executor")


@dataclass(frozen=True)
class Run:
    """A search as far as it is recorded."""

    folder: Path
    task: str
    """Names, models and hardships of the tasks it searched on."""
    method: str
    seed: int | None
    metric: str
    higher_is_better: bool
    is_complete: bool
    hardware: str
    settings: Mapping[str, Any]
    candidates: tuple[Candidate, ...]
    rivals: Mapping[str, float] = field(default_factory=dict)
    """Fitness of the known losses before the first generation, the baseline first; infinite where one diverged."""
    final: Final | None = None
    """What the best candidates and the rivals came to with fresh seeds; None where that was not done."""

    @cached_property
    def computed(self) -> tuple[Candidate, ...]:
        """All candidates but elites, for which nothing was computed."""
        return tuple(candidate for candidate in self.candidates if candidate.origin != "elite")

    @cached_property
    def trained(self) -> tuple[Candidate, ...]:
        """Those whose fitness was measured, each once."""
        return tuple(candidate for candidate in self.computed if candidate.state is State.EVALUATED)

    @property
    def generations(self) -> int:
        """How many are recorded."""
        return 1 + max((candidate.generation for candidate in self.candidates), default=-1)

    def value(self, fitness: float) -> float:
        """The metric itself, of a fitness as the search compares it."""
        return -fitness if self.higher_is_better else fitness


@dataclass(frozen=True)
class Runs:
    """The runs found in some folders, and what is to be said about them."""

    runs: tuple[Run, ...]
    sentence: str = ""
    """Why there is no run."""
    notes: tuple[str, ...] = ()
    """What could not be read, and what runs that are taken together do not share."""

    def by_method(self) -> dict[tuple[str, str], dict[str, list[Run]]]:
        """The runs by task and metric, then by method; methods in the order of `evomal methods`."""
        groups: dict[tuple[str, str], dict[str, list[Run]]] = {}
        for run in sorted(self.runs, key=lambda run: (run.task, run.metric, _rank(run.method))):
            groups.setdefault((run.task, run.metric), {}).setdefault(run.method, []).append(run)
        return groups

    def only(self) -> Run | None:
        """The one run, None where there is none, or an error where there are several."""
        if len(self.runs) > 1:
            first = self.runs[0].folder
            raise InputError(f"one run was expected but got {len(self.runs)}: name one of them, such as {first}")
        return self.runs[0] if self.runs else None


def chosen_runs(folders: Sequence[str | os.PathLike[str]], *, progress: bool = False) -> Runs:
    """Every run in these folders and below them, each once; an error where there are some but none can be read."""
    places = _places([Path(folder) for folder in folders])
    runs, troubles = [], []
    for place in tracked(places, "reading runs", total=len(places), shown=progress and len(places) > 1):
        try:
            runs.append(_read(place))
        except EvomalError as error:
            troubles.append(error)
    if troubles and not runs:
        raise troubles[0]
    sentence = "" if runs else f"there is no run in {', '.join(map(str, folders))}"
    found = Runs(tuple(runs), sentence)
    notes = [f"left out: {trouble}" for trouble in troubles]
    notes += [note for methods in found.by_method().values() for group in methods.values() for note in _unlike(group)]
    return dataclasses.replace(found, notes=tuple(notes))


def _places(folders: Sequence[Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder}: is not a folder")
        for path in sorted(folder.rglob(RECORD_NAME)):
            found.setdefault(path.parent.resolve(), path.parent)
    return list(found.values())


def _read(folder: Path) -> Run:
    recorded = read_run(folder)
    settings = recorded.settings
    tasks = _tasks(settings)
    metric = _text(tasks[0].get("metric")) if tasks else UNKNOWN
    seed = settings.get("seed")
    return Run(
        folder=folder,
        task=" + ".join(map(_task_label, tasks)) or UNKNOWN,
        method=_text(settings.get("method")),
        seed=seed if isinstance(seed, int) else None,
        metric=metric,
        higher_is_better=_is_higher_better(tasks[0] if tasks else {}, metric, folder),
        is_complete=recorded.ending is not None,
        hardware=_hardware(settings),
        settings=settings,
        candidates=recorded.candidates,
        rivals=recorded.rivals,
        final=recorded.final,
    )


def _tasks(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """As `search` records them; records may have been written by others."""
    tasks = settings.get("task")
    found = tasks.values() if isinstance(tasks, Mapping) else ()
    return [task for task in found if isinstance(task, Mapping) and "name" in task]


def _task_label(task: Mapping[str, Any]) -> str:
    parts = [_text(task["name"])]
    if "model" in task:
        parts.append(_text(task["model"]))
    hardships = task.get("hardships")
    if isinstance(hardships, Mapping):
        none = dataclasses.asdict(Hardships())
        parts += [f"{name} {value}" for name, value in hardships.items() if value != none.get(name, value)]
    return ", ".join(parts)


def _is_higher_better(task: Mapping[str, Any], metric: str, folder: Path) -> bool:
    """As recorded; in older records by the metric's name, or of a user's own by what its loss file has."""
    recorded = task.get("higher_is_better", recorded_direction(metric))
    if isinstance(recorded, bool):
        return recorded
    try:
        provenance: Mapping[str, Any] = load_loss(folder / BEST_NAME).provenance
    except EvomalError:
        return False
    fitness, value = provenance.get("fitness"), provenance.get("value")
    return isinstance(fitness, float) and isinstance(value, float) and fitness != 0 and value == -fitness


def _hardware(settings: Mapping[str, Any]) -> str:
    device, threads = _text(settings.get("device")), settings.get("threads")
    return f"{device}, {plural(threads, 'thread')}" if device == "cpu" and isinstance(threads, int) else device


def _unlike(group: Sequence[Run]) -> list[str]:
    """What searches of one method do not share, though their mean will be taken."""
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
    keys = {entry.key for entry in differences(one, other)} - {*_OF_THE_MACHINE}
    return {key.split(".", 1)[1] for key in keys if key.startswith(("settings.", "task."))}


def _rank(method: str) -> tuple[int, str]:
    return (list(METHODS).index(method) if method in METHODS else len(METHODS), method)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else UNKNOWN


@dataclass(frozen=True)
class Standing:
    """Times are in UTC, as recorded."""

    state: RunState
    sentence: str
    """Why it is complete; empty where it is not."""
    created: str
    written: str | None
    """When the last generation was; None where there is none yet."""
    forced: tuple[str, ...]
    """What differed when it was forced to go on."""


def standing_of(run: Run) -> Standing:
    """As its record says, and whether a living process writes on it."""
    recorded = read_run(run.folder)
    forced = tuple(entry.differences for entry in recorded.forced)
    return Standing(recorded.state, recorded.ending or "", recorded.created, recorded.written, forced)


_ACTIVATIONS = ("identity", "softplus")
_USUAL_CLASSES = 10


def kind_of(run: Run) -> Kind | None:
    """What the task asks for: by its dataset, by the run's loss file, or by a metric that one kind alone has."""
    dataset = _dataset(run)
    if dataset in DATASETS:
        return DATASETS[dataset].kind
    try:
        return load_loss(run.folder / BEST_NAME).kind
    except EvomalError:
        kinds = [kind for kind in get_args(Kind) if is_metric_of(run.metric, kind)]
        return kinds[0] if len(kinds) == 1 else None


def units_of(run: Run) -> Units | None:
    """Those of the task's targets, which the run's loss file has; None where they are raw, or there is no such file."""
    try:
        return load_loss(run.folder / BEST_NAME).units
    except EvomalError:
        return None


def classes_of(run: Run) -> int:
    """How many the task has where that is known, else ten: as many as shapes are drawn for."""
    dataset = _dataset(run)
    return (DATASETS[dataset].classes if dataset in DATASETS else 0) or _USUAL_CLASSES


def loss_of(run: Run, candidate: Candidate) -> Loss | None:
    """The loss of a candidate; None where its kind is not known or a stranger recorded what is no loss."""
    kind, activation = kind_of(run), run.settings.get("activation")
    if kind is None:
        return None
    try:
        return learned_loss(
            genome_from(candidate.genome),
            candidate.weights,
            kind=kind,
            activation=activation if activation in _ACTIVATIONS else _ACTIVATIONS[0],
        )
    except (EvomalError, LookupError, TypeError, ValueError):
        return None


def _dataset(run: Run) -> str:
    """Of the first task; empty where none is recorded as `search` does."""
    tasks = run.settings.get("task")
    first: Any = next(iter(tasks.values()), None) if isinstance(tasks, Mapping) else None
    name = first.get("dataset") if isinstance(first, Mapping) else None
    return name if isinstance(name, str) else ""
