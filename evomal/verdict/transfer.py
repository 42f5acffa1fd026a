"""A loss learned on one task, used on another (EvoMAL, section 5.1.1)."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.errors import InputError
from evomal.methods import method_named
from evomal.progress import Announce
from evomal.runs.display import SearchListener, stop_check, with_display
from evomal.runs.executors import crew_if_wanted
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.threads import thread_count
from evomal.verdict.comparing import compared
from evomal.verdict.comparison import Comparison
from evomal.verdict.contestants import (
    SEARCHES,
    Contestant,
    Losses,
    baseline_contestant,
    given_contestants,
    require_distinct,
    searched,
)


@dataclass(frozen=True)
class Transfer:
    """The comparison on the target, and what each search came to on the source."""

    comparison: Comparison
    source: str | None
    """The name of the task the losses were searched on; None where they were given."""
    fitnesses: dict[str, tuple[float | None, ...]]
    """Of every method's searches, on the source's validation split."""

    def __repr__(self) -> str:
        return f"Transfer(source={self.source!r}, {self.comparison!r})"

    def __str__(self) -> str:
        return str(self.comparison)


def transfer(
    to: Task,
    *,
    losses: Losses = (),
    source: Task | Sequence[Task] | None = None,
    methods: Sequence[str] = ("evomal",),
    seeds: int = 5,
    search_seeds: int = 5,
    tune_lr: int = 0,
    rescale: bool = True,
    preset: str = "quick",
    settings: SearchSettings | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
    listener: SearchListener | None = None,
    announce: Announce | None = None,
    **changes: Any,
) -> Transfer:
    """Compare losses on a task they were not learned on: given ones, or what the methods find on the source.

    Every search seed's loss is used, and beside it stands the paper's protocol: the loss of that search whose fitness
    on the source was best, named `METHOD (best search)`. It knows nothing of the target. The other arguments are those
    of `compare`.
    """
    resolved = SearchSettings.given(settings, preset, changes)
    if source is None and not losses:
        raise InputError("a transfer needs losses, or a task to learn them on")
    if resolved.metric is not None:
        to = to.judged_by(resolved.metric)
    for method in methods:
        method_named(method)
    base = baseline_contestant(to)
    others = given_contestants(losses, to, beside=base, taken=methods if source is not None else ())
    place = None if folder is None else Path(folder)
    fitnesses: dict[str, tuple[float | None, ...]] = {}
    with (
        with_display(progress, listener, announce) as (listener, announce),
        thread_count(resolved.threads),
        crew_if_wanted(resolved, [to], announce, stop_check(listener)),
    ):
        if source is not None:
            _require_same_kind(source, to)
            runs = None if place is None else place / SEARCHES
            for number, method in enumerate(methods):
                found = searched(
                    source, method, resolved, on=to, seeds=range(search_seeds), folder=runs, listener=listener,
                    announce=announce, number=number * search_seeds + 1, of=len(methods) * search_seeds,
                )  # fmt: skip
                fitnesses[method] = found.fitnesses
                others.append(found)
                others += [] if search_seeds == 1 else [best_search(found)]
        require_distinct([base, *others])
        comparison = compared(
            to, base, others, resolved, seeds=seeds, search_seeds=search_seeds if source is not None else 0,
            tune_lr=tune_lr, rescale=rescale, folder=place, listener=listener, announce=announce,
        )  # fmt: skip
    name = None if source is None else "+".join(task.name for task in _several(source))
    return Transfer(comparison, name, fitnesses)


def best_search(contestant: Contestant) -> Contestant:
    """The loss of the search that was best by its own fitness, as the paper reports it."""
    ranked = [math.inf if fitness is None else fitness for fitness in contestant.fitnesses]
    best = ranked.index(min(ranked))
    return Contestant(f"{contestant.name} (best search)", (contestant.losses[best],))


def _several(source: Task | Sequence[Task]) -> list[Task]:
    return [source] if isinstance(source, Task) else list(source)


def _require_same_kind(source: Task | Sequence[Task], to: Task) -> None:
    for task in _several(source):
        if task.kind != to.kind:
            raise InputError(f"a loss for {task.kind} ({task.name}) cannot be used for {to.kind} ({to.name})")
