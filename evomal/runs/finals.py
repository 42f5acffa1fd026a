"""The final: the best candidates and the rivals trained again with fresh seeds, before one is called the best.

The fitness of a search is one training. The least of hundreds of such numbers is a lucky one, and says little of how
the loss trains with another seed; its mean over fresh seeds does.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evomal.methods.outcomes import State
from evomal.runs.candidates import RecordedCandidate
from evomal.runs.trials import Trial, loss_of_candidate

FINAL_SEEDS = 3000
"""Where the seeds of finals begin: neither a search nor a tuning nor a comparison has them."""
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Scores:
    """What trainings with one loss and several seeds came to, as costs: lower is better, infinite where it diverged."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Infinite where any is."""
        return sum(self.values) / len(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation; NaN of one value, or where any is infinite."""
        if len(self.values) < 2 or not all(map(math.isfinite, self.values)):
            return math.nan
        return statistics.stdev(self.values)


@dataclass(frozen=True)
class Final:
    """Candidates and rivals under one protocol: the same fresh seeds, the same number of steps."""

    candidates: tuple[tuple[RecordedCandidate, Scores], ...]
    """In the order of the search's own ranking."""
    rivals: Mapping[str, Scores]
    """By name, the baseline first."""

    def __repr__(self) -> str:
        return (
            f"Final({len(self.candidates)} candidates, {len(self.rivals)} rivals, {self.seeds} seeds, {self.verdict})"
        )

    @property
    def seeds(self) -> int:
        """How many there were."""
        return len(self.winner[1].values)

    @property
    def seeds_in_words(self) -> str:
        """How many, for a sentence."""
        return f"{self.seeds} fresh seed{'' if self.seeds == 1 else 's'}"

    @property
    def winner(self) -> tuple[RecordedCandidate, Scores]:
        """The candidate of least mean; of equal ones the search's favourite."""
        return min(self.candidates, key=lambda entry: entry[1].mean)

    @property
    def best_rival(self) -> tuple[str, Scores]:
        """The rival of least mean; of equal ones the first."""
        return min(self.rivals.items(), key=lambda entry: entry[1].mean)

    @property
    def lead(self) -> tuple[float, float]:
        """How much less the winner costs than the best rival, seed by seed, and half the width of its interval.

        The interval is Student's, at 95 %; without end where there is one seed, or where a training diverged.
        """
        pairs = zip(self.best_rival[1].values, self.winner[1].values, strict=True)
        differences = [rival - own for rival, own in pairs]
        if not all(map(math.isfinite, differences)):
            return self.best_rival[1].mean - self.winner[1].mean, math.inf
        mean, count = sum(differences) / len(differences), len(differences)
        if count < 2:
            return mean, math.inf
        from scipy.special import stdtrit  # type: ignore[import-untyped]  # here, as it takes long to import

        quantile = float(stdtrit(count - 1, (1 + _CONFIDENCE) / 2))
        return mean, quantile * statistics.stdev(differences) / math.sqrt(count)

    @property
    def leads(self) -> bool:
        """Whether the whole interval of its lead is above zero."""
        lead, half = self.lead
        return lead - half > 0

    @property
    def verdict(self) -> str:
        """Whether the winner leads, in words no stronger than the interval of its lead."""
        name, (lead, half) = self.best_rival[0], self.lead
        if not math.isfinite(self.winner[1].mean):
            return f"no lead over {name}: training with it diverged"
        if self.leads:
            return f"leads {name} by {lead:.2g} ± {half:.2g} on validation"
        return f"no lead over {name}"


def final_seeds(count: int, search_seed: int) -> list[int]:
    """So many seeds that are none of the search's."""
    return [seed for seed in range(FINAL_SEEDS, FINAL_SEEDS + count + 1) if seed != search_seed][:count]


def finalists(
    candidates: Iterable[RecordedCandidate], count: int, *, without: Iterable[str] = ()
) -> list[RecordedCandidate]:
    """The best distinct candidates that were trained: least fitness, then the smaller, then the earlier.

    Candidates with the same gradients, or with the same genome and weights, are one; genomes of these names are left
    out, as the losses themselves take part.
    """
    known = set(without)
    trained = [row for row in candidates if row.state is State.EVALUATED and row.genome not in known]
    trained.sort(key=lambda row: (row.fitness, row.size or math.inf, row.generation, row.index))
    distinct: dict[Any, RecordedCandidate] = {}
    for candidate in trained:
        distinct.setdefault(candidate.fingerprint or (candidate.genome, candidate.weights), candidate)
    return list(distinct.values())[:count]


def final_of(candidates: Iterable[RecordedCandidate], trials: Sequence[Trial], *, seeds: int) -> Final | None:
    """The final that these trials are of; None where there is none, or fewer seeds than planned are recorded."""
    scores: dict[str, list[float]] = {}
    for trial in trials:
        if trial.stage == "final":
            scores.setdefault(trial.loss, []).append(trial.score)
    if not scores or any(len(values) != seeds for values in scores.values()):
        return None
    places = {loss_of_candidate(candidate): candidate for candidate in candidates}
    entries = tuple((places[loss], Scores(tuple(values))) for loss, values in scores.items() if loss in places)
    rivals = {loss: Scores(tuple(values)) for loss, values in scores.items() if loss not in places}
    return Final(entries, rivals) if entries and rivals else None


def recorded_final(
    settings: Mapping[str, Any], candidates: Iterable[RecordedCandidate], trials: Sequence[Trial]
) -> Final | None:
    """The final of a record, whoever wrote it; None where there is none, or it is not complete."""
    chosen = settings.get("settings")
    seeds = chosen.get("final_seeds") if isinstance(chosen, Mapping) else None
    return final_of(candidates, trials, seeds=seeds) if isinstance(seeds, int) else None


def rivals_of(trials: Iterable[Trial]) -> dict[str, float]:
    """What training with each rival came to before the first generation, as costs; infinite where it diverged."""
    return {trial.loss: trial.score for trial in trials if trial.stage == "rivals"}
