"""The fitness of a loss on several tasks: its costs there compared with those of known losses, not averaged.

Costs of different tasks have different units: an average would be decided by the task whose numbers are largest. The
known losses, which are trained before the first generation under the protocol of candidates, give every task its scale.
So the fitness of a candidate still depends on the candidate alone, not on its neighbours.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import fmean

from evomal.engine import Fitness, Rung, RungScores
from evomal.errors import InputError
from evomal.settings import SearchSettings
from evomal.tasks.metric_display import MEAN_RANK, WORST_CHANGE, ShownMetric
from evomal.tasks.task import Task

References = Sequence[Mapping[str, float]]
"""For each task the cost of every known loss at its best learning rate across tasks; the baseline first."""


@dataclass(frozen=True)
class AcrossTasks:
    """How costs on several tasks become one fitness, lower is better.

    Args:
        rule: `rank`: the mean over tasks of the rank among the known losses; `worst`: the change from the baseline's
            cost on the task where that is worst.
        references: By number of training steps. A search that trains each candidate once, for a number of steps that
            the settings name, has them under 0.
        shifts: By number of training steps and seed: for each task how much the baseline's cost with that seed is above
            its reference. Seeds with easy rows are easy for every loss, so a seed's shift is subtracted from its costs.
    """

    rule: str
    references: Mapping[int, References]
    shifts: Mapping[tuple[int, int], Sequence[float]] = field(default_factory=dict)

    def fitness(self, costs: Sequence[float], steps: int, seed: int) -> float:
        """The fitness of a loss with these costs on the tasks; infinite if it diverged on one of them."""
        if not all(map(math.isfinite, costs)):
            return math.inf
        shifts = self.shifts.get((steps, seed), [0.0] * len(costs))
        known = [
            (cost - shift, [*own.values()])
            for cost, shift, own in zip(costs, shifts, self.references[steps], strict=True)
        ]
        if self.rule == "worst":
            return max(change(cost, own[0]) for cost, own in known)
        return fmean(rank(cost, own) for cost, own in known)

    def of_fitness(self, found: Fitness, seed: int) -> Fitness:
        """The fitness of one training on each task."""
        if found.diverged:
            return found
        return replace(found, value=self.fitness([one.value for one in found.by_task], 0, seed))

    def of_scores(self, found: RungScores, rung: Rung) -> RungScores:
        """The scores on a rung; the learning rate, a multiple of each task's own, is the best one across tasks."""
        costs = {}
        for rate in found.costs:
            by_seed = zip(*(one.costs[rate] for one in found.by_task), strict=True)
            pairs = zip(by_seed, rung.seeds, strict=True)
            costs[rate] = tuple(self.fitness(on_tasks, rung.steps, seed) for on_tasks, seed in pairs)
        combined = replace(found, costs=costs)
        diverged = not math.isfinite(combined.cost)
        return combined if diverged else replace(combined, sentence="", is_undefined=False)


def best_rate(costs: Sequence[Mapping[float, float]]) -> float:
    """The learning rate, a multiple of each task's own, that is nearest to the best one on the task it suits least.

    Args:
        costs: For each task the cost at every learning rate.
    """
    best = [min(by_rate.values()) for by_rate in costs]
    return min(costs[0], key=lambda rate: max(change(own[rate], least) for own, least in zip(costs, best, strict=True)))


def change(cost: float, baseline: float) -> float:
    """The difference of a cost from the baseline's, as a share of the larger of the two; negative if it is lower.

    Costs of one sign give a number between -1 and 1, whatever their size.

    Example:
        >>> change(0.09, 0.10), change(0.0, 0.0), change(0.1, math.inf)
        (-0.10000000000000009, 0.0, -1.0)
    """
    if math.isinf(cost) or math.isinf(baseline):
        return (cost > baseline) - float(cost < baseline)
    largest = max(abs(cost), abs(baseline))
    return (cost - baseline) / largest if largest else 0.0


def rank(cost: float, known: Sequence[float]) -> float:
    """The rank of a cost among those of known losses, from 1 for the best, interpolated between them.

    Beyond the best it tends to 0 and beyond the worst to their number plus 1, so that no single task decides alone.
    Known losses that diverged are worse than any number; equal ones share the mean of their ranks.

    Example:
        >>> [rank(cost, [0.1, 0.2, 0.4]) for cost in (0.1, 0.3, 0.4, 0.55)]
        [1.0, 2.5, 3.0, 3.5]
    """
    finite = sorted(value for value in known if math.isfinite(value))
    if not finite:
        return 0.0
    costs, ranks, below = [], [], 0
    for value, equal in groupby(finite):
        count = len([*equal])
        costs.append(value)
        ranks.append(below + (count + 1) / 2)
        below += count
    # The unit of distances beyond the ends: the mean distance of the known losses, or their size where all are equal.
    gap = (costs[-1] - costs[0]) / (len(costs) - 1) if len(costs) > 1 else abs(costs[0])
    if cost < costs[0]:
        return ranks[0] * gap / (costs[0] - cost + gap)
    if cost > costs[-1]:
        beyond = cost - costs[-1]
        return ranks[-1] + (len(finite) + 1 - ranks[-1]) * beyond / (beyond + gap)
    place = bisect_left(costs, cost)
    if costs[place] == cost:
        return ranks[place]
    share = (cost - costs[place - 1]) / (costs[place] - costs[place - 1])
    return ranks[place - 1] + share * (ranks[place] - ranks[place - 1])


def with_rule(settings: SearchSettings, tasks: Sequence[Task]) -> SearchSettings:
    """The settings with the rule for several tasks, which must be none for one task.

    Raises:
        InputError: The rule makes no sense for these tasks.
    """
    rule = settings.across_tasks
    if len(tasks) == 1:
        if rule is not None:
            raise InputError(f"across_tasks is for several tasks, but there is one and across_tasks is {rule}")
        return settings
    metrics = dict.fromkeys(task.metric.name for task in tasks)
    if rule == "mean" and len(metrics) > 1:
        raise InputError(
            f"the mean of different metrics ({', '.join(metrics)}) says nothing: across_tasks must be rank or worst "
            "for such tasks but got mean"
        )
    return settings.with_changes(across_tasks=rule or "worst")


def shown_fitness(settings: SearchSettings, tasks: Sequence[Task]) -> ShownMetric:
    """How fitness is shown to people: as the metric of the tasks, or as what is made of their metrics."""
    metric = tasks[0].metric
    return ACROSS.get(settings.across_tasks or "") or ShownMetric(metric.name, metric.higher_is_better)


ACROSS = {"rank": ShownMetric(MEAN_RANK), "worst": ShownMetric(WORST_CHANGE)}
"""What fitness is by the rules that do not average costs."""


def common_lr(settings: SearchSettings, tasks: Sequence[Task]) -> float | None:
    """The untuned learning rate of all tasks; None if they differ in it."""
    rates = {task.recipe.lr if settings.lr is None else settings.lr for task in tasks}
    return rates.pop() if len(rates) == 1 else None
