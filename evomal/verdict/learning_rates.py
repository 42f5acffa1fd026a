"""Error against learning rate, the baseline beside learned losses (EvoMAL, section 5.4)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.errors import InputError
from evomal.runs.executors import crew_if_wanted
from evomal.runs.watching import Watcher, ticking
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.verdict.comparison import Comparison, Told, compare
from evomal.verdict.contestants import SEARCHES, AnyLoss, searched


@dataclass(frozen=True)
class RateCurve:
    """One comparison for each learning rate, all of the same contestants."""

    comparisons: dict[float, Comparison]
    search_each: bool
    """Whether methods searched at each rate anew, or at the task's own rate alone."""


def rate_curve(
    task: Task,
    *,
    rates: Sequence[float],
    losses: Sequence[AnyLoss] = (),
    methods: Sequence[str] = (),
    search_each: bool = False,
    seeds: int = 5,
    search_seeds: int = 1,
    preset: str = "quick",
    settings: SearchSettings | None = None,
    folder: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
    told: Told | None = None,
    **changes: Any,
) -> RateCurve:
    """The test metric at each learning rate for the task's own loss and for others.

    Methods search at the task's own rate, and their losses are then used at every rate; with `search_each` they search
    at each rate anew, as in the paper.
    """
    resolved = SearchSettings.given(settings, preset, changes)
    if not rates or any(not rate > 0 for rate in rates):
        raise InputError(f"rates must be at least one number more than 0 but got {list(rates)}")
    if len(set(rates)) < len(rates):
        raise InputError(f"rates must be different but got {list(rates)}")
    place = None if folder is None else Path(folder)
    searched_losses: list[AnyLoss] = list(losses)
    comparisons = {}
    with crew_if_wanted(resolved, [task], told, ticking(watcher)):  # one crew for all rates
        if methods and not search_each:
            if search_seeds != 1:
                raise InputError("several search seeds are for a search at each rate: search_each")
            for method in methods:
                found = searched(
                    task, method, resolved, seeds=(0,), folder=None if place is None else place / SEARCHES,
                    watcher=watcher,
                ).candidates[0]  # fmt: skip
                if found is not None:
                    searched_losses.append(found.loss)
        for rate in rates:
            comparisons[rate] = compare(
                task, losses=searched_losses, methods=methods if search_each else (), seeds=seeds,
                search_seeds=search_seeds, rescale=False, settings=resolved.with_changes(lr=float(rate)),
                folder=None if place is None else place / f"lr-{rate:g}", watcher=watcher, told=told,
            )  # fmt: skip
    return RateCurve(comparisons, search_each)
