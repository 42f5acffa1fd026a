"""How a comparison is made: its settings, seeds, folder and workers."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from evomal.checks import MOST_SEEDS, path_to, whole_number
from evomal.errors import InputError
from evomal.runs.display import SearchListener, with_display
from evomal.runs.executors import ProcessPool, WorkerPool, worker_pool
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.threads import thread_count
from evomal.verdict.contestants import Contestant
from evomal.verdict.searches import searched_contestants

EVALUATION_SEEDS = 1000
"""The first seed of final trainings: a search, whose seeds begin at 0, does not use them."""
_MOST_JOBS = 1_024


@dataclass(frozen=True)
class Plan:
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
    pool: WorkerPool | None = None
    """The workers, while the plan is running; None if this process does all the work."""

    @classmethod
    def of(
        cls, *, seeds: int = 5, search_seeds: int = 1, tune_lr: int = 0, rescale: bool = True, preset: str = "quick",
        settings: SearchSettings | None = None, folder: str | os.PathLike[str] | None = None, progress: bool = False,
        listener: SearchListener | None = None, jobs: int = 1, **changes: Any,
    ) -> "Plan":  # fmt: skip
        """The plan of the arguments of `compare`; InputError if one is not valid."""
        resolved = SearchSettings.given(settings, preset, changes)
        whole_number("seeds", seeds, at_least=1, at_most=MOST_SEEDS)
        whole_number("search_seeds", search_seeds, at_least=1, at_most=MOST_SEEDS)
        whole_number("tune_lr", tune_lr, at_least=0, at_most=MOST_SEEDS)
        whole_number("jobs", jobs, at_least=1, at_most=_MOST_JOBS)
        if jobs > 1 and resolved.executor != "local":
            raise InputError(f"jobs must be 1 with executor {resolved.executor}, which has workers, but got {jobs}")
        place = None if folder is None else path_to("folder", folder)
        return cls(resolved, seeds, search_seeds, tune_lr, rescale, place, progress, listener, jobs)

    def at_rate(self, rate: float) -> "Plan":
        """The plan at a learning rate, with a folder of its own."""
        place = None if self.folder is None else self.folder / f"lr-{rate:g}"
        return replace(self, settings=self.settings.with_changes(lr=float(rate)), folder=place)

    def judged(self, task: Task) -> Task:
        """The task with the metric of the settings, if they name one."""
        return task if self.settings.metric is None else task.judged_by(self.settings.metric)

    @property
    def evaluation_seeds(self) -> range:
        """The seeds of the final trainings."""
        return range(EVALUATION_SEEDS, EVALUATION_SEEDS + self.seeds)

    @contextlib.contextmanager
    def running(self) -> Iterator["Plan"]:
        """The plan with its listener and workers, while threads are set."""
        with (
            with_display(self.progress, self.listener) as listener,
            thread_count(self.settings.threads),
            self.workers(listener) as pool,
        ):
            yield replace(self, listener=listener, pool=pool)

    def workers(self, listener: SearchListener | None) -> contextlib.AbstractContextManager[WorkerPool | None]:
        """The workers that the jobs or the executor ask for; None if this process does all the work."""
        if self.jobs == 1:
            return worker_pool(self.settings, listener)
        threads = self.settings.threads or max(1, torch.get_num_threads() // self.jobs)
        return ProcessPool(self.jobs, threads=threads, listener=listener)

    def search(self, methods: Sequence[str], source: Task | Sequence[Task], *, on: Task) -> list[Contestant]:
        """What the methods find on the source, for use on a task."""
        (found,) = self.search_at([self], methods, source, on=on)
        return found

    def search_at(
        self, plans: Sequence["Plan"], methods: Sequence[str], source: Task | Sequence[Task], *, on: Task
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
