"""The headroom of a task: its baseline and the rivals, trained and measured as candidates are.

Before a search it says what a learned loss must beat; on its own it says whether a known loss already beats the
baseline.
"""

import math
import textwrap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from evomal.runs.leads import Scores, lead_on_other_rows, lead_text, paired_lead, rate_text
from evomal.runs.rows import RecordedTrial
from evomal.tasks.metric_display import ShownMetric, metric_number
from evomal.text import plural, printable

_End = Literal["", "lowest", "highest"]
_MOST_TIMES = 100.0  # the noise: more is not said


@dataclass(frozen=True)
class Measured:
    """A known loss on one rung, at its best learning rate."""

    steps: int
    rate: float
    """The learning rate, as a multiple of the task's own."""
    scores: tuple[float, ...]
    """Costs, one per seed; infinite where the training diverged."""
    seeds: tuple[int, ...]
    """The seed of each cost: losses with the same seed have the same split, start and batches."""
    end: _End = ""
    """Which of several learning rates that were tried it is, if it is one of the two beyond which none was."""
    left_out: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    """For each seed, the cost without each block of validation samples; empty where that is not known."""

    @property
    def mean(self) -> float:
        """The mean cost."""
        return Scores(self.scores).mean

    @property
    def deviation(self) -> float:
        """Standard deviation between seeds; NaN for one seed, or if a training diverged."""
        return Scores(self.scores).deviation

    @property
    def diverged(self) -> int:
        """Number of trainings that diverged."""
        return Scores(self.scores).diverged

    def lead_over(self, other: "Measured") -> tuple[float, float]:
        """By how much this cost is lower than the other over the seeds of both, and half the width of the interval."""
        mine, theirs = self.beside(other)
        return paired_lead(mine, theirs) if mine.values else (math.nan, math.inf)

    def beside(self, other: "Measured") -> tuple[Scores, Scores]:
        """The scores of this loss and those of the other one, for the seeds of both."""
        common = [seed for seed in self.seeds if seed in other.seeds]
        return self._of_seeds(common), other._of_seeds(common)

    def _of_seeds(self, seeds: Iterable[int]) -> Scores:
        places = [self.seeds.index(seed) for seed in seeds]
        left_out = tuple(self.left_out[place] for place in places) if self.left_out else ()
        return Scores(tuple(self.scores[place] for place in places), left_out)


@dataclass(frozen=True)
class Headroom:
    """The baseline and the rivals on every rung, by name, the baseline first.

    Example:
        >>> trials = [
        ...     RecordedTrial(stage="rivals", loss=loss, seed=seed, score=score * (1 + seed / 10), sentence="trained")
        ...     for loss, score in (("mse", 0.5), ("huber", 0.4))
        ...     for seed in (0, 1, 2)
        ... ]
        >>> found = Headroom.of(trials)
        >>> found.best, round(found.lead, 3), round(found.noise, 3)
        ('huber', 0.11, 0.025)
    """

    losses: Mapping[str, tuple[Measured, ...]]
    metric: ShownMetric = field(default_factory=ShownMetric, compare=False)
    """How costs are shown to people."""
    lr: float | None = field(default=None, compare=False)
    """The task's own learning rate; None if it is not known, or if several tasks differ in it."""
    rows: int | None = field(default=None, compare=False)
    """The number of validation rows that all seeds share, which other rows may contradict; None if not known, or if
    every seed has other rows."""

    def __str__(self) -> str:
        """One line per loss, the best first, and what the best one gains."""
        found = {name: self.last(name) for name in self.losses}
        width = max(map(len, found))
        lines = [
            f"{name:<{width}}  {self.metric.text(one.mean, one.deviation)}, {rate_text(one.rate, self.lr)}"
            for name, one in sorted(found.items(), key=lambda entry: entry[1].mean)
        ]
        for sentence in (self.sentence(self.metric, self.lr), *self.notes()):
            lines += textwrap.wrap(sentence, 80, break_on_hyphens=False)
        return "\n".join(map(printable, lines))

    @classmethod
    def of(cls, trials: Iterable[RecordedTrial]) -> "Headroom":
        """The headroom from the trials of rivals; on every rung, the learning rate with the lowest mean cost counts."""
        found: dict[str, dict[int, dict[float, list[RecordedTrial]]]] = {}
        for trial in trials:
            if trial.stage == "rivals":
                by_rate = found.setdefault(trial.loss, {}).setdefault(trial.steps, {})
                by_rate.setdefault(trial.rate, []).append(trial)
        losses = {}
        for loss, rungs in found.items():
            rows = []
            for steps, by_rate in sorted(rungs.items()):
                every = [
                    Measured(
                        steps, rate, (scores := Scores.of(group)).values, tuple(trial.seed for trial in group),
                        left_out=scores.left_out,
                    )
                    for rate, group in by_rate.items()
                ]  # fmt: skip
                best = min(every, key=lambda one: (one.mean, one.rate))
                rows.append(replace(best, end=_end_of(best.rate, by_rate) if math.isfinite(best.mean) else ""))
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
    def best_rival(self) -> str:
        """The loss with the lowest mean cost of those beside the baseline; the baseline if there is no other."""
        return min([*self.losses][1:], key=lambda name: self.last(name).mean, default=self.baseline)

    @property
    def noise(self) -> float:
        """What differs by chance: half the width of Student's 95 % interval of the best rival's lead over the baseline.

        The lead is the mean of the differences by seed on the longest rung, so that the variation between splits, which
        both losses share, is no part of it. Infinite for one seed, or if a training diverged.
        """
        own, rival = self.last(self.baseline), self.last(self.best_rival)
        return rival.lead_over(own)[1] if math.isfinite(own.mean) else math.inf

    @property
    def lead(self) -> float:
        """By how much the cost of the best loss is below the baseline's."""
        return self.last(self.baseline).mean - self.last(self.best).mean

    @property
    def lead_in_noise(self) -> float:
        """The lead in units of the noise, shown from 1 on; infinite without noise, or if only the baseline diverged."""
        if self.best == self.baseline:
            return 0.0
        return self.lead / self.noise if math.isfinite(self.lead) and self.noise > 0 else math.inf

    def last(self, name: str) -> Measured:
        """A loss on the longest rung."""
        return self.losses[name][-1]

    def notes(self) -> list[str]:
        """One sentence for each end of the learning rates at which losses are best: beyond it they may be better."""
        ends = {end: [name for name in self.losses if self.last(name).end == end] for end in ("lowest", "highest")}
        return [
            f"{', '.join(names)}: best at the {end} learning rate that was tried, and perhaps better at {beyond} ones: "
            "set tried_rates to try more"
            for (end, names), beyond in zip(ends.items(), ("lower", "higher"), strict=True)
            if names
        ]

    def sentence(self, metric: ShownMetric, lr: float | None, *, advise: bool = True) -> str:
        """What the best known loss gains, and at which learning rate.

        Args:
            metric: The metric, for the numbers.
            lr: The task's own learning rate; None: rates are given as multiples of it.
            advise: Whether to say which loss to use, which after a search its final does.
        """
        own, rival, others = self.last(self.baseline), self.last(self.best_rival), len(self.losses) - 1
        seeds = plural(len(own.scores), "seed")
        measured = f"{self.baseline} {metric.text(own.mean, own.deviation)} ({seeds}, {rate_text(own.rate, lr)})"
        if not others:
            return f"{measured}; no other known loss was trained"
        # The best of many leads more easily than one that was named beforehand, so that their number is said.
        named = f"{self.best_rival} {metric.text(rival.mean)}, the best of {plural(others, 'other known loss')},"
        use = f": use it with {rate_text(rival.rate, lr, rival.steps)}" if advise else ""
        known = lead_on_other_rows(*rival.beside(own))
        rows = "" if known is None else f"; ± {metric_number(known[1], metric.name, digits=2)} with other rows"
        on_rows = "" if self.rows is None else f" on the same {plural(self.rows, 'row')}"
        basis = f"95 %, differences by seed{on_rows}{rows}"
        if own.diverged:
            lost = f"{self.baseline} diverged with {own.diverged} of {seeds} at every learning rate tried"
            if rival.diverged:
                return f"{lost}, and so did every other known loss with some of them"
            pairs = zip(*(scores.values for scores in rival.beside(own)), strict=True)
            common = [theirs - cost for cost, theirs in pairs if math.isfinite(theirs)]
            is_worse = bool(common) and sum(common) < 0
            return f"{lost}; {named} with none" + (", but is worse with the others" if is_worse else use)
        lead, half = rival.lead_over(own)
        amount = lead_text(lead, half, metric.name) if math.isfinite(lead) and math.isfinite(half) else ""
        if self.lead_in_noise >= 1:
            # Costs that count few rows may differ by the same amount with every seed.
            is_countable = self.lead_in_noise < _MOST_TIMES
            times = f", {self.lead_in_noise:.1f} times the noise" if is_countable else ""
            return f"{measured}; {named} beats it by {amount}{times} ({basis}){use}"
        why = f" ({amount}: {basis})" if amount else ""
        return f"{measured}; {named} shows no lead over it{why}"


def _end_of(rate: float, tried: Collection[float]) -> _End:
    if len(tried) == 1:
        return ""
    return "lowest" if rate == min(tried) else "highest" if rate == max(tried) else ""


def rivals_of(trials: Iterable[RecordedTrial]) -> dict[str, float]:
    """The cost of each rival on the longest rung, at its best learning rate; infinite if the training diverged."""
    found = Headroom.of(trials)
    return {name: found.last(name).mean for name in found.losses}


def recorded_headroom(trials: Iterable[RecordedTrial], lr: float | None = None) -> Headroom | None:
    """The headroom of a record; None if its rivals were trained once, at the task's own learning rate `lr`."""
    rivals = [trial for trial in trials if trial.stage == "rivals"]
    return replace(Headroom.of(rivals), lr=lr) if any(trial.steps for trial in rivals) else None
