"""Trainings outside the generations: the rivals before them, and the final after them.

The fitness of a candidate is one training. The lowest of hundreds of such numbers is partly luck, and says little about
how the loss trains with another seed. So the best candidates and the rivals are trained again with fresh seeds, and the
candidate with the lowest mean is the result.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evomal.engine import Fitness
from evomal.errors import InputError
from evomal.methods.baseline import RIVALS, require_baseline, train_rivals
from evomal.methods.candidates import Candidate, trained
from evomal.methods.evaluation import Evaluator, Executor, Failure
from evomal.runs.rows import Trial, TrialStage
from evomal.runs.store import RunStore
from evomal.settings import SearchSettings
from evomal.tasks.metrics import difference_unit, metric_number
from evomal.tasks.task import Task
from evomal.text import plural

if TYPE_CHECKING:  # it imports this module
    from evomal.runs.display import SearchListener

FINAL_SEEDS = 3000
"""The first seed of finals; no search, tuning or comparison uses these seeds."""
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Scores:
    """The scores of one loss with several seeds, as costs: lower is better, infinite if the training diverged."""

    values: tuple[float, ...]

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


@dataclass(frozen=True)
class Final:
    """Candidates and rivals under one protocol: the same fresh seeds, the same number of steps."""

    candidates: tuple[tuple[Candidate, Scores], ...]
    """In the order of their fitness in the search."""
    rivals: Mapping[str, Scores]
    """By name, the baseline first."""

    def __repr__(self) -> str:
        return (
            f"Final({len(self.candidates)} candidates, {len(self.rivals)} rivals, {self.seeds} seeds, {self.verdict()})"
        )

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.winner[1].values)

    @property
    def seeds_in_words(self) -> str:
        """Number of seeds, for a sentence."""
        return plural(self.seeds, "fresh seed")

    @property
    def winner(self) -> tuple[Candidate, Scores]:
        """The candidate with the lowest mean; of equal ones the one that was better in the search."""
        return min(self.candidates, key=lambda entry: entry[1].mean)

    @property
    def best_rival(self) -> tuple[str, Scores]:
        """The rival with the lowest mean; of equal ones the first."""
        return min(self.rivals.items(), key=lambda entry: entry[1].mean)

    @property
    def lead(self) -> tuple[float, float]:
        """How much lower the winner's cost is than the best rival's, over paired seeds, and the interval's half-width.

        The interval is Student's, at 95 %; infinite for one seed, or if a training diverged.
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
        """Whether the whole interval of the lead is above zero."""
        lead, half = self.lead
        return lead - half > 0

    def verdict(self, metric: str = "") -> str:
        """Whether the winner leads, in words no stronger than the interval of its lead.

        Args:
            metric: The name of the metric, which decides the unit of the lead.
        """
        name, (lead, half) = self.best_rival[0], self.lead
        if not math.isfinite(self.winner[1].mean):
            return f"no lead over {name}: training with it diverged"
        if self.leads:
            amounts = " ± ".join(metric_number(amount, metric, digits=2) for amount in (lead, half))
            unit = difference_unit(metric)
            return f"leads {name} by {amounts}{f' {unit}' if unit else ''} on validation"
        return f"no lead over {name}"


def final_seeds(count: int, search_seed: int) -> list[int]:
    """Seeds of a final, without the seed of the search."""
    return [seed for seed in range(FINAL_SEEDS, FINAL_SEEDS + count + 1) if seed != search_seed][:count]


def finalists(candidates: Iterable[Candidate], count: int, *, without: Iterable[str] = ()) -> list[Candidate]:
    """The best distinct candidates that were trained.

    Candidates with the same gradients, or with the same genome and weights, count as one. Candidates whose genome is
    the name of a rival are left out, since the rival itself takes part.
    """
    known = set(without)
    distinct: dict[Any, Candidate] = {}
    for candidate in trained(candidate for candidate in candidates if candidate.genome not in known):
        distinct.setdefault(candidate.fingerprint or (candidate.genome, candidate.weights), candidate)
    return list(distinct.values())[:count]


def final_of(candidates: Iterable[Candidate], trials: Sequence[Trial], *, seeds: int) -> Final | None:
    """The final that these trials belong to; None if there is none, or if fewer seeds than planned are recorded."""
    scores: dict[str, list[float]] = {}
    for trial in trials:
        if trial.stage == "final":
            scores.setdefault(trial.loss, []).append(trial.score)
    if not scores or any(len(values) != seeds for values in scores.values()):
        return None
    places = {candidate.place: candidate for candidate in candidates}
    entries = tuple((places[loss], Scores(tuple(values))) for loss, values in scores.items() if loss in places)
    rivals = {loss: Scores(tuple(values)) for loss, values in scores.items() if loss not in places}
    return Final(entries, rivals) if entries and rivals else None


def recorded_final(
    settings: Mapping[str, Any], candidates: Iterable[Candidate], trials: Sequence[Trial]
) -> Final | None:
    """The final of a record; None if there is none, or if it is not complete."""
    chosen = settings.get("settings")
    seeds = chosen.get("final_seeds") if isinstance(chosen, Mapping) else None
    return final_of(candidates, trials, seeds=seeds) if isinstance(seeds, int) else None


def rivals_of(trials: Iterable[Trial]) -> dict[str, float]:
    """The score of each rival before the first generation, as a cost; infinite if the training diverged."""
    return {trial.loss: trial.score for trial in trials if trial.stage == "rivals"}


class FinalsTrainer:
    """Trains rivals and finalists; what is recorded already is read instead of computed."""

    def __init__(
        self, task: Task, executor: Executor, evaluator: Evaluator, settings: SearchSettings, seed: int,
        store: RunStore | None, listener: "SearchListener | None",
    ) -> None:  # fmt: skip
        self._task, self._executor, self._evaluator = task, executor, evaluator
        self._settings, self._seed = settings, seed
        self._store, self._listener = store, listener
        self._report = None if listener is None else listener.on_steps

    def train_rivals(self) -> dict[str, float]:
        """The scores of the baseline and its rivals, trained as candidates are, with the seed of the search.

        Raises:
            EvomalError: Training with the task's own loss raises an error of the user's code.
            InputError: The metric has no finite value for the trained model.
        """
        trials = self._recorded("rivals")
        if not trials:
            names = RIVALS[self._task.kind]
            self._announce("rivals", len(names) * self._steps(1))
            seconds, results = _timed(
                lambda: train_rivals(names, self._executor, self._task.kind, report=self._report)
            )  # fmt: skip
            require_baseline(names[0], results[0], self._task.metric)
            trials = self._record("rivals", names, self._seed, results, seconds)
        scores = rivals_of(trials)
        if self._listener is not None:
            self._listener.on_rivals(scores)
        return scores

    def train_finalists(self, candidates: Sequence[Candidate], rivals: Iterable[str]) -> Final | None:
        """Train finalists and rivals with fresh seeds; None if the settings or the search leave no finalist."""
        names = list(rivals)
        chosen = finalists(candidates, self._settings.finalists, without=names)
        if not chosen:
            return None
        losses = [*names, *(candidate.place for candidate in chosen)]
        seeds = final_seeds(self._settings.final_seeds, self._seed)
        trials = self._recorded("final")
        planned = [(seed, loss) for seed in seeds for loss in losses]
        if [(trial.seed, trial.loss) for trial in trials] != planned[: len(trials)] or len(trials) % len(losses):
            place = "" if self._store is None else f"{self._store.path}: "
            raise InputError(f"{place}its final does not belong to the recorded candidates, so it cannot be resumed")
        missing = seeds[len(trials) // len(losses) :]
        if missing:
            self._announce("final", len(missing) * (self._steps(len(chosen)) + len(names) * self._steps(1)))
        for seed in missing:
            seconds, results = _timed(lambda: self._results(names, chosen, seed))  # noqa: B023
            trials += self._record("final", losses, seed, results, seconds)
        return final_of(chosen, trials, seeds=len(seeds))

    def _results(self, names: Sequence[str], chosen: Sequence[Candidate], seed: int) -> list[Fitness | Failure]:
        return [
            *train_rivals(names, self._executor, self._task.kind, seed=seed, report=self._report),
            *self._evaluator.train_again(chosen, seed=seed, report=self._report),
        ]

    def _announce(self, phase: str, steps: int) -> None:
        if self._listener is not None:
            self._listener.on_phase(phase, steps)

    def _steps(self, losses: int) -> int:
        return self._executor.steps(losses)["evaluate"]

    def _recorded(self, stage: TrialStage) -> list[Trial]:
        return [] if self._store is None else [trial for trial in self._store.trials() if trial.stage == stage]

    def _record(
        self, stage: TrialStage, losses: Sequence[str], seed: int, results: Sequence[Fitness | Failure], seconds: float
    ) -> list[Trial]:
        each = seconds / len(losses)
        pairs = zip(losses, results, strict=True)
        trials = [Trial.of(stage, loss, seed, result, seconds=each) for loss, result in pairs]
        if self._store is not None:
            self._store.write_trials(trials)
        return trials


def _timed(work: Callable[[], list[Fitness | Failure]]) -> tuple[float, list[Fitness | Failure]]:
    begin = time.perf_counter()
    results = work()
    return time.perf_counter() - begin, results
