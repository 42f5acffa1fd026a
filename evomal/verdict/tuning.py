"""Learning rates tried on validation, the same ones for every loss."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evomal.engine import Score
from evomal.tasks.task import Task
from evomal.verdict.contestants import ComparedLoss
from evomal.verdict.trials import Arena, Job

TUNING_SEEDS = 2000
"""Where the seeds of tuning begin: neither a search nor a final training has them."""
TUNING_TRAININGS = 2
"""Seeds for each learning rate that is tried."""
_MOST_MORE = 4  # rates beyond the first ones, at one end or the other
_FEWEST_TO_GROW = 3  # of two rates each is at an end


@dataclass(frozen=True)
class Tuning:
    """The rates that were tried, in order, and the best of them for each loss, by its identity."""

    rates: tuple[float, ...]
    best: dict[str, float]


def tuned(candidates: Sequence[ComparedLoss], baseline: ComparedLoss, arena: Arena, trials: int, task: Task) -> Tuning:
    """Try so many rates, and more while the baseline's best is the first or the last of them.

    The best has the least mean validation cost; a rate at which a training diverges is not taken. That the baseline is
    never left at an end, where a better rate may lie beyond, is what keeps a badly tuned one from making gains; every
    loss gets the same rates.
    """
    rates = tried_rates(arena.own_lr, trials)
    costs: dict[str, dict[float, float]] = {candidate.identity: {} for candidate in candidates}
    _try(candidates, rates, costs, arena, task)
    while _FEWEST_TO_GROW <= trials <= len(rates) < trials + _MOST_MORE:
        best, ratio = _best(costs[baseline.identity]), rates[1] / rates[0]
        if rates[0] < best < rates[-1]:
            break
        beyond = _rounded(best / ratio if best == rates[0] else best * ratio)
        arena.expect(TUNING_TRAININGS * len(candidates))
        _try(candidates, [beyond], costs, arena, task)
        rates = sorted([*rates, beyond])
    return Tuning(tuple(rates), {identity: _best(found) for identity, found in costs.items()})


def tried_rates(own: float, trials: int) -> list[float]:
    """So many rates, evenly spaced by their ratio from a tenth to ten times the task's own."""
    if trials == 1:
        return [own]
    return [_rounded(own * 10 ** (2 * index / (trials - 1) - 1)) for index in range(trials)]


def cost_of(score: Score, task: Task, *, validation: bool = False) -> float:
    """What a training came to, as something to be minimised; inf where it came to nothing."""
    cost = task.metric.cost(score.validation if validation else score.test)
    return cost if math.isfinite(cost) and not score.diverged else math.inf


def _try(
    candidates: Sequence[ComparedLoss], rates: Sequence[float], costs: dict[str, dict[float, float]], arena: Arena,
    task: Task,
) -> None:  # fmt: skip
    seeds = range(TUNING_SEEDS, TUNING_SEEDS + TUNING_TRAININGS)
    jobs = [Job(candidate, rate) for rate in rates for candidate in candidates]
    arena.train(jobs, seeds, test=False)
    for job in jobs:
        scores = arena.scores(job, seeds, test=False)
        mean = sum(cost_of(score, task, validation=True) for score in scores) / len(scores)
        costs[job.candidate.identity][job.lr] = mean


def _best(costs: dict[float, float]) -> float:
    return min(costs, key=lambda rate: (costs[rate], rate))


def _rounded(rate: float) -> float:
    return float(f"{rate:.4g}")
