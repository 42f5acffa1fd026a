"""Costs of one loss with several seeds, and the lead of one loss over another."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from evomal.engine.left_out import error_of_rows, half_width
from evomal.runs.rows import RecordedTrial
from evomal.tasks.metric_display import difference_unit, metric_number
from evomal.text import plural

CONFIDENCE = 0.95
_SURE_DIVERGENCES = 6
"""A loss diverges less often than another for certain if it is the only one that trains with this many seeds, and never
the only one that diverges: the sign test then has p < 0.05."""


@dataclass(frozen=True)
class Scores:
    """The scores of one loss with several seeds, as costs: lower is better, infinite if the training diverged."""

    values: tuple[float, ...]
    left_out: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    """For each seed, the score without each block of validation samples; empty where that is not known."""

    @classmethod
    def of(cls, trials: Sequence[RecordedTrial]) -> Self:
        """The scores of these trials, in their order."""
        left_out = tuple(trial.left_out for trial in trials)
        return cls(tuple(trial.score for trial in trials), left_out if any(left_out) else ())

    @property
    def mean(self) -> float:
        """Infinite if any score is."""
        return sum(self.values) / len(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation; NaN for one score, or if any is infinite."""
        if len(self.values) < 2 or not all(map(math.isfinite, self.values)):
            return math.nan
        return statistics.stdev(self.values)

    @property
    def diverged(self) -> int:
        """Number of trainings that diverged."""
        return len(self.values) - len(self._finite)

    @property
    def standing(self) -> tuple[int, float]:
        """Smaller is better: first the number of trainings that diverged, then the mean of the others."""
        return self.diverged, statistics.fmean(self._finite) if self._finite else math.inf

    @property
    def _finite(self) -> list[float]:
        return [value for value in self.values if math.isfinite(value)]


def paired_lead(own: Scores, other: Scores, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """By how much the first cost is lower, over paired seeds, and half the width of Student's interval.

    The interval is infinite for one seed, and in general if a training diverged. There are two exceptions. The lead
    over a loss that diverges more often for certain, and is not better otherwise, is infinite with an interval of width
    zero. If only the other loss diverged, and the first one leads with the remaining seeds, that is its lead: the seeds
    that are left out speak for it, too.
    """
    differences = [theirs - mine for mine, theirs in zip(own.values, other.values, strict=True)]
    if all(map(math.isfinite, differences)):
        return _mean_and_half(differences, confidence)
    # Where both diverged, the difference is not a number.
    only_own, only_other = differences.count(-math.inf), differences.count(math.inf)
    both_trained = [difference for difference in differences if math.isfinite(difference)]
    if not only_own and only_other >= _SURE_DIVERGENCES and sum(both_trained) >= 0:
        return math.inf, 0.0
    if not own.diverged and both_trained:
        lead, half = _mean_and_half(both_trained, confidence)
        if lead - half > 0:
            return lead, half
    return other.mean - own.mean, math.inf


def lead_on_other_rows(own: Scores, other: Scores, *, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The same with an interval that also allows for other validation samples than these, which all seeds share.

    None if it is not known how the costs depend on the samples (see `error_of_rows`), and if divergence decides: other
    samples would not change that.
    """
    if not own.values:
        return None
    lead, half = paired_lead(own, other, confidence=confidence)
    pairs = zip(own.values, other.values, strict=True)
    trained = [index for index, pair in enumerate(pairs) if all(map(math.isfinite, pair))]
    if not (math.isfinite(lead) and math.isfinite(half) and trained and own.left_out and other.left_out):
        return None
    mine, theirs = ([scores.left_out[index] for index in trained] for scores in (own, other))
    error = error_of_rows([mine], theirs)
    return None if error is None else (lead, math.hypot(half, half_width(error, len(theirs[0]), confidence)))


def _mean_and_half(differences: Sequence[float], confidence: float) -> tuple[float, float]:
    mean, count = sum(differences) / len(differences), len(differences)
    if count < 2:
        return mean, math.inf
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # here, as it takes long to import

    quantile = float(stdtrit(count - 1, (1 + confidence) / 2))
    return mean, quantile * statistics.stdev(differences) / math.sqrt(count)


def lead_text(lead: float, half: float, metric: str) -> str:
    """A lead and half the width of its interval, in the unit of the metric of this name: `0.40 ± 0.12 points`."""
    unit = difference_unit(metric)
    amounts = " ± ".join(metric_number(amount, metric, digits=2) for amount in (lead, half))
    return f"{amounts} {unit}" if unit else amounts


def rate_text(rate: float, lr: float | None, steps: int = 0) -> str:
    """A learning rate in words: its value, or a multiple if the tasks' own rates differ or are not known.

    `steps`: the length of the trainings that it holds for, if it is to be said: longer ones often need a smaller one.
    """
    found = f"{rate:g} times the learning rate of each task" if lr is None else f"lr {rate * lr:.3g}"
    return f"{found} for {plural(steps, 'step')}" if steps else found
