"""Error against learning rate, the baseline beside learned losses (EvoMAL, section 5.5)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.errors import InputError
from evomal.progress import Announce
from evomal.runs.display import SearchListener, stop_check, with_display
from evomal.runs.executors import crew_if_wanted
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.verdict.comparing import compare
from evomal.verdict.comparison import Comparison
from evomal.verdict.contestants import SEARCHES, AnyLoss, Losses, baseline_contestant, given_contestants, searched


@dataclass(frozen=True)
class RateCurve:
    """One comparison for each learning rate, all of the same contestants."""

    comparisons: dict[float, Comparison]
    search_each: bool
    """Whether methods searched at each rate anew, or at the task's own rate alone."""

    def __repr__(self) -> str:
        rates = ", ".join(f"{rate:g}" for rate in self.comparisons)
        names = list(dict.fromkeys(entry.name for found in self.comparisons.values() for entry in found.entries))
        return f"RateCurve(rates=[{rates}], losses={names}, search_each={self.search_each})"

    def __str__(self) -> str:
        return "\n\n".join(f"lr {rate:g}\n{found}" for rate, found in self.comparisons.items())


def rate_curve(
    task: Task,
    *,
    rates: Sequence[float],
    losses: Losses = (),
    methods: Sequence[str] = (),
    search_each: bool = False,
    seeds: int = 5,
    search_seeds: int = 1,
    preset: str = "quick",
    settings: SearchSettings | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
    listener: SearchListener | None = None,
    announce: Announce | None = None,
    **changes: Any,
) -> RateCurve:
    """The test metric at each learning rate for the task's own loss and for others.

    Methods search at the task's own rate, and their losses are then used at every rate; with `search_each` they search
    at each rate anew, as in the paper. The other arguments are those of `compare`.
    """
    resolved = SearchSettings.given(settings, preset, changes)
    if not rates or any(not rate > 0 for rate in rates):
        raise InputError(f"rates must be at least one number more than 0 but got {list(rates)}")
    if len(set(rates)) < len(rates):
        raise InputError(f"rates must be different but got {list(rates)}")
    place = None if folder is None else Path(folder)
    contestants = given_contestants(losses, task, beside=baseline_contestant(task), taken=methods)
    named: dict[str, AnyLoss] = {one.name: found.loss for one in contestants for found in one.losses if found}
    comparisons = {}
    with (
        with_display(progress, listener, announce) as (listener, announce),
        crew_if_wanted(resolved, [task], announce, stop_check(listener)),  # the same workers for all rates
    ):
        if methods and not search_each:
            if search_seeds != 1:
                raise InputError("several search seeds are for a search at each rate: search_each")
            for number, method in enumerate(methods, 1):
                found = searched(
                    task, method, resolved, on=task, seeds=(0,),
                    folder=None if place is None else place / SEARCHES, listener=listener, announce=announce,
                    number=number, of=len(methods),
                ).losses[0]  # fmt: skip
                if found is not None:
                    named[method] = found.loss
        for number, rate in enumerate(rates, 1):
            if announce is not None:
                announce(f"learning rate {rate:g} ({number} of {len(rates)})")
            comparisons[rate] = compare(
                task, losses=named, methods=methods if search_each else (), seeds=seeds,
                search_seeds=search_seeds, rescale=False, settings=resolved.with_changes(lr=float(rate)),
                folder=None if place is None else place / f"lr-{rate:g}", listener=listener, announce=announce,
            )  # fmt: skip
    return RateCurve(comparisons, search_each)
