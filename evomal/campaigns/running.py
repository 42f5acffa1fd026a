"""`run_campaign`: the cells of a campaign, run, resumed and spread over processes, and its files."""

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from evomal.campaigns.cells import (
    CellRunner,
    OutOfTimeError,
    PlannedComparison,
    PlannedSearch,
    TimeLimit,
    run_until,
)
from evomal.campaigns.declaration import TRAINED_FIGURES, Campaign, CampaignTask
from evomal.campaigns.figures import FIGURES, PlannedFigure, write_files
from evomal.campaigns.record import CampaignResult, MeasuredTask, SearchCell
from evomal.checks import path_to
from evomal.errors import EvomalError, InputError, StoppedError
from evomal.files import create_folder
from evomal.methods import Failure
from evomal.runs.callbacks import SearchListener
from evomal.runs.executors import WorkerPool
from evomal.runs.lock import FolderLock
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.verdict.plan import ComparisonPlan

_GRACE = 60.0  # seconds that workers get to stop by themselves
_THREADS = 1


@dataclass(frozen=True)
class TaskPlan:
    """The cells of one task, and the task itself when it is needed."""

    declared: CampaignTask
    searches: tuple[PlannedSearch, ...]
    comparison: PlannedComparison
    figures: tuple[PlannedFigure, ...]
    load: Callable[[], Task]

    @property
    def name(self) -> str:
        """The task's name in the campaign."""
        return self.declared.name

    @property
    def left(self) -> list[str]:
        """The cells that are not finished."""
        cells: list[PlannedSearch | PlannedComparison | PlannedFigure]
        cells = [*self.searches, self.comparison, *self.figures]
        return [str(cell) for cell in cells if cell.cell is None]

    def require_readable(self) -> None:
        """Raise InputError if the file of a cell is damaged."""
        _ = self.left  # reads them all


def planned(
    campaign: Campaign, out: Path, *, changes: Sequence[str] = (), data: Path | None = None
) -> tuple[TaskPlan, ...]:
    """The cells of a campaign below a folder.

    Args:
        campaign: The campaign.
        out: The folder of its cells.
        changes: Settings of this machine as `key=value`: device, executor and its options.
        data: The folder of the datasets.
    """
    searches = {task.name: _searches(task, out, changes) for task in campaign.tasks}
    found = []
    for task in campaign.tasks:
        own = [*searches[task.name], *(one for other in task.learned_on for one in searches[other])]
        settings = _settings(task, task.presets[0], changes).with_changes(**task.evaluation)
        comparison = PlannedComparison(
            task, tuple(own), settings, {**task.settings, **task.evaluation}, out / task.name / "comparison"
        )
        figures = tuple(
            PlannedFigure(kind, task.figures, comparison, out / task.name / "figures" / kind)
            for kind in task.figures.kinds
            if kind in TRAINED_FIGURES
        )
        found.append(TaskPlan(task, searches[task.name], comparison, figures, _loader(task, campaign.folder, data)))
    return tuple(found)


def run_campaign(
    campaign: Campaign,
    out: str | os.PathLike[str],
    *,
    only: Sequence[str] | None = None,
    jobs: int = 1,
    seconds: float | None = None,
    changes: Sequence[str] = (),
    data: Path | None = None,
    listener: SearchListener | None = None,
    command: Sequence[str] = (),
) -> CampaignResult:
    """Run the cells of a campaign that are not finished, and write its table, figures and `campaign.json`.

    Task by task, all searches are run, then the comparison of everything that they found. Every cell has a folder and
    is resumed from it; the same call after an interruption, or when the time was used up, continues to the same result.

    Args:
        campaign: What to measure, as `read_campaign` returns it.
        out: The folder for cells, figures and result.
        only: The tasks to run, with those that their losses are learned on; the files cover the whole campaign. None:
            all tasks.
        jobs: The number of processes on this machine that searches and trainings are divided among.
        seconds: The time after which to stop; what is left is named in the result. None: run to the end.
        changes: Settings of this machine as `key=value`: device, executor and its options.
        data: The folder of the datasets.
        listener: Called at every step.
        command: The command that is recorded; by default one that repeats the call.

    Returns:
        What is measured so far, and which cells are left.

    Raises:
        InputError: A setting or file is not valid, or the folder holds something else. If that concerns some tasks
            only, all others were run.
        EvomalError: Cells failed; all others were run.
        StoppedError: Somebody asked a search to stop, as the page of `evomal serve` can; call again to resume.

    Example:
        >>> campaign = evomal.campaigns.read_campaign("campaigns/searches.toml")  # doctest: +SKIP
        >>> run_campaign(campaign, "runs/searches", jobs=2, seconds=540).left  # doctest: +SKIP
        ('california/comparison',)
    """
    place = create_folder(path_to("out", out))
    plans = planned(campaign, place, changes=changes, data=data)
    chosen = [plan for plan in plans if plan.name in campaign.chosen(only)]
    for plan in plans:
        plan.require_readable()
    limit = TimeLimit(None if seconds is None else time.time() + seconds)
    words = command or ("evomal", "campaign", f"campaigns/{campaign.name}.toml", "--out", str(out))
    failures = _Failures()
    stopped: StoppedError | None = None
    lock = FolderLock(place)
    try:
        try:
            with contextlib.suppress(OutOfTimeError), _workers(chosen, jobs, limit, listener) as pool:
                for plan in chosen:
                    with failures.kept(plan.name):
                        _run_searches(plan, pool, limit, listener, failures)
                    with failures.kept(str(plan.comparison)):
                        _compare(plan, pool, limit, listener)
                for plan in chosen:  # again, for losses that are learned on later tasks
                    if str(plan.comparison) not in failures.found:
                        with failures.kept(str(plan.comparison)):
                            _compare(plan, pool, limit, listener)
                for plan in chosen:
                    _draw(plan, place / FIGURES, limit, listener, failures)
        except StoppedError as error:
            stopped = error
        result = _result(campaign, plans, shlex.join(words), failures)
        write_files(result, place, campaign)
    finally:
        lock.release()
    if stopped is not None:
        raise stopped
    failures.raise_any()
    return result


class _Failures:
    """The errors that ended cells or tasks; they are raised after all others were run."""

    def __init__(self) -> None:
        self.found: dict[str, EvomalError] = {}
        """By the name of the cell or task."""

    @contextlib.contextmanager
    def kept(self, place: str) -> Iterator[None]:
        """A context that keeps its error for later, unless it is a request to stop."""
        try:
            yield
        except StoppedError:
            raise
        except EvomalError as error:
            self.found[place] = error

    def raise_any(self) -> None:
        """Raise all errors that were kept as one: an InputError if each of them is."""
        if self.found:
            are_input_errors = all(isinstance(error, InputError) for error in self.found.values())
            sentences = "; ".join(f"{place}: {error}" for place, error in self.found.items())
            raise (InputError if are_input_errors else EvomalError)(f"failed: {sentences}")


def _run_searches(
    plan: TaskPlan, pool: WorkerPool | None, limit: TimeLimit, listener: SearchListener | None, failures: _Failures
) -> None:
    """Run the searches of one task that are not finished."""
    # By seed, so that a campaign that is stopped early has searches of every method.
    waiting = sorted((one for one in plan.searches if one.cell is None), key=lambda one: one.seed)
    if waiting:
        _options(plan).require_decay(plan.load())  # before hours of searches, not after them
    for job, found in _searched(waiting, plan.load(), pool, limit, listener) if waiting else ():
        with failures.kept(str(job)):
            if isinstance(found, EvomalError):
                raise found
            if found is None:
                raise OutOfTimeError
            if listener is not None:
                listener.announce(f"{job} is done")


def _compare(plan: TaskPlan, pool: WorkerPool | None, limit: TimeLimit, listener: SearchListener | None) -> None:
    """Run the comparison of one task, unless it is finished or searches are missing."""
    limit.check()
    comparison = plan.comparison
    if comparison.cell is not None or any(one.cell is None for one in comparison.searches):
        return
    options = replace(_options(plan), listener=limit.listener(listener))
    if listener is not None:
        listener.announce(str(comparison))
    with options.running() as running:
        comparison.run(plan.load(), running if pool is None else replace(running, pool=pool))


def _options(plan: TaskPlan) -> ComparisonPlan:
    """How the losses of a task are compared."""
    declared = plan.declared
    return ComparisonPlan.of(
        seeds=declared.seeds, tune_lr=declared.tune_lr, tune_decay=declared.tune_decay, rescale=declared.rescale,
        settings=plan.comparison.settings,
    )  # fmt: skip


def _draw(
    plan: TaskPlan, figures: Path, limit: TimeLimit, listener: SearchListener | None, failures: _Failures
) -> None:
    """Draw the figures of one task that need trainings, unless they are finished or the comparison is not."""
    for figure in plan.figures:
        if figure.is_ready and figure.cell is None:
            limit.check()
            if listener is not None:
                listener.announce(str(figure))
            with failures.kept(str(figure)):
                figure.run(plan.load(), figures, limit, listener)


def _searched(
    searches: Sequence[PlannedSearch], task: Task, pool: WorkerPool | None, limit: TimeLimit,
    listener: SearchListener | None,
) -> Iterator[tuple[PlannedSearch, SearchCell | EvomalError | None]]:  # fmt: skip
    """Each search with what came of it, in this process or by the workers of a pool."""
    if pool is None:
        for number, job in enumerate(searches, 1):
            if listener is not None:
                listener.announce(f"{job} (search {number} of {len(searches)})")
            yield job, run_until(limit, job, task, listener)
        return
    pool.prepare(CellRunner, task, until=limit.until)
    for index, found in pool.run(searches):
        if isinstance(found, Failure):
            found = EvomalError(found.sentence)
        yield searches[index], found


@contextlib.contextmanager
def _workers(
    plans: Sequence[TaskPlan], jobs: int, limit: TimeLimit, listener: SearchListener | None
) -> Iterator[WorkerPool | None]:
    """A pool of processes, if there are several jobs."""
    settings = plans[0].comparison.settings
    checked = ComparisonPlan.of(settings=settings, jobs=jobs)
    if checked.jobs == 1:
        yield None
        return
    late = TimeLimit(None if limit.until is None else limit.until + _GRACE).listener(listener)
    with checked.workers(late) as pool:
        yield pool


def _result(campaign: Campaign, plans: Sequence[TaskPlan], command: str, failures: _Failures) -> CampaignResult:
    """What is measured so far, without tasks that cannot be loaded."""
    tasks = []
    for plan in plans:
        cells = [cell for one in plan.searches if (cell := one.cell) is not None]
        comparison = plan.comparison.cell
        if cells or comparison is not None:
            with failures.kept(plan.name):
                tasks.append(_measured(plan, cells, comparison))
    left = [name for plan in plans for name in plan.left]
    return CampaignResult(
        name=campaign.name, title=campaign.title, about=campaign.about, command=command, tasks=tuple(tasks),
        left=tuple(left),
    )  # fmt: skip


def _measured(plan: TaskPlan, cells: Sequence[SearchCell], comparison: Any) -> MeasuredTask:
    task, declared = plan.load(), plan.declared
    rows = {"training": len(task.train), "validation": len(task.validation), "test": len(task.test)}
    return MeasuredTask(
        name=declared.name, title=declared.title or declared.name, task=declared.task,
        model=str(task.record.get("model", "")), metric=task.metric.name,
        higher_is_better=task.metric.higher_is_better, rows=rows, searches=tuple(cells), comparison=comparison,
        figures=tuple(cell for one in plan.figures if (cell := one.cell) is not None),
    )  # fmt: skip


def _searches(task: CampaignTask, out: Path, changes: Sequence[str]) -> tuple[PlannedSearch, ...]:
    return tuple(
        PlannedSearch(
            task.name, method, preset, seed, _settings(task, preset, changes), task.settings,
            out / task.name / "searches" / f"{preset}-{method}-{seed}",
        )
        for preset in task.presets
        for method in task.methods
        for seed in range(task.search_seeds)
    )  # fmt: skip


def _settings(task: CampaignTask, preset: str, changes: Sequence[str]) -> SearchSettings:
    """The settings of a cell; one thread each, so that the result does not depend on the number of processes."""
    found = SearchSettings.preset(preset, **task.settings).with_texts(changes)
    return found if found.threads is not None else found.with_changes(threads=min(_THREADS, torch.get_num_threads()))


def _loader(task: CampaignTask, folder: Path, data: Path | None) -> Callable[[], Task]:
    loaded: list[Task] = []

    def load() -> Task:
        if not loaded:
            loaded.append(task.load(folder, data))
        return loaded[0]

    return load
