"""Rungs: many candidates are trained for few steps, few for many, each at several learning rates.

The fitness of a candidate estimates what a comparison would measure: the cost at its best learning rate, after a long
training, on seeds and rows that it has not been chosen by. This is successive halving (Karnin, Koren and Somekh,
Almost Optimal Exploration in Multi-Armed Bandits, ICML 2013; Jamieson and Talwalkar, AISTATS 2016), with fresh seeds on
every rung instead of longer trainings of the same seeds: a candidate that led by luck does not lead again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evomal.engine import Rung
from evomal.methods.candidates import Candidate, trained
from evomal.randomness import generator
from evomal.settings import SearchSettings

RATE_RATIO = math.sqrt(10)
"""Ratio of one learning rate to the next."""
_FEWEST_HEADROOM_SEEDS = 4  # a standard deviation of fewer says little
_FURTHER_RATES = 2  # that rivals try beyond those of candidates
FIRST_SEED = 10_000
"""Seeds of rungs are larger; searches, tuning, finals and comparisons by people use smaller ones."""


@dataclass(frozen=True)
class Ladder:
    """The rungs of a search, the shortest first."""

    rungs: tuple[Rung, ...]
    rates: int
    """Number of learning rates on the first rung."""
    share: float
    """Share of the candidates of a rung that are trained on the next one."""
    tuned: int | None
    """The rung, counted from 1, before which weights are optimised; None: never."""
    reference: str = ""
    """The known loss to whose gradient at the start candidates are scaled: see `Rung`."""
    centre: float = 1.0
    """The best learning rate of that loss, as a multiple of the task's own."""

    @classmethod
    def of(cls, settings: SearchSettings, *, seed: int, is_exchangeable: bool) -> "Ladder | None":
        """The rungs that the settings ask for; None if candidates are trained once, as in the paper."""
        if not settings.tried_rates:
            return None
        counts = settings.rung_seeds
        rungs = []
        for number, part in enumerate(settings.rungs):
            count = counts[min(number, len(counts) - 1)]
            rungs.append(
                Rung(
                    max(1, round(part * settings.training_steps)),
                    fresh_numbers(count, seed, "rung seed", number),
                    fresh_numbers(count, seed, "rung split", number) if settings.resplit and is_exchangeable else (),
                )
            )
        return cls(tuple(rungs), settings.tried_rates, settings.rung_share, settings.tuned_rung)

    def rates_of(self, number: int, candidate: Candidate | None = None) -> tuple[float, ...]:
        """The learning rates to try on a rung, as multiples of the task's own.

        On the first rung they lie around the one at which a candidate begins as the reference does. A longer training
        is best at the same learning rate or at a lower one, so further rungs try the candidate's best one and the next
        lower one.
        """
        if not number or candidate is None:
            return spaced_rates(self.rates, around=self.centre)
        return rates_near(candidate.rate, lower=self._lower)

    @property
    def _lower(self) -> int:
        """How many lower learning rates a further rung tries: none if the first one tries a single one."""
        return min(1, self.rates - 1)

    def final_rates(self, rate: float) -> tuple[float, ...]:
        """The learning rates to try in the final, which trains longer than the last rung, from the best one there."""
        return rates_near(rate, lower=2, higher=1) if self.rates > 1 else (rate,)

    def settled_rates(self, rate: float) -> tuple[float, ...]:
        """Those with which the winner of the final is chosen: the best learning rate so far, and the next lower one."""
        return rates_near(rate, lower=self._lower)

    def chosen(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that are trained on the next rung, the best first."""
        ranked = trained(candidates)
        return ranked[: math.ceil(self.share * len(ranked))]

    def headroom_seeds(self) -> list[int]:
        """The number of seeds of a rival on each rung: more on the longest, to estimate the noise of differences."""
        counts = [len(rung.seeds) for rung in self.rungs]
        return [*counts[:-1], max(counts[-1], _FEWEST_HEADROOM_SEEDS)]

    def headroom_rates(self) -> tuple[float, ...]:
        """The learning rates of a rival: a wider range, as its gradient is not matched to the baseline's."""
        return spaced_rates(self.rates + _FURTHER_RATES)

    def headroom_steps(self) -> int:
        """The number of training steps for one rival."""
        pairs = zip(self.rungs, self.headroom_seeds(), strict=True)
        return len(self.headroom_rates()) * sum(rung.steps * count for rung, count in pairs)

    def steps(self, candidates: int) -> int:
        """The number of training steps for that many candidates."""
        total, count = 0, candidates
        for number, rung in enumerate(self.rungs):
            count = math.ceil(self.share * count) if number else count
            variants = 2 if number and self.tuned == number + 1 else 1
            rates = 1 + self._lower if number else self.rates
            total += variants * count * rates * len(rung.seeds) * rung.steps
        return total


def spaced_rates(count: int, *, around: float = 1.0) -> tuple[float, ...]:
    """That number of learning rates around the task's own, or another one, evenly spaced by their ratio.

    Example:
        >>> spaced_rates(3)
        (0.3162, 1.0, 3.162)
    """
    return _rates(around, *(index - (count - 1) / 2 for index in range(count)))


def rates_near(rate: float, *, lower: int = 0, higher: int = 0) -> tuple[float, ...]:
    """A learning rate with that number of lower and of higher ones.

    Example:
        >>> rates_near(1.0, lower=2, higher=1)
        (0.1, 0.3162, 1.0, 3.162)
    """
    return _rates(rate, *range(-lower, higher + 1))


def _rates(around: float, *powers: float) -> tuple[float, ...]:
    centre = round(2 * math.log(around, RATE_RATIO)) / 2  # so that rates around different centres are the same ones
    return tuple(float(f"{RATE_RATIO ** (centre + power):.4g}") for power in powers)


def fresh_numbers(count: int, seed: int, *purpose: str | int) -> tuple[int, ...]:
    """Distinct numbers for seeds or splits, which depend on the seed of the search and the purpose."""
    drawn = generator(seed, *purpose).choice(2**31 - FIRST_SEED, size=count, replace=False)
    return tuple(FIRST_SEED + int(number) for number in drawn)
