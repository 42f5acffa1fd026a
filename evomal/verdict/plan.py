"""How a comparison is made: its settings, seeds, folder and workers, and the searches for the losses it compares."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evomal.checks import MOST_SEEDS, path_to, whole_number
from evomal.engine.resolve import loss_for_task
from evomal.errors import EvomalError, InputError
from evomal.files import create_folder
from evomal.methods import Failure, readable
from evomal.runs.callbacks import SearchListener
from evomal.runs.display import with_display
from evomal.runs.executors import WorkerPool, check_jobs, worker_pool
from evomal.runs.results import Best
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from evomal.tasks.recipe import final_recipe
from evomal.tasks.task import Task
from evomal.text import plural
from evomal.threads import thread_count
from evomal.verdict.contestants import ComparedLoss, Contestant

SEARCHES = "searches"
"""The folder of a comparison's searches, each in `METHOD-SEED` below it."""


@dataclass(frozen=True)
class ComparedSearch:
    """One search of a comparison."""

    method: str
    seed: int
    settings: SearchSettings
    folder: Path | None

    def __str__(self) -> str:
        rate = "" if self.settings.lr is None else f", lr {self.settings.lr:g}"
        return f"{self.method}, seed {self.seed}{rate}"

    def run(self, source: Sequence[Task], listener: SearchListener | None = None) -> Best | None:
        """Search, or resume the search that the folder holds; None if nothing was found."""
        options: dict[str, Any] = {"method": self.method, "seed": self.seed, "settings": self.settings}
        return search(source, folder=self.folder, listener=listener, **options).best


class SearchRunner:
    """Runs whole searches in a worker process."""

    def __init__(self, *source: Task) -> None:
        self._source = source

    def describe(self) -> dict[str, Any]:
        """Nothing: the records of the searches say what they were run with."""
        return {}

    def run(self, jobs: Sequence[ComparedSearch]) -> list[Best | None]:
        """What each search found."""
        return [job.run(self._source) for job in jobs]


def searched_contestants(
    methods: Sequence[str], source: Task | Sequence[Task], places: Sequence[tuple[SearchSettings, Path | None]], *,
    on: Task, search_seeds: int, pool: WorkerPool | None = None, listener: SearchListener | None = None,
) -> list[list[Contestant]]:  # fmt: skip
    """For each place, one contestant per method: the losses that its searches find on the source, for use `on` a task.

    A place is the settings of the searches, and the folder below which each is recorded; None: not recorded. Without a
    pool of processes, this process runs all searches, and the listener is called at each of their steps.
    """
    searches = [
        ComparedSearch(method, seed, settings, None if folder is None else _search_folder(folder, f"{method}-{seed}"))
        for settings, folder in places
        for method in methods
        for seed in range(search_seeds)
    ]
    tasks = [source] if isinstance(source, Task) else list(source)
    found = iter(_run(searches, tasks, listener) if pool is None else _run_in(pool, searches, tasks, listener))
    return [[_contestant(method, [next(found) for _ in range(search_seeds)], on) for method in methods] for _ in places]


def _run(
    searches: Sequence[ComparedSearch], source: Sequence[Task], listener: SearchListener | None
) -> list[Best | None]:
    found = []
    for number, one in enumerate(searches, 1):
        if listener is not None:
            listener.announce(f"searching with {one} (search {number} of {len(searches)})")
        found.append(one.run(source, listener))
    return found


def _run_in(
    pool: WorkerPool, searches: Sequence[ComparedSearch], source: Sequence[Task], listener: SearchListener | None
) -> list[Best | None]:
    """What each search found, by worker processes; a search whose process dies twice ends all of them."""
    found: dict[int, Best | None] = {}
    if searches:
        if listener is not None:
            listener.announce(f"{plural(len(searches), 'search')} in {pool.size} processes")
        pool.prepare(SearchRunner, *source)
    for index, best in pool.run(searches):
        if isinstance(best, Failure):
            raise EvomalError(f"the search with {searches[index]}, failed: {best.sentence}")
        found[index] = best
        if listener is not None:
            result = "found nothing" if best is None else f"found {best.value:.4g}"
            listener.announce(f"search {len(found)} of {len(searches)} is done: {searches[index]} {result}")
    return [found[index] for index in range(len(searches))]


def _contestant(method: str, found: Sequence[Best | None], on: Task) -> Contestant:
    losses = [
        None
        if best is None
        else ComparedLoss.of(loss_for_task(best.loss(), on), readable(best.genome, best.weights), task=on)
        for best in found
    ]
    return Contestant(method, tuple(losses), tuple(None if best is None else best.fitness for best in found))


def _search_folder(folder: Path, name: str) -> Path:
    """The folder of a search below that of its comparison, which may be a stranger's and hold links."""
    return create_folder(create_folder(folder / SEARCHES, follow_links=False) / name, follow_links=False)


EVALUATION_SEEDS = 1000
"""The first seed of final trainings. Searches, whose seeds begin at 0, do not use these seeds."""


@dataclass(frozen=True)
class ComparisonPlan:
    """How a comparison is made, whichever losses take part; the arguments that the functions here share."""

    settings: SearchSettings
    seeds: int
    search_seeds: int
    tune_lr: int
    rescale: bool
    folder: Path | None
    progress: bool
    listener: SearchListener | None
    jobs: int = 1
    tune_decay: bool = False
    pool: WorkerPool | None = None
    """The workers, while the plan is running; None if this process does all the work."""

    @classmethod
    def of(
        cls, *, seeds: int = 5, search_seeds: int = 1, tune_lr: int = 0, rescale: bool = True, preset: str = "quick",
        settings: SearchSettings | None = None, folder: str | os.PathLike[str] | None = None, progress: bool = False,
        listener: SearchListener | None = None, jobs: int = 1, tune_decay: bool = False, **changes: Any,
    ) -> "ComparisonPlan":  # fmt: skip
        """The plan of the arguments of `compare`; InputError if one is not valid."""
        resolved = SearchSettings.given(settings, preset, changes)
        whole_number("seeds", seeds, at_least=1, at_most=MOST_SEEDS)
        whole_number("search_seeds", search_seeds, at_least=1, at_most=MOST_SEEDS)
        whole_number("tune_lr", tune_lr, at_least=0, at_most=MOST_SEEDS)
        check_jobs(jobs, resolved)
        if tune_decay and not tune_lr:
            raise InputError("tune_decay needs tune_lr to be at least 1 but got 0")
        place = None if folder is None else path_to("folder", folder)
        return cls(resolved, seeds, search_seeds, tune_lr, rescale, place, progress, listener, jobs, bool(tune_decay))

    def at_rate(self, rate: float) -> "ComparisonPlan":
        """The plan at a learning rate, with a folder of its own."""
        place = None if self.folder is None else self.folder / f"lr-{rate:g}"
        return replace(self, settings=self.settings.with_changes(lr=float(rate)), folder=place)

    def judged(self, task: Task) -> Task:
        """The task with the metric of the settings, if they name one."""
        return task if self.settings.metric is None else task.judged_by(self.settings.metric)

    def require_decay(self, task: Task) -> None:
        """Raise InputError if the weight decay is to be tuned, and the task is trained without."""
        recipe = final_recipe(task.recipe, self.settings)
        if not self.tune_decay or recipe.has_decay:
            return
        if not isinstance(recipe.optimizer, str):
            raise InputError(f"tune_decay cannot be used for {task.name}, as a function makes the recipe's optimizer")
        raise InputError(
            f"tune_decay needs a weight decay to begin with, but {task.name} has none: set one, as in weight_decay=1e-4"
        )

    @property
    def evaluation_seeds(self) -> range:
        """The seeds of the final trainings."""
        return range(EVALUATION_SEEDS, EVALUATION_SEEDS + self.seeds)

    @contextlib.contextmanager
    def running(self) -> Iterator["ComparisonPlan"]:
        """A context with the plan's listener, workers and number of threads."""
        with (
            with_display(self.progress, self.listener) as listener,
            thread_count(self.settings.threads),
            self.workers(listener) as pool,
        ):
            yield replace(self, listener=listener, pool=pool)

    def workers(self, listener: SearchListener | None) -> contextlib.AbstractContextManager[WorkerPool | None]:
        """The workers that the jobs or the executor ask for; None if this process does all the work."""
        return worker_pool(self.settings, listener, jobs=self.jobs)

    def search(self, methods: Sequence[str], source: Task | Sequence[Task], *, on: Task) -> list[Contestant]:
        """What the methods find on the source, for use on a task."""
        (found,) = self.search_at([self], methods, source, on=on)
        return found

    def search_at(
        self, plans: Sequence["ComparisonPlan"], methods: Sequence[str], source: Task | Sequence[Task], *, on: Task
    ) -> list[list[Contestant]]:
        """What the methods find with the settings of each plan, and record in its folder."""
        return searched_contestants(
            methods, source, [(plan.settings, plan.folder) for plan in plans], on=on, search_seeds=self.search_seeds,
            pool=None if self.jobs == 1 else self.pool, listener=self.listener,
        )  # fmt: skip

    def announce(self, sentence: str) -> None:
        """Say which stage comes next."""
        if self.listener is not None:
            self.listener.announce(sentence)
