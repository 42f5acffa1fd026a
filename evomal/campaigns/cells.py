"""The cells of a campaign: one search each, and one comparison for each task. A finished cell is never run again.

Each cell has a folder, in which the search or the comparison records itself and is resumed from, and a file
`cell.json`, which is written when the cell is finished: what was planned, and what came of it.
"""

import contextlib
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from evomal import __version__
from evomal.campaigns.declaration import STRONG, CampaignTask
from evomal.campaigns.record import LEARNED, ComparedRow, ComparisonCell, FinalOn, Provenance, SearchCell, TrainedLoss
from evomal.engine.device_memory import device_error
from evomal.engine.resolve import resolve_loss
from evomal.errors import EvomalError, InputError
from evomal.files import create_folder, find_foreign, write_atomically
from evomal.losses.files import find_loss
from evomal.methods.baseline import strong_rivals
from evomal.paper.families import family
from evomal.runs.callbacks import SearchListener
from evomal.runs.canonical import canonical, parsed
from evomal.runs.results import SearchResult
from evomal.runs.resuming import as_recorded
from evomal.runs.run_loop import search
from evomal.runs.store import BEST_NAME
from evomal.settings import WORKPLACE, SearchSettings
from evomal.tasks.task import Task
from evomal.text import printable
from evomal.threads import hardware, thread_count
from evomal.verdict.comparing import compare_contestants
from evomal.verdict.comparison import Comparison, Trained, cost_of
from evomal.verdict.contestants import ComparedLoss, Contestant, baseline_contestant, given_contestants
from evomal.verdict.folder import write_result
from evomal.verdict.plan import ComparisonPlan

CELL_NAME, TIMES_NAME = "cell.json", "times.json"
_LONGEST = 64_000_000  # bytes
_LATER_SETTINGS = ("scaled_to",)  # that the first cells did not have
_GIT_SECONDS = 10
_LONGEST_COMMIT = 60  # characters
COMMIT = "EVOMAL_COMMIT"

Cell = TypeVar("Cell", bound=BaseModel)


def commit() -> str:
    """The commit of evomal's source, with `+` if files of it were changed; its version outside a repository.

    For a copy of the source without its repository, as on another machine, the variable EVOMAL_COMMIT names it.
    """
    if given := os.environ.get(COMMIT):
        return printable(given)[:_LONGEST_COMMIT]
    folder = Path(__file__).parents[2]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != folder.resolve():
            return f"version {__version__}"  # installed inside a repository of something else
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "evomal")
        return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return f"version {__version__}"


@dataclass(frozen=True)
class CellFolder:
    """The folder of one cell."""

    path: Path

    def cell(self, kind: type[Cell], planned: Mapping[str, Any]) -> Cell | None:
        """What came of the cell, if it is finished and nothing else is planned now."""
        content = find_foreign(self.path / CELL_NAME, limit=_LONGEST)
        if content is None:
            return None
        try:
            found = parsed(content.decode())
            is_same = canonical(found["planned"]) == canonical(dict(planned))
            return kind.model_validate(found["result"]) if is_same else None
        except (ValueError, TypeError, KeyError):  # also an InputError, or an error of pydantic
            rule = "is not what evomal writes: remove it to run the cell again"
            raise InputError(f"{self.path / CELL_NAME}: {rule}") from None

    def finish(self, planned: Mapping[str, Any], cell: BaseModel) -> None:
        """Write what came of the cell."""
        result = cell.model_dump(mode="json")
        content = json.dumps({"planned": dict(planned), "result": result}, indent=1, allow_nan=False)
        write_atomically(self.path / CELL_NAME, f"{content}\n".encode())

    @contextlib.contextmanager
    def timed(self) -> Iterator[list[float]]:
        """A context whose time is added to that of earlier calls; afterwards the list holds the sum."""
        path, begin, earlier = create_folder(self.path) / TIMES_NAME, time.perf_counter(), 0.0
        content = find_foreign(path, limit=1_000)
        with contextlib.suppress(ValueError):  # a damaged file counts as no time
            earlier = float(content or 0)
        earlier = earlier if math.isfinite(earlier) else 0.0
        seconds = [earlier]
        try:
            yield seconds
        finally:
            seconds[0] = earlier + time.perf_counter() - begin
            write_atomically(path, f"{seconds[0]:.3f}\n".encode())


def _planned_settings(settings: SearchSettings) -> dict[str, Any]:
    """The settings that can change a result; later ones are left out at their defaults, so that older cells match."""
    later = {name for name in _LATER_SETTINGS if getattr(settings, name) == type(settings).model_fields[name].default}
    return settings.model_dump(mode="json", exclude={*WORKPLACE, *later})


@dataclass(frozen=True)
class PlannedSearch:
    """One search of a campaign."""

    task: str
    method: str
    preset: str
    seed: int
    settings: SearchSettings
    changes: dict[str, Any]
    """The changes that the campaign makes to the preset."""
    folder: Path

    def __str__(self) -> str:
        return f"{self.task}/{self.preset}-{self.method}-{self.seed}"

    @property
    def planned(self) -> dict[str, Any]:
        """Everything that can change the result."""
        settings = _planned_settings(self.settings)
        return {"method": self.method, "preset": self.preset, "seed": self.seed, "settings": settings}

    @property
    def cell(self) -> SearchCell | None:
        """What came of it, if it is finished."""
        return CellFolder(self.folder).cell(SearchCell, self.planned)

    def run(self, task: Task, listener: SearchListener | None = None) -> SearchCell:
        """Search, or resume the search; whatever stops it leaves a record that is resumed next time."""
        place = CellFolder(create_folder(self.folder))
        self._require_own_settings()
        with place.timed() as seconds:
            result = search(
                task, method=self.method, seed=self.seed, settings=self.settings, folder=self.folder, listener=listener
            )
        is_resplit = self.settings.resplit and task.exchangeable
        found = self._described(result, seconds[0], is_resplit=is_resplit)
        place.finish(self.planned, found)
        return found

    def _require_own_settings(self) -> None:
        """Raise InputError if the record is of an earlier version and would be resumed with that version's settings."""
        recorded = as_recorded(self.settings, self.folder)
        changed = [name for name in _LATER_SETTINGS if getattr(recorded, name) != getattr(self.settings, name)]
        if changed:
            found = ", ".join(f"{name} {getattr(recorded, name)!r}" for name in changed)
            raise InputError(
                f"{self.folder}: its record is of an earlier version, with {found}: set that in the campaign, or "
                "choose another folder"
            )

    def _described(self, result: SearchResult, seconds: float, *, is_resplit: bool) -> SearchCell:
        best, final, advised = result.best, result.final, result.recommended
        stages = sum(sum(entry.seconds.values()) for entry in result.history)
        lead = None if final is None or not all(map(math.isfinite, final.lead)) else final.lead
        on_other_rows = None if final is None or lead is None else final.lead_on_other_rows
        is_resplit = is_resplit and not result.reused_rows  # a final at one learning rate draws no splits
        final_on: FinalOn = "own rows" if result.final_rows else "new splits" if is_resplit else "rows of the search"
        return SearchCell(
            method=self.method, preset=self.preset, seed=self.seed, settings=self.changes,
            # A call that was killed recorded no time, but its stages did.
            made=provenance(self.settings, max(seconds, stages)),
            generations=len(result.history), counts=result.counts,
            formula=None if best is None else best.formula(),
            family=None if best is None else str(family(best.loss())),
            fitness=None if best is None else _finite(best.value),
            lr=None if best is None else best.lr,
            recommended=None if advised is None else LEARNED if advised.learned else advised.name,
            rival=None if final is None else final.best_rival[0], lead=lead,
            final_on=None if final is None else final_on,
            half_on_other_rows=None if on_other_rows is None else on_other_rows[1],
            headroom={} if result.headroom is None else {
                name: _finite(result.headroom.last(name).mean) for name in result.headroom.losses
            },
            history=tuple(
                None if entry.best is None else _finite(result.value(entry.best.fitness)) for entry in result.history
            ),
        )  # fmt: skip


class CellRunner:
    """Runs searches of one task in a worker process, until a moment at which it stops them."""

    def __init__(self, task: Task, *, until: float | None) -> None:
        self._task, self._until = task, until

    def describe(self) -> dict[str, Any]:
        """Nothing: the records of the searches say what they were run with."""
        return {}

    def run(self, jobs: Sequence[PlannedSearch]) -> list[SearchCell | EvomalError | None]:
        """The outcome of each search: its cell, the error that ended it, or None if there was not enough time."""
        return [run_until(TimeLimit(self._until), job, self._task) for job in jobs]


def run_until(
    limit: "TimeLimit", job: PlannedSearch, task: Task, listener: SearchListener | None = None
) -> SearchCell | EvomalError | None:
    """Run one search until the time is used up.

    InputError is raised, since it concerns all searches, and the failure of a GPU, which costs the process. Any other
    error is returned, also a request to stop, so that it passes from a worker to the campaign.
    """
    try:
        limit.check()
        return job.run(task, limit.listener(listener))
    except OutOfTimeError:
        return None
    except InputError:
        raise
    except EvomalError as error:
        if (failure := device_error(error)) is not None:
            raise failure from error
        return error


@dataclass(frozen=True)
class PlannedComparison:
    """The comparison of a task, when all its searches are finished."""

    task: CampaignTask
    searches: tuple[PlannedSearch, ...]
    """Also those of other tasks whose losses are compared here."""
    settings: SearchSettings
    changes: dict[str, Any]
    folder: Path

    def __str__(self) -> str:
        return f"{self.task.name}/comparison"

    @property
    def planned(self) -> dict[str, Any]:
        """Everything that can change the result; learned losses are identified by their searches."""
        task = self.task
        searches = [[str(one), canonical(one.planned)] for one in self.searches]
        settings = _planned_settings(self.settings)
        return {
            "losses": list(task.losses), "seeds": task.seeds, "tune_lr": task.tune_lr, "rescale": task.rescale,
            "searches": searches, "settings": settings,
            **({"tune_decay": True} if task.tune_decay else {}),
        }  # fmt: skip

    @property
    def cell(self) -> ComparisonCell | None:
        """What came of it, if it is finished."""
        return CellFolder(self.folder).cell(ComparisonCell, self.planned)

    def run(self, task: Task, plan: ComparisonPlan) -> ComparisonCell:
        """Train with every loss, or continue where an earlier call was stopped."""
        place = CellFolder(create_folder(self.folder))
        base = baseline_contestant(task)
        names = [name for text in self.task.losses for name in (strong_rivals(task)[1:] if text == STRONG else [text])]
        learned = [
            Contestant(name, tuple(_found_loss(one, task) for one in searches))
            for name, searches in self.contestants.items()
        ]
        given = given_contestants(list(dict.fromkeys(names)), task, baseline=base, taken=[one.name for one in learned])
        plan.require_decay(task)
        with place.timed() as seconds:
            found = compare_contestants(task, base, [*given, *learned], replace(plan, folder=self.folder))
            write_result(found, self.folder)
        cell = ComparisonCell(
            made=provenance(self.settings, seconds[0]),
            steps=found.steps, milestones=found.milestones, seeds=found.seeds, tune_lr=found.tune_lr,
            rates=found.rates, baseline=found.baseline, settings=self.changes, rows=_compact(found),
            verdicts={name: (one.kind, one.sentence) for name, one in found.verdicts.items()},
        )  # fmt: skip
        place.finish(self.planned, cell)
        return cell

    @property
    def contestants(self) -> dict[str, list[PlannedSearch]]:
        """The searches of each method, preset and task that was searched on, by the name of what they found."""
        groups: dict[str, list[PlannedSearch]] = {}
        for one in self.searches:
            name = one.method if len(self.task.presets) == 1 else f"{one.method} ({one.preset})"
            if one.task != self.task.name:
                name = f"{one.method} ({one.preset}) from {one.task}"
            groups.setdefault(name, []).append(one)
        return groups


def _found_loss(one: PlannedSearch, task: Task) -> ComparedLoss | None:
    loss, cell = find_loss(one.folder / BEST_NAME), one.cell
    formula = None if cell is None else cell.formula
    return None if loss is None else ComparedLoss.of(resolve_loss(loss, task), formula, task=task)


class OutOfTimeError(Exception):
    """The time of the campaign is used up."""


class TimeLimit:
    """The moment at which a campaign stops, by `time.time`, which all processes of a machine share; None: never."""

    def __init__(self, until: float | None) -> None:
        self.until = until

    def check(self) -> None:
        """Raise OutOfTimeError if the time is used up."""
        if self.until is not None and time.time() >= self.until:
            raise OutOfTimeError

    def listener(self, inner: SearchListener | None) -> SearchListener:
        """Passes everything on to a listener, if there is one, and stops the work when the time is used up."""
        return cast("SearchListener", _Limited(inner, self.check))


class _Limited:
    """What `TimeLimit.listener` returns: every method checks the time, then calls that of the inner listener."""

    def __init__(self, inner: SearchListener | None, check: Callable[[], None]) -> None:
        self._inner, self._check = inner, check

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not hasattr(SearchListener, name):
            raise AttributeError(name)

        def passed_on(*arguments: Any, **options: Any) -> None:
            self._check()
            if self._inner is not None:
                getattr(self._inner, name)(*arguments, **options)

        return passed_on


def provenance(settings: SearchSettings, seconds: float) -> Provenance:
    """The provenance of a cell that was computed here with these settings, in that time."""
    with thread_count(settings.threads):
        return Provenance(commit=commit(), hardware=hardware(), seconds=seconds)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _compact(comparison: Comparison) -> tuple[ComparedRow, ...]:
    """The rows of a comparison without their curves."""

    def shortened(loss: Trained) -> TrainedLoss:
        higher = comparison.higher_is_better
        tests = (
            None if math.isinf(cost_of(score, score.test, higher_is_better=higher)) else score.test
            for score in loss.scores
        )
        left_out = tuple(score.left_out for score in loss.scores)
        return TrainedLoss(
            formula=loss.formula, lr=loss.lr, factor=loss.factor, test=tuple(tests),
            left_out=left_out if any(left_out) else (), weight_decay=loss.weight_decay,
        )  # fmt: skip

    return tuple(
        ComparedRow(
            name=entry.name,
            variant=entry.variant,
            losses=tuple(None if loss is None else shortened(loss) for loss in entry.losses),
        )
        for entry in comparison.entries
    )
