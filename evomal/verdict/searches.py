"""The searches of a comparison: one after the other in this process, or each as a job of a worker process."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.engine.resolve import loss_for_task
from evomal.errors import EvomalError
from evomal.files import create_folder
from evomal.methods import Failure, readable
from evomal.runs.display import SearchListener
from evomal.runs.executors import WorkerPool
from evomal.runs.results import Best
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.text import plural
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
    """For each place, one contestant per method: the losses that its searches find on the source.

    Args:
        methods: The methods.
        source: The task, or tasks, to search on.
        places: The settings of the searches, and the folder below which each is recorded; None: not recorded.
        on: The task on which the losses are compared.
        search_seeds: The number of searches of each method.
        pool: Processes that each run one search at a time; None: this process runs all of them.
        listener: Hears of each search; of all its steps, if it is run in this process.
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
        None if best is None else ComparedLoss.of(loss_for_task(best.loss(), on), readable(best.genome, best.weights))
        for best in found
    ]
    return Contestant(method, tuple(losses), tuple(None if best is None else best.fitness for best in found))


def _search_folder(folder: Path, name: str) -> Path:
    """The folder of a search below that of its comparison, which may be a stranger's and hold links."""
    return create_folder(create_folder(folder / SEARCHES, follow_links=False) / name, follow_links=False)
