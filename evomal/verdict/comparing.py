"""`compare`, `transfer` and `rate_curve`: losses trained from the same initial weights on the same batches."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evomal.checks import finite_vector
from evomal.errors import InputError
from evomal.methods import method_named
from evomal.runs.callbacks import SearchListener
from evomal.settings import SearchSettings
from evomal.tasks.metric_display import difference_unit
from evomal.tasks.recipe import final_recipe
from evomal.tasks.task import Task, one_task, task_list
from evomal.text import plural, short_repr
from evomal.verdict.comparison import (
    Comparison,
    Entry,
    RateCurve,
    Trained,
    Transfer,
    Variant,
    difference_between,
)
from evomal.verdict.contestants import (
    ComparedLoss,
    Contestant,
    Losses,
    baseline_contestant,
    given_contestants,
    require_distinct_names,
)
from evomal.verdict.folder import TrainingLog
from evomal.verdict.plan import ComparisonPlan
from evomal.verdict.statistics import Paired
from evomal.verdict.trials import ComparedTrial, Trials, log_description
from evomal.verdict.tuning import TUNING_SEEDS, Setting, Tuning, matching_factor, tuned
from evomal.verdict.words import Evidence, Verdict, nothing_found, verdict

_Key = tuple[str, Variant]
_Pairing = Callable[[_Key, _Key], Paired]
"""From the names and variants of two rows to their difference."""


def compare(
    task: Task,
    *,
    methods: Sequence[str] = (),
    losses: Losses = (),
    seeds: int = 5,
    search_seeds: int = 1,
    tune_lr: int = 0,
    tune_decay: bool = False,
    rescale: bool = True,
    preset: str = "quick",
    settings: SearchSettings | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
    listener: SearchListener | None = None,
    jobs: int = 1,
    **changes: Any,
) -> Comparison:
    """Train with the baseline, the given losses and the losses that methods find, and compare over the same seeds.

    Args:
        task: The task to train on. The baseline is its own loss.
        methods: Names of methods that search for a loss first.
        losses: Losses to compare: a sequence of names, files or modules, or a mapping from names of your choice to
            them. Losses of a sequence with equal names are distinguished by their options or a number. A procedure may
            follow a name or file: `ce+early-stopping`, `ce+temperature` (see `evomal procedures`); it shares the
            trainings of its loss.
        seeds: The number of evaluation seeds for each loss; no search uses them. A verdict needs five.
        search_seeds: The number of searches of each method.
        tune_lr: The number of learning rates to try on validation for every loss, including the baseline: with two
            seeds each, and the best one with twice as many seeds as the comparison has (5 to 40), or with 40 where
            training diverged at a rate up to four times as high; 0: none.
        tune_decay: Whether to tune the weight decay of every loss, too, from its best learning rate on, in powers of
            ten from a hundredth to a thousand times the recipe's. SGD multiplies it by the learning rate, so that a
            small loss at a high rate has more of it: a gain that disappears then came from weight decay. Needs
            `tune_lr`, and a weight decay.
        rescale: Whether to train with each loss also multiplied by the factor that gives its gradient the baseline's
            size at initialisation: a gain that disappears then came from the learning rate.
        preset: `quick` trains for 2,000 steps, `paper` for those of the task's recipe; `final_steps` and `milestones`
            are settings.
        settings: All settings at once, instead of a preset with changes.
        folder: Where to record searches and trainings; a comparison that was interrupted is resumed from there.
        progress: Whether to show a progress bar on standard error; without a terminal, one line per stage.
        listener: Called at every step of searches and trainings, instead of the progress bar.
        jobs: The number of processes on this machine that searches and trainings are divided among, with the same
            results (on a GPU with `deterministic`). Unless the setting `threads` is given, they also divide the
            threads of this process.
        **changes: Settings that differ from the preset.

    Returns:
        Every training, the differences with their intervals, and a verdict per loss. Print it to see the table.

    Raises:
        InputError: If an argument is not valid, or the folder holds another comparison.

    Example:
        >>> import evomal
        >>> task = evomal.load_task("diabetes", model="mlp:hidden=8")
        >>> found = evomal.compare(task, losses={"robust": "huber"}, seeds=2, final_steps=20, device="cpu")
        >>> found.verdicts["robust"].kind
        'undecided'
    """
    plan = ComparisonPlan.of(
        seeds=seeds, search_seeds=search_seeds, tune_lr=tune_lr, tune_decay=tune_decay, rescale=rescale, preset=preset,
        settings=settings, folder=folder, progress=progress, listener=listener, jobs=jobs, **changes,
    )  # fmt: skip
    task = one_task("task", task)
    task = plan.judged(task)
    plan.require_decay(task)
    base, given = _given(task, losses, methods)
    with plan.running() as plan:
        return compare_contestants(task, base, [*given, *plan.search(methods, task, on=task)], plan)


def transfer(
    to: Task,
    *,
    losses: Losses = (),
    source: Task | Sequence[Task] | None = None,
    methods: Sequence[str] = ("evomal",),
    search_seeds: int = 5,
    **options: Any,
) -> Transfer:
    """Compare losses on a task on which they were not learned (EvoMAL, section 5.1.1).

    The losses are given, or found by methods on the source task. The loss of every search is used; beside them, the row
    `METHOD (best search)` follows the paper's protocol: the loss of the search with the best fitness on the source,
    which knows nothing of the target.

    Args:
        to: The target task, on which losses are compared.
        losses: Losses to compare, as for `compare`.
        source: The task, or tasks, on which the methods search; None to compare given losses only.
        methods: Names of the methods that search on the source.
        search_seeds: The number of searches of each method.
        **options: `seeds`, `tune_lr`, `tune_decay`, `rescale`, `preset`, `settings`, `folder`, `progress`, `listener`,
            `jobs` and settings that differ from the preset, as for `compare`.

    Returns:
        The comparison on the target task, and the fitness of each search on the source.

    Raises:
        InputError: If an argument is not valid, or a loss for the source cannot be used on the target.

    Example:
        >>> import evomal
        >>> target = evomal.load_task("diabetes", model="mlp:hidden=8")
        >>> found = evomal.transfer(target, losses=["mae"], seeds=1, rescale=False, final_steps=20, device="cpu")
        >>> [entry.name for entry in found.comparison.entries]
        ['mse', 'mae']
    """
    plan = ComparisonPlan.of(search_seeds=search_seeds, **options)
    to = one_task("to", to)
    plan.require_decay(to)
    sources = [] if source is None else task_list("source", source)
    if not sources and isinstance(losses, list | tuple | Mapping) and not losses:
        raise InputError("a transfer needs losses, or a source task on which to search for them")
    for task in sources:
        if task.kind != to.kind:
            raise InputError(f"a loss for {task.kind} ({task.name}) cannot be used for {to.kind} ({to.name})")
    methods = _method_list(methods) if sources else []
    to = plan.judged(to)
    base, others = _given(to, losses, methods, [_best_name(method) for method in methods if search_seeds > 1])
    with plan.running() as plan:
        found = plan.search(methods, source, on=to) if source is not None else []
        for one in found:
            others += [one, best_search(one)] if search_seeds > 1 else [one]
        comparison = compare_contestants(to, base, others, plan)
    name = "+".join(task.name for task in sources) or None
    return Transfer(comparison, name, {one.name: one.fitnesses for one in found})


def rate_curve(
    task: Task,
    *,
    rates: Sequence[float],
    losses: Losses = (),
    methods: Sequence[str] = (),
    search_each: bool = False,
    search_seeds: int = 1,
    **options: Any,
) -> RateCurve:
    """Compare losses at each of several learning rates (EvoMAL, section 5.5).

    Args:
        task: The task to train on.
        rates: The learning rates.
        losses: Losses to compare, as for `compare`.
        methods: Names of methods. They search at the untuned learning rate, and their losses are used at every rate.
        search_each: Whether methods search at each learning rate instead, as in the paper.
        search_seeds: The number of searches of each method; more than one only with `search_each`.
        **options: `seeds`, `preset`, `settings`, `folder`, `progress`, `listener`, `jobs` and settings that differ
            from the preset, as for `compare`.

    Returns:
        A comparison for each learning rate.

    Raises:
        InputError: If an argument is not valid.

    Example:
        >>> import evomal
        >>> from evomal.verdict import rate_curve
        >>> task = evomal.load_task("diabetes", model="mlp:hidden=8")
        >>> curve = rate_curve(task, rates=[0.01, 0.1], losses=["mae"], seeds=1, final_steps=20, device="cpu")
        >>> list(curve.comparisons)
        [0.01, 0.1]
    """
    rates = finite_vector("rates", rates).tolist()
    if not rates or min(rates) <= 0:
        raise InputError(f"rates must be at least one number more than 0 but got {short_repr(rates)}")
    if len(set(rates)) < len(rates):
        raise InputError(f"rates must be different but got {short_repr(rates)}")
    if methods and search_seeds != 1 and not search_each:
        rule = "must be 1 unless methods search at each learning rate (search_each)"
        raise InputError(f"search_seeds {rule} but got {search_seeds}")
    plan = ComparisonPlan.of(search_seeds=search_seeds, rescale=False, **options)
    task = one_task("task", task)
    task = plan.judged(task)
    plan.require_decay(task)
    base, given = _given(task, losses, methods)
    comparisons = {}
    with plan.running() as plan:  # the same workers for all rates
        plans = [plan.at_rate(rate) for rate in rates]
        found = plan.search_at(plans if search_each else [plan], methods, task, on=task)
        for number, (rate, at_rate) in enumerate(zip(rates, plans, strict=True)):
            plan.announce(f"learning rate {rate:g} ({number + 1} of {len(rates)})")
            searched = found[number] if search_each else found[0]
            comparisons[rate] = compare_contestants(task, base, [*given, *searched], at_rate)
    return RateCurve(comparisons, search_each)


def best_search(contestant: Contestant) -> Contestant:
    """The loss of the search with the best fitness, as the paper reports it."""
    ranked = [math.inf if fitness is None else fitness for fitness in contestant.fitnesses]
    return Contestant(_best_name(contestant.name), (contestant.losses[ranked.index(min(ranked))],))


def compare_contestants(task: Task, base: Contestant, others: Sequence[Contestant], plan: ComparisonPlan) -> Comparison:
    """Compare contestants whose searches are done."""
    (baseline,) = base.found
    everyone, tuning, higher = [base, *others], Tuning((), {}), task.metric.higher_is_better
    with TrainingLog(plan.folder, log_description(task, plan.settings)) as log:
        trials = Trials(task, plan.settings, log, plan.pool, plan.listener)
        trials.expect(_number_of_trials(everyone, others, plan))
        entries = _entries("plain", everyone, lambda loss: (Setting(trials.own_lr), 1.0), trials, plan)
        if plan.tune_lr:
            losses = _distinct(everyone)
            what = f"{plural(plan.tune_lr, 'learning rate')} or more{', and weight decays,' if plan.tune_decay else ''}"
            plan.announce(f"trying {what} for each of {plural(len(losses), 'loss')}")
            tuning = tuned(losses, baseline, trials, plan.tune_lr, task, seeds=plan.seeds, decays=plan.tune_decay)
            entries += _entries("tuned", everyone, lambda loss: (tuning.best[loss.key], 1.0), trials, plan)
        if plan.rescale and others:
            entries += _entries(
                "rescaled", others,
                lambda loss: (Setting(trials.own_lr), matching_factor(task, loss.loss, baseline.loss)), trials, plan,
            )  # fmt: skip
    rows = {(entry.name, entry.variant): entry for entry in entries}

    def paired(own: _Key, other: _Key) -> Paired:
        return difference_between(rows[own], rows[other], metric=task.metric.name, higher_is_better=higher)

    entries = [_with_difference(entry, base.name, paired) for entry in entries]
    tuning_gain = paired((base.name, "tuned"), (base.name, "plain")) if plan.tune_lr else None
    recipe = final_recipe(task.recipe, plan.settings)
    record = {**task.record, **({"training": recipe.words} if recipe.words else {})}
    return Comparison(
        task=task.name, record=record, metric=task.metric.name, higher_is_better=higher,
        steps=recipe.steps, milestones=recipe.milestones, seeds=tuple(plan.evaluation_seeds),
        search_seeds=tuple(range(max((len(one.fitnesses) for one in others), default=0))), tune_lr=plan.tune_lr,
        rates=tuning.rates, baseline=base.name, entries=tuple(entries),
        verdicts=_verdicts(others, base.name, entries, paired, tuning_gain, difference_unit(task.metric.name)),
        tuning=tuning_gain, folder=plan.folder,
    )  # fmt: skip


def _method_list(methods: Any) -> list[str]:
    if not isinstance(methods, list | tuple):
        raise InputError(f"methods must be a list of names but got {short_repr(methods)}")
    return [method_named(method).name for method in methods]


def _given(
    task: Task, losses: Losses, methods: Sequence[str], names: Sequence[str] = ()
) -> tuple[Contestant, list[Contestant]]:
    """The baseline and the given losses; all losses, methods and names are checked before anything is trained."""
    methods = _method_list(methods)
    base = baseline_contestant(task)
    given = given_contestants(losses, task, baseline=base, taken=methods)
    require_distinct_names([base.name, *(one.name for one in given), *methods, *names])
    return base, given


def _entries(
    variant: Variant, contestants: Sequence[Contestant],
    setting_and_factor: Callable[[ComparedLoss], tuple[Setting, float]], trials: Trials, plan: ComparisonPlan,
) -> list[Entry]:  # fmt: skip
    """A row for each contestant; a loss that several of them have is trained once."""
    losses = _distinct(contestants)
    suffix = "" if variant == "plain" else f", {variant}"
    plan.announce(f"training with {plural(len(losses), 'loss')}, {plural(plan.seeds, 'seed')} each{suffix}")
    made = {}
    for loss in losses:
        setting, factor = setting_and_factor(loss)
        made[loss.key] = [
            ComparedTrial(loss, setting.lr, seed, factor, decay=setting.decay) for seed in plan.evaluation_seeds
        ]
    scores = trials.run([trial for row in made.values() for trial in row])

    def trained(loss: ComparedLoss) -> Trained:
        row = made[loss.key]
        decay = trials.own_decay * row[0].decay if variant == "tuned" and plan.tune_decay else None
        return Trained(loss.formula, row[0].lr, row[0].factor, tuple(scores[trial] for trial in row), decay)

    return [
        Entry(
            one.name,
            variant,
            tuple(None if loss is None else trained(loss) for loss in one.losses),
            learned=one.is_learned,
        )
        for one in contestants
    ]


def _distinct(contestants: Sequence[Contestant]) -> list[ComparedLoss]:
    return list({loss.key: loss for one in contestants for loss in one.found}.values())


def _number_of_trials(everyone: Sequence[Contestant], others: Sequence[Contestant], plan: ComparisonPlan) -> int:
    """How many trainings a comparison needs, without what tuning adds to the learning rates asked for.

    A loss and its procedures share their trainings, unless their tuned learning rates differ.
    """
    losses, rescaled = (len({one.identity for one in _distinct(some)}) for some in (everyone, others))
    rescaled = rescaled if plan.rescale else 0
    tuning = losses * (plan.tune_lr * len(TUNING_SEEDS) + plan.seeds) if plan.tune_lr else 0
    return losses * plan.seeds + tuning + rescaled * plan.seeds


def _with_difference(entry: Entry, baseline: str, paired: _Pairing) -> Entry:
    if entry.name == baseline:
        return entry
    variant: Variant = "plain" if entry.variant == "rescaled" else entry.variant
    return replace(entry, difference=paired((entry.name, entry.variant), (baseline, variant)))


def _verdicts(
    others: Sequence[Contestant], baseline: str, entries: Sequence[Entry], paired: _Pairing, tuning: Paired | None,
    unit: str,
) -> dict[str, Verdict]:  # fmt: skip
    found: dict[str, Verdict] = {}
    differences = {(entry.name, entry.variant): entry.difference for entry in entries}
    tuned = [entry.losses[0] for entry in entries if (entry.name, entry.variant) == (baseline, "tuned")]
    best = tuned[0] if tuned else None
    for one in others:
        plain = differences[one.name, "plain"]
        if not one.found or plain is None:
            found[one.name] = nothing_found(one.name, baseline)
            continue
        evidence = Evidence(
            plain=plain, tuned=differences.get((one.name, "tuned")), rescaled=differences.get((one.name, "rescaled")),
            tuned_lr=None if best is None else best.lr, tuned_decay=None if best is None else best.weight_decay,
            tuning=tuning,
            untuned=None if tuning is None else paired((one.name, "plain"), (baseline, "tuned")),
            to_untuned=None if tuning is None else paired((one.name, "tuned"), (baseline, "plain")),
        )  # fmt: skip
        found[one.name] = verdict(evidence, name=one.name, baseline_name=baseline, unit=unit)
    return found


def _best_name(method: str) -> str:
    return f"{method} (best search)"
