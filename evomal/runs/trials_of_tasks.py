"""Trials on several tasks: each is recorded with the cost on its task; fitness is computed when they are read."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from evomal.methods.several_tasks import AcrossTasks, References, best_rate
from evomal.runs.finals import Final
from evomal.runs.rows import RecordedTrial, TrialStage
from evomal.tasks.metric_display import ShownMetric, metric_text

_PLACE = re.compile(r"[0-9]+:[0-9]+")  # of a candidate; anything else is the name of a known loss
_REFERENCE_STAGES: tuple[TrialStage, ...] = ("rivals", "rates")
"""The stages in which known losses are tried at several learning rates; the first with the wanted steps counts."""

_Setting = tuple[str, str, int, float, int]
"""Stage, loss, seed, learning rate and steps: what the trials on several tasks have in common."""
_ByTask = dict[int, dict[float, dict[int, float]]]
"""Scores of one loss by task, learning rate and seed."""


def across_tasks(rule: str, trials: Iterable[RecordedTrial]) -> AcrossTasks:
    """The rule with what the known losses in these trials tell: the scale of each task, and how hard each seed is."""
    scores: dict[int, dict[str, dict[str, _ByTask]]] = {}
    for trial in trials:
        if trial.task is not None and not _PLACE.fullmatch(trial.loss):
            by_task = scores.setdefault(trial.steps, {}).setdefault(trial.stage, {}).setdefault(trial.loss, {})
            by_task.setdefault(trial.task, {}).setdefault(trial.rate, {})[trial.seed] = trial.score
    references: dict[int, list[dict[str, float]]] = {}
    shifts: dict[tuple[int, int], list[float]] = {}
    for steps, by_stage in scores.items():
        by_loss = next((by_stage[stage] for stage in _REFERENCE_STAGES if stage in by_stage), {})
        tasks: list[dict[str, float]] = []
        for loss, by_task in by_loss.items():
            means = _mean_costs(by_task)
            rate = _best_rate(means)
            tasks = tasks or [{} for _ in means]
            for costs_of_losses, costs in zip(tasks, means, strict=False):
                costs_of_losses[loss] = costs.get(rate, math.inf)
        references[steps] = tasks
        baseline = next(iter(by_loss), None)
        for scores_of_losses in by_stage.values():
            if tasks and baseline in scores_of_losses:
                found = _shifts(scores_of_losses[baseline], tasks)
                shifts |= {(steps, seed): shift for seed, shift in found.items()}
    return AcrossTasks(rule, references, shifts)


def _shifts(by_task: _ByTask, references: References) -> dict[int, list[float]]:
    """For each seed how much the baseline's cost is above its reference, on every task; 0 where it diverged."""
    rate = _best_rate(_mean_costs(by_task))
    found: dict[int, list[float]] = {}
    for rates, known in zip(_in_order(by_task), references, strict=False):
        for seed, score in rates.get(rate, {}).items():
            shift = score - next(iter(known.values()))
            found.setdefault(seed, []).append(shift if math.isfinite(shift) else 0.0)
    return {seed: shifts for seed, shifts in found.items() if len(shifts) == len(references)}


def _mean_costs(by_task: _ByTask) -> list[dict[float, float]]:
    """For each task, the mean cost at each learning rate."""
    return [{rate: fmean(seeds.values()) for rate, seeds in rates.items()} for rates in _in_order(by_task)]


def _in_order(by_task: _ByTask) -> list[dict[float, dict[int, float]]]:
    return [by_task[task] for task in sorted(by_task)]


def _best_rate(costs: Sequence[Mapping[float, float]]) -> float:
    """The best learning rate across tasks, among those that all tasks have; if there is none, any."""
    common = [rate for rate in costs[0] if all(rate in own for own in costs)]
    return best_rate([{rate: own[rate] for rate in common} for own in costs]) if common else next(iter(costs[0]))


def combined(trials: Sequence[RecordedTrial], rule: str | None) -> list[RecordedTrial]:
    """Trials on several tasks as one for each loss, learning rate and seed, with the fitness as its score.

    Args:
        trials: Any trials; if none of them has the number of a task, all are returned as they are.
        rule: The rule of the search, as recorded.
    """
    if all(trial.task is None for trial in trials):
        return list(trials)
    across = across_tasks(rule or "worst", trials)
    groups: dict[_Setting, list[RecordedTrial]] = {}
    for trial in trials:
        groups.setdefault((trial.stage, trial.loss, trial.seed, trial.rate, trial.steps), []).append(trial)
    found = []
    for (*_, seed, _, steps), group in groups.items():
        if len(across.references.get(steps, ())) != len(group):  # incomplete, or not written by evomal
            continue
        group.sort(key=lambda trial: trial.task or 0)
        score = across.fitness([trial.score for trial in group], steps, seed)
        lost = next((trial for trial in group if not math.isfinite(trial.score)), group[0])
        seconds = sum(trial.seconds for trial in group)
        found.append(dataclasses.replace(lost, task=None, score=score, left_out=(), seconds=seconds))
    return found


def recorded_rule(settings: Mapping[str, Any]) -> str | None:
    """How a recorded search computes fitness across tasks; None for one task, and for the mean of the costs."""
    rule = settings.get("settings", {}).get("across_tasks")
    return rule if rule in ("rank", "worst") else None


@dataclass(frozen=True)
class TaskValues:
    """The results of the best loss and of known ones on one of several tasks: means of the metric on validation."""

    task: str
    metric: str
    values: Mapping[str, float]
    """The best loss, by its place, then the best rival, then the baseline."""

    def text(self) -> str:
        """The values in words, the best loss first."""
        own, *others = (
            metric_text(value, self.metric) if math.isfinite(value) else "diverged" for value in self.values.values()
        )
        known = ", ".join(f"{name} {text}" for name, text in zip([*self.values][1:], others, strict=True))
        return f"{self.metric} {own} ({known})"


def values_by_task(
    trials: Sequence[RecordedTrial], final: Final | None, tasks: Sequence[tuple[str, ShownMetric]]
) -> tuple[TaskValues, ...]:
    """The results of the winner of a final, its best rival and the baseline on each of several tasks.

    Empty if there is no final, or if the tasks are not recorded apart.
    """
    found: dict[int, dict[str, list[float]]] = {}
    losses = () if final is None else tuple(dict.fromkeys(final.compared))
    rates = {} if final is None else final.rates
    for trial in trials:
        is_at_its_rate = rates.get(trial.loss, trial.rate) == trial.rate
        if trial.stage == "final" and trial.task is not None and trial.loss in losses and is_at_its_rate:
            found.setdefault(trial.task, {}).setdefault(trial.loss, []).append(trial.score)
    if sorted(found) != [*range(len(tasks))] or any(len(own) < len(losses) for own in found.values()):
        return ()
    return tuple(
        TaskValues(name, metric.name, {loss: metric.value(fmean(found[number][loss])) for loss in losses})
        for number, (name, metric) in enumerate(tasks)
    )
