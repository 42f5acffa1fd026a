"""The headroom of a task: its baseline and the rivals, trained and measured as candidates are.

Before a search it says what a learned loss must beat; on its own it says whether a known loss already beats the
baseline.
"""

import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evomal.runs.finals import Scores, rate_text
from evomal.runs.rows import RecordedTrial
from evomal.tasks.metric_display import ShownMetric
from evomal.text import plural, printable


@dataclass(frozen=True)
class Measured:
    """A known loss on one rung, at its best learning rate."""

    steps: int
    rate: float
    """The learning rate, as a multiple of the task's own."""
    scores: tuple[float, ...]
    """Costs, one per seed; infinite where the training diverged."""

    @property
    def mean(self) -> float:
        """The mean cost."""
        return Scores(self.scores).mean

    @property
    def deviation(self) -> float:
        """Standard deviation between seeds; NaN for one seed, or if a training diverged."""
        return Scores(self.scores).deviation


@dataclass(frozen=True)
class Headroom:
    """The baseline and the rivals on every rung, by name, the baseline first.

    Example:
        >>> trials = [
        ...     RecordedTrial(stage="rivals", loss=loss, seed=seed, score=score + seed / 100, sentence="trained")
        ...     for loss, score in (("mse", 0.5), ("huber", 0.4))
        ...     for seed in (0, 1)
        ... ]
        >>> Headroom.of(trials).best, round(Headroom.of(trials).lead_in_noise)
        ('huber', 14)
    """

    losses: Mapping[str, tuple[Measured, ...]]
    metric: ShownMetric = field(default_factory=ShownMetric, compare=False)
    """How costs are shown to people."""
    lr: float | None = field(default=None, compare=False)
    """The task's own learning rate; None if it is not known, or if several tasks differ in it."""

    def __str__(self) -> str:
        """One line per loss, the best first, and what the best one gains."""
        found = {name: self.last(name) for name in self.losses}
        width = max(map(len, found))
        lines = [
            f"{name:<{width}}  {self.metric.text(one.mean, one.deviation)}, {rate_text(one.rate, self.lr)}"
            for name, one in sorted(found.items(), key=lambda entry: entry[1].mean)
        ]
        lines += textwrap.wrap(self.sentence(self.metric, self.lr), 80, break_on_hyphens=False)
        return "\n".join(map(printable, lines))

    @classmethod
    def of(cls, trials: Iterable[RecordedTrial]) -> "Headroom":
        """The headroom from the trials of rivals; on every rung, the learning rate with the lowest mean cost counts."""
        found: dict[str, dict[int, dict[float, list[float]]]] = {}
        for trial in trials:
            if trial.stage == "rivals":
                by_rate = found.setdefault(trial.loss, {}).setdefault(trial.steps, {})
                by_rate.setdefault(trial.rate, []).append(trial.score)
        losses = {}
        for loss, rungs in found.items():
            rows = []
            for steps, by_rate in sorted(rungs.items()):
                rate = min(by_rate, key=lambda rate: (sum(by_rate[rate]) / len(by_rate[rate]), rate))
                rows.append(Measured(steps, rate, tuple(by_rate[rate])))
            losses[loss] = tuple(rows)
        return cls(losses)

    @property
    def baseline(self) -> str:
        """The task's own loss."""
        return next(iter(self.losses))

    @property
    def best(self) -> str:
        """The loss with the lowest mean cost on the longest rung; of equal ones the first."""
        return min(self.losses, key=lambda name: self.last(name).mean)

    @property
    def noise(self) -> float:
        """Standard deviation of the baseline's cost between seeds, on the longest rung.

        Across several tasks, costs are relative to the baseline's. Its own cost then does not vary, and the standard
        deviation of the best loss is used instead.
        """
        own = self.last(self.baseline).deviation
        return own if own else self.last(self.best).deviation

    @property
    def lead(self) -> float:
        """By how much the cost of the best loss is below the baseline's."""
        return self.last(self.baseline).mean - self.last(self.best).mean

    @property
    def lead_in_noise(self) -> float:
        """The lead in units of the noise; infinite if there is no noise."""
        if self.best == self.baseline:
            return 0.0
        return self.lead / self.noise if self.noise > 0 else math.inf

    def last(self, name: str) -> Measured:
        """A loss on the longest rung."""
        return self.losses[name][-1]

    def sentence(self, metric: ShownMetric, lr: float | None) -> str:
        """What the best known loss gains, and at which learning rate.

        Args:
            metric: The metric, for the numbers.
            lr: The task's own learning rate; None: rates are given as multiples of it.
        """
        own, best = self.last(self.baseline), self.last(self.best)
        seeds = plural(len(own.scores), "seed")
        measured = f"{self.baseline} {metric.text(own.mean, own.deviation)} ({seeds}, {rate_text(own.rate, lr)})"
        if self.best == self.baseline or not self.lead_in_noise >= 1:
            return f"{measured}; no known loss beats it by more than the noise between seeds"
        times = f"{self.lead_in_noise:.1f} times" if math.isfinite(self.lead_in_noise) else "far more than"
        return (
            f"{measured}; {self.best} {metric.text(best.mean)} beats it by {times} the noise between seeds: "
            f"use it with {rate_text(best.rate, lr, best.steps)}"
        )


def rivals_of(trials: Iterable[RecordedTrial]) -> dict[str, float]:
    """The cost of each rival on the longest rung, at its best learning rate; infinite if the training diverged."""
    found = Headroom.of(trials)
    return {name: found.last(name).mean for name in found.losses}


def recorded_headroom(trials: Iterable[RecordedTrial]) -> Headroom | None:
    """The headroom of a record; None if its rivals were trained once, at the task's own learning rate."""
    rivals = [trial for trial in trials if trial.stage == "rivals"]
    return Headroom.of(rivals) if any(trial.steps for trial in rivals) else None
