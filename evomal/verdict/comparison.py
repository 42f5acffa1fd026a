"""Losses compared on a task: the same initial weights and batches for each, all seeds reported, the test split last."""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evomal.engine import Score
from evomal.errors import InputError
from evomal.methods import method_named
from evomal.runs.executors import crew_if_wanted
from evomal.runs.watching import Watcher, ticking
from evomal.settings import SearchSettings
from evomal.strategies.strategy import whole_number
from evomal.tasks.task import Task
from evomal.threads import thread_count
from evomal.verdict.arena import Arena, Job, description
from evomal.verdict.contestants import (
    SEARCHES,
    AnyLoss,
    Candidate,
    Contestant,
    all_given,
    require_distinct,
    searched,
    task_loss,
)
from evomal.verdict.scaled_loss import matching_factor
from evomal.verdict.statistics import Paired, paired
from evomal.verdict.training_log import TrainingLog
from evomal.verdict.tuning import TUNING_SEEDS, TUNING_TRAININGS, Tuning, cost_of, tuned
from evomal.verdict.words import POINTS, Evidence, Verdict, verdict

EVALUATION_SEEDS = 1000
"""Where the seeds of final trainings begin: a search, whose seeds begin at 0, does not see them."""
SHARES = ("error_rate", "ece")
"""Metrics that are shares, and are shown in percent."""

Variant = Literal["plain", "tuned", "rescaled"]
Told = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """One loss in one variant: its learning rate, its factor, and a score for each evaluation seed."""

    formula: str
    lr: float
    factor: float
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Entry:
    """A row of the table: a contestant's losses in one variant; None where a search found none."""

    name: str
    variant: Variant
    losses: tuple[Trained | None, ...]

    def costs(self, task: Task) -> list[list[float]]:
        """What each loss came to in each seed, as something to be minimised; inf where it came to nothing."""
        return [[math.inf] if loss is None else [cost_of(score, task) for score in loss.scores] for loss in self.losses]


@dataclass(frozen=True)
class Comparison:
    """All that was trained, and what it says."""

    task: Task
    steps: int
    seeds: tuple[int, ...]
    search_seeds: tuple[int, ...]
    trials: int
    """Learning rates asked for in the variant `tuned`; 0 where none were."""
    rates: tuple[float, ...]
    """Those that were tried, for every loss: more than asked for, where the baseline's best was at an end."""
    baseline: str
    entries: tuple[Entry, ...]
    differences: dict[tuple[str, Variant], Paired]
    """To the baseline in the same variant (rescaled: to the plain one)."""
    verdicts: dict[str, Verdict]
    tuning: Paired | None = None
    """The tuned baseline against itself at its own rate, on the test split; None where nothing was tuned."""
    folder: Path | None = None

    def entry(self, name: str, variant: Variant = "plain") -> Entry:
        """The row of that name."""
        for entry in self.entries:
            if (entry.name, entry.variant) == (name, variant):
                return entry
        raise InputError(f"there is no row {name!r} ({variant}) in this comparison")


def compare(
    task: Task,
    *,
    methods: Sequence[str] = (),
    losses: Sequence[AnyLoss] = (),
    seeds: int = 5,
    search_seeds: int = 1,
    tune_lr: int = 0,
    rescale: bool = True,
    preset: str = "quick",
    settings: SearchSettings | None = None,
    folder: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
    told: Told | None = None,
    **changes: Any,
) -> Comparison:
    """Train with the task's own loss, the given losses, and what the methods find; compare over the same seeds.

    Each loss is trained for `final_steps` with each of `seeds` evaluation seeds, which no search has seen. `tune_lr`
    tries so many learning rates for every loss, the task's own included, on validation. `rescale` trains each loss also
    so scaled that its gradient at initialisation is as large as the baseline's: a gain that vanishes then was a
    learning rate. With a folder, what is done is recorded, and a comparison that was stopped goes on.
    """
    resolved = SearchSettings.given(settings, preset, changes)
    whole_number("seeds", seeds, at_least=1)
    whole_number("search_seeds", search_seeds, at_least=1)
    whole_number("tune_lr", tune_lr, at_least=0)
    if resolved.metric is not None:
        task = task.judged_by(resolved.metric)
    for method in methods:
        method_named(method)  # all are checked before the first searches
    base, others = task_loss(task), all_given(losses, task)
    others = [contestant for contestant in others if not contestant.is_same(base)]  # it takes part anyway
    require_distinct([base, *others, *(Contestant(method, ()) for method in methods)])
    place = None if folder is None else Path(folder)
    with thread_count(resolved.threads), crew_if_wanted(resolved, [task], told, ticking(watcher)):
        for method in methods:
            _tell(told, f"searching with {method}")
            runs = None if place is None else place / SEARCHES
            others.append(
                searched(task, method, resolved, seeds=range(search_seeds), folder=runs, watcher=watcher)
            )  # fmt: skip
        return compared(
            task, base, others, resolved, seeds=seeds, search_seeds=search_seeds if methods else 0, tune_lr=tune_lr,
            rescale=rescale, folder=place, told=told,
        )  # fmt: skip


def compared(
    task: Task, base: Contestant, others: Sequence[Contestant], settings: SearchSettings, *, seeds: int,
    search_seeds: int = 0, tune_lr: int = 0, rescale: bool = True, folder: Path | None = None, told: Told | None = None,
) -> Comparison:  # fmt: skip
    """The comparison of contestants whose losses are there already."""
    chosen = range(EVALUATION_SEEDS, EVALUATION_SEEDS + seeds)
    (baseline,) = base.candidates
    assert baseline is not None  # the task's own loss is there
    tuning = Tuning((), {})
    with (
        TrainingLog(folder, description(task, settings)) as log,
        crew_if_wanted(settings, [task], told) as crew,
    ):
        arena = Arena(task, settings, log, crew)
        entries = _entries(
            "plain", [base, *others], lambda candidate: Job(candidate, arena.own_lr), arena, chosen, told
        )
        if tune_lr:
            candidates = {candidate.identity: candidate for candidate in _candidates([base, *others])}
            _tell(told, f"trying {tune_lr} learning rates or more for each of {len(candidates)} losses")
            tuning = tuned(list(candidates.values()), baseline, arena, tune_lr, task)
            entries += _entries(
                "tuned", [base, *others], lambda candidate: Job(candidate, tuning.best[candidate.identity]), arena,
                chosen, told,
            )  # fmt: skip
        if rescale and others:
            entries += _entries(
                "rescaled", others, lambda candidate: _rescaled(candidate, baseline, task, arena), arena, chosen, told
            )  # fmt: skip
    differences = _differences(entries, base.name, task)
    tuning_of_baseline = _tuning(entries, base.name, task)
    return Comparison(
        task=task, steps=settings.final_steps, seeds=tuple(chosen), search_seeds=tuple(range(search_seeds)),
        trials=tune_lr, rates=tuning.rates, baseline=base.name, entries=tuple(entries), differences=differences,
        verdicts=_verdicts(others, base, entries, differences, tuning_of_baseline, task), tuning=tuning_of_baseline,
        folder=folder,
    )  # fmt: skip


def _entries(
    variant: Variant, contestants: Sequence[Contestant], job_of: Callable[[Candidate], Job], arena: Arena,
    seeds: Sequence[int], told: Told | None,
) -> list[Entry]:  # fmt: skip
    """A row for each contestant, all trained."""
    jobs = {candidate.identity: job_of(candidate) for candidate in _candidates(contestants)}
    _tell(told, f"training with {len(jobs)} losses, {len(seeds)} seeds each" + _named(variant))
    arena.train(list(jobs.values()), seeds)
    return [
        Entry(
            contestant.name,
            variant,
            tuple(
                None if candidate is None else _trained(jobs[candidate.identity], arena, seeds)
                for candidate in contestant.candidates
            ),
        )
        for contestant in contestants
    ]


def _trained(job: Job, arena: Arena, seeds: Sequence[int]) -> Trained:
    return Trained(job.candidate.formula, job.lr, job.factor, arena.scores(job, seeds))


def _rescaled(candidate: Candidate, baseline: Candidate, task: Task, arena: Arena) -> Job:
    seeds = list(range(TUNING_SEEDS, TUNING_SEEDS + TUNING_TRAININGS))
    return Job(candidate, arena.own_lr, matching_factor(task, candidate.loss, baseline.loss, seeds=seeds))


def _candidates(contestants: Sequence[Contestant]) -> list[Candidate]:
    return [candidate for contestant in contestants for candidate in contestant.candidates if candidate is not None]


def _named(variant: Variant) -> str:
    return "" if variant == "plain" else f", {variant}"


def _differences(entries: Sequence[Entry], baseline: str, task: Task) -> dict[tuple[str, Variant], Paired]:
    found: dict[tuple[str, Variant], Paired] = {}
    baselines = {entry.variant: entry for entry in entries if entry.name == baseline}
    for entry in entries:
        if entry.name != baseline:
            other = baselines["plain" if entry.variant == "rescaled" else entry.variant]
            found[entry.name, entry.variant] = _paired(entry.costs(task), other.costs(task)[0])
    return found


def _tuning(entries: Sequence[Entry], baseline: str, task: Task) -> Paired | None:
    costs = {entry.variant: entry.costs(task) for entry in entries if entry.name == baseline}
    return _paired(costs["tuned"], costs["plain"][0]) if "tuned" in costs else None


def _paired(costs: Sequence[Sequence[float]], base: Sequence[float]) -> Paired:
    """One loss: seed by seed. Several searches: search by search, each by its mean over the seeds.

    A loss's claim is about the next training, a method's about the next search. The trainings of all searches share
    their seeds, so of the two intervals, over searches and over seeds, the wider is given at either end.
    """
    whole = [row if len(row) == len(base) else [math.inf] * len(base) for row in costs]
    if len(whole) == 1:
        return paired(whole[0], base)
    by_search = paired([_mean(row) for row in whole], [_mean(base)] * len(whole))
    by_seed = paired([_mean(column) for column in zip(*whole, strict=True)], base)
    lows, highs = (by_search.low, by_seed.low), (by_search.high, by_seed.high)
    known = None not in (*lows, *highs)
    return dataclasses.replace(
        by_search,
        low=min(low for low in lows if low is not None) if known else None,
        high=max(high for high in highs if high is not None) if known else None,
        noun="search",
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _verdicts(
    others: Sequence[Contestant], base: Contestant, entries: Sequence[Entry],
    differences: dict[tuple[str, Variant], Paired], tuning: Paired | None, task: Task,
) -> dict[str, Verdict]:  # fmt: skip
    plain = {entry.name: entry.costs(task) for entry in entries if entry.variant == "plain"}
    tuned = next((entry for entry in entries if (entry.name, entry.variant) == (base.name, "tuned")), None)
    tuned_lr = tuned.losses[0].lr if tuned is not None and tuned.losses[0] is not None else None
    tuned_costs = None if tuned is None else tuned.costs(task)[0]
    return {
        contestant.name: verdict(
            Evidence(
                plain=differences[contestant.name, "plain"],
                tuned=differences.get((contestant.name, "tuned")),
                rescaled=differences.get((contestant.name, "rescaled")),
                tuned_lr=tuned_lr,
                untuned=None if tuned_costs is None else _paired(plain[contestant.name], tuned_costs),
                tuning=tuning,
            ),
            name=contestant.name,
            baseline_name=base.name,
            unit=unit_of(task),
        )
        for contestant in others
    }


def unit_of(task: Task) -> str:
    """How differences are shown: those of shares in points."""
    return POINTS if task.metric.name in SHARES else ""


def _tell(told: Told | None, sentence: str) -> None:
    if told is not None:
        told(sentence)
