"""Losses compared on a task: the same initial weights and batches for each, all seeds reported, the test split last."""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evomal.checks import whole_number
from evomal.methods import method_named
from evomal.progress import Announce
from evomal.runs.display import SearchListener, stop_check, with_display
from evomal.runs.executors import crew_if_wanted
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.threads import thread_count
from evomal.verdict.comparison import Comparison, Entry, Trained, Variant
from evomal.verdict.contestants import (
    SEARCHES,
    ComparedLoss,
    Contestant,
    Losses,
    baseline_contestant,
    given_contestants,
    require_distinct,
    searched,
)
from evomal.verdict.folder import TrainingLog
from evomal.verdict.statistics import Paired, paired
from evomal.verdict.trials import Arena, Job, description, final_recipe, matching_factor
from evomal.verdict.tuning import TUNING_SEEDS, TUNING_TRAININGS, Tuning, tuned
from evomal.verdict.words import Evidence, Verdict, unit_of, verdict

EVALUATION_SEEDS = 1000
"""Where the seeds of final trainings begin: a search, whose seeds begin at 0, does not see them."""


def compare(
    task: Task,
    *,
    methods: Sequence[str] = (),
    losses: Losses = (),
    seeds: int = 5,
    search_seeds: int = 1,
    tune_lr: int = 0,
    rescale: bool = True,
    preset: str = "quick",
    settings: SearchSettings | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
    listener: SearchListener | None = None,
    announce: Announce | None = None,
    **changes: Any,
) -> Comparison:
    """Train with the task's own loss, the given losses, and what the methods find; compare over the same seeds.

    Args:
        task: The task to train on.
        methods: Names of methods that search for a loss first.
        losses: Losses to compare: a sequence of names, files or modules, or a mapping from names of your choice to
            them. Of a sequence, losses with equal names are told apart by their options, or by a number.
        seeds: How many evaluation seeds each loss is trained with; no search has seen them. A verdict takes five.
        search_seeds: How many searches each method makes.
        tune_lr: How many learning rates to try for every loss, the task's own included, on validation; 0 tries none.
        rescale: Whether to train each loss also scaled so that its gradient at initialisation is as large as the
            baseline's: a gain that is gone then was a learning rate.
        preset: `quick` trains for 2,000 steps, `paper` for those of the task's recipe; `final_steps` and `milestones`
            are settings.
        settings: All settings at once, instead of a preset with changes.
        folder: Where to record what is done; a comparison that was stopped is resumed from there.
        progress: Whether to show a bar with the time left on standard error; without a terminal, one line per stage.
        listener: Called at every step of searches and trainings, instead of the bar.
        announce: Called with a sentence per stage.
        changes: Settings that differ from the preset.

    Returns:
        Every training, the differences with their intervals, and a verdict per loss. Print it to see the table.

    Raises:
        InputError: Something that was given does not fit.

    Example:
        >>> import evomal
        >>> task = evomal.load_task("diabetes", model="mlp:hidden=8")
        >>> found = evomal.compare(task, losses={"robust": "huber"}, seeds=2, final_steps=20, device="cpu")
        >>> found.verdicts["robust"].kind
        'undecided'
    """
    resolved = SearchSettings.given(settings, preset, changes)
    whole_number("seeds", seeds, at_least=1)
    whole_number("search_seeds", search_seeds, at_least=1)
    whole_number("tune_lr", tune_lr, at_least=0)
    if resolved.metric is not None:
        task = task.judged_by(resolved.metric)
    for method in methods:
        method_named(method)  # all are checked before the first searches
    base = baseline_contestant(task)
    others = given_contestants(losses, task, beside=base, taken=methods)
    require_distinct([base, *others, *(Contestant(method, ()) for method in methods)])
    place = None if folder is None else Path(folder)
    with (
        with_display(progress, listener, announce) as (listener, announce),
        thread_count(resolved.threads),
        crew_if_wanted(resolved, [task], announce, stop_check(listener)),
    ):
        for number, method in enumerate(methods):
            runs = None if place is None else place / SEARCHES
            others.append(
                searched(
                    task, method, resolved, on=task, seeds=range(search_seeds), folder=runs, listener=listener,
                    announce=announce, number=number * search_seeds + 1, of=len(methods) * search_seeds,
                )
            )  # fmt: skip
        return compared(
            task, base, others, resolved, seeds=seeds, search_seeds=search_seeds if methods else 0, tune_lr=tune_lr,
            rescale=rescale, folder=place, listener=listener, announce=announce,
        )  # fmt: skip


def compared(
    task: Task, base: Contestant, others: Sequence[Contestant], settings: SearchSettings, *, seeds: int,
    search_seeds: int = 0, tune_lr: int = 0, rescale: bool = True, folder: Path | None = None,
    listener: SearchListener | None = None, announce: Announce | None = None,
) -> Comparison:  # fmt: skip
    """The comparison of contestants whose losses are there already."""
    chosen = range(EVALUATION_SEEDS, EVALUATION_SEEDS + seeds)
    (baseline,) = base.losses
    assert baseline is not None  # the task's own loss is there
    tuning = Tuning((), {})
    with (
        TrainingLog(folder, description(task, settings)) as log,
        crew_if_wanted(settings, [task], announce) as crew,
    ):
        arena = Arena(task, settings, log, crew, listener)
        arena.expect(_trainings([base, *others], others if rescale else [], seeds, tune_lr))
        entries = _entries(
            "plain", [base, *others], lambda candidate: Job(candidate, arena.own_lr), arena, chosen, announce
        )
        if tune_lr:
            candidates = {candidate.identity: candidate for candidate in _candidates([base, *others])}
            _tell(announce, f"trying {tune_lr} learning rates or more for each of {len(candidates)} losses")
            tuning = tuned(list(candidates.values()), baseline, arena, tune_lr, task)
            entries += _entries(
                "tuned", [base, *others], lambda candidate: Job(candidate, tuning.best[candidate.identity]), arena,
                chosen, announce,
            )  # fmt: skip
        if rescale and others:
            entries += _entries(
                "rescaled", others, lambda candidate: _rescaled(candidate, baseline, task, arena), arena, chosen,
                announce,
            )  # fmt: skip
    recipe = final_recipe(task, settings)
    differences = _differences(entries, base.name, task)
    tuning_of_baseline = _tuning(entries, base.name, task)
    return Comparison(
        task=task, steps=recipe.steps, milestones=recipe.milestones, seeds=tuple(chosen),
        search_seeds=tuple(range(search_seeds)), trials=tune_lr, rates=tuning.rates, baseline=base.name,
        entries=tuple(entries), differences=differences,
        verdicts=_verdicts(others, base, entries, differences, tuning_of_baseline, task), tuning=tuning_of_baseline,
        folder=folder,
    )  # fmt: skip


def _trainings(
    contestants: Sequence[Contestant], rescaled: Sequence[Contestant], seeds: int, tune_lr: int
) -> int:  # fmt: skip
    """How many trainings a comparison takes, the further rates of tuning aside."""
    losses, others = (len({candidate.identity for candidate in _candidates(some)}) for some in (contestants, rescaled))
    tuning = losses * (tune_lr * TUNING_TRAININGS + seeds) if tune_lr else 0
    return losses * seeds + tuning + others * seeds


def _entries(
    variant: Variant, contestants: Sequence[Contestant], job_of: Callable[[ComparedLoss], Job], arena: Arena,
    seeds: Sequence[int], announce: Announce | None,
) -> list[Entry]:  # fmt: skip
    """A row for each contestant, all trained."""
    jobs = {candidate.identity: job_of(candidate) for candidate in _candidates(contestants)}
    many = f"{len(jobs)} loss{'' if len(jobs) == 1 else 'es'}, {len(seeds)} seed{'' if len(seeds) == 1 else 's'} each"
    _tell(announce, f"training with {many}" + _named(variant))
    arena.train(list(jobs.values()), seeds)
    return [
        Entry(
            contestant.name,
            variant,
            tuple(
                None if candidate is None else _trained(jobs[candidate.identity], arena, seeds)
                for candidate in contestant.losses
            ),
        )
        for contestant in contestants
    ]


def _trained(job: Job, arena: Arena, seeds: Sequence[int]) -> Trained:
    return Trained(job.candidate.formula, job.lr, job.factor, arena.scores(job, seeds))


def _rescaled(candidate: ComparedLoss, baseline: ComparedLoss, task: Task, arena: Arena) -> Job:
    seeds = list(range(TUNING_SEEDS, TUNING_SEEDS + TUNING_TRAININGS))
    return Job(candidate, arena.own_lr, matching_factor(task, candidate.loss, baseline.loss, seeds=seeds))


def _candidates(contestants: Sequence[Contestant]) -> list[ComparedLoss]:
    return [candidate for contestant in contestants for candidate in contestant.losses if candidate is not None]


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
    their seeds, so of the two intervals, over searches and over seeds, the wider is given at either end, and of the two
    p the larger.
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
        p=max(by_search.p, by_seed.p),
        test=max((by_search, by_seed), key=lambda found: found.p).test,
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
    nothing = {
        contestant.name: Verdict(
            "no gain", f"{contestant.name} found no loss that survived its filters, keep {base.name}"
        )
        for contestant in others
        if not _candidates([contestant])
    }
    return nothing | {
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
        if contestant.name not in nothing
    }


def _tell(announce: Announce | None, sentence: str) -> None:
    if announce is not None:
        announce(sentence)
