"""Evaluation of candidates: what an executor computes for them, and how an evaluator turns results into states."""

import functools
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from evomal.checks import Kind
from evomal.engine import Fitness, Optimised, RungScores, TrialLoss
from evomal.errors import EvomalError
from evomal.expression import Space
from evomal.losses.loss import WeightedTree
from evomal.methods.candidates import Archive, Candidate, State
from evomal.methods.rungs import Ladder
from evomal.methods.several_tasks import AcrossTasks
from evomal.progress import StageStepsDone
from evomal.settings import SearchSettings

Stage = Literal[
    "inadmissible",
    "optimise",
    "gradient_norms",
    "profiles",
    "gains",
    "evaluate",
    "try_rates",
    "optimise_networks",
    "evaluate_losses",
]
"""The methods of an `Engine` that work on a list of candidates."""

TIMED_AS = {
    "inadmissible": "filter",
    "gradient_norms": "filter",
    "profiles": "filter",
    "gains": "filter",
    "optimise": "optimise",
    "optimise_networks": "optimise",
    "evaluate": "evaluate",
    "evaluate_losses": "evaluate",
    "try_rates": "evaluate",
}
"""The name under which the time of a stage is recorded."""


@dataclass(frozen=True)
class SearchContext:
    """What a strategy and an evaluator are made from."""

    settings: SearchSettings
    seed: int
    kind: Kind
    """The kind of the tasks."""
    is_exchangeable: bool = False
    """Whether the training and validation rows of every task come from one distribution."""

    @property
    def ladder(self) -> Ladder | None:
        """The rungs on which candidates are trained; None if each is trained once."""
        return Ladder.of(self.settings, seed=self.seed, is_exchangeable=self.is_exchangeable)

    @functools.cached_property
    def space(self) -> Space:
        """The operators and terminals of the trees."""
        return Space.of(self.settings.space, kind=self.kind)


@dataclass(frozen=True)
class Raised:
    """An error that user code or a library raised while a candidate was evaluated."""

    kind: str
    message: str
    place: str
    """File and line of the innermost call in the user's own code; empty if there is none."""
    error: BaseException

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.kind}: {self.message}{where}" if self.message else f"{self.kind}{where}"

    def is_like(self, other: "Raised | None") -> bool:
        """Whether the other error has the same cause: raised in the same place, or with the same message."""
        if other is None or other.kind != self.kind:
            return False
        return other.place == self.place if self.place else other.message == self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception of an unknown class and its traceback cannot be sent to another process; their text can.
        text = "".join(traceback.format_exception(self.error))
        return Raised, (self.kind, self.message, self.place, RaisedInWorkerError(text))


class RaisedInWorkerError(Exception):
    """The traceback of an error that was raised in another process."""


@dataclass(frozen=True)
class Failure:
    """Stands in place of a result: why a candidate has none."""

    sentence: str
    raised: Raised | None = field(default=None, compare=False)
    """The error; None if the worker was lost."""
    is_of_device: bool = field(default=False, compare=False)
    """Whether the worker was lost because a GPU failed, which is not to blame on the candidate."""

    def is_like(self, other: "Failure") -> bool:
        """Whether the other failure has the same cause."""
        if self.raised is None:
            return other.raised is None and other.sentence == self.sentence
        return self.raised.is_like(other.raised)


class Executor(Protocol):
    """Computes results for lists of candidates. A result must not depend on the number of workers or their order."""

    def run(
        self, stage: Stage, *columns: Sequence[Any], seed: int | None = None, report: StageStepsDone | None = None
    ) -> list[Any]:
        """The results of the engine's method of that name, in order; a Failure where a candidate has none.

        The columns are the arguments of the method, with one row per candidate. `seed` replaces the seed of the search
        in trainings of a final.
        """

    def record(self) -> dict[str, Any]:
        """What the engines decided by rule, and the settings that could change a float: see `Engine.record`."""

    def steps(self, candidates: int) -> dict[str, int]:
        """Number of steps that will be reported for that many candidates, for a progress bar."""


class Evaluator(ABC):
    """Gives every candidate of a generation its state, and remembers all of them in an archive."""

    def __init__(self, context: SearchContext, executor: Executor) -> None:
        self.archive = Archive()
        self._context, self._executor = context, executor
        self._ladder = context.ladder
        self.across: AcrossTasks | None = None
        """How costs on several tasks become a fitness; None: there is one task, or their mean counts."""
        self._is_alone = False
        """Whether the generation has a single candidate."""

    def evaluate(self, proposals: Sequence[Candidate], *, report: StageStepsDone | None = None) -> list[Candidate]:
        """The candidates of one generation with their states, in order; all are remembered."""
        self._is_alone = len(proposals) == 1
        candidates = list(proposals)
        self._evaluate(candidates, report)
        self.remember(candidates)
        return candidates

    def remember(self, candidates: Sequence[Candidate]) -> None:
        """Take in candidates that were evaluated before, as a resumed run does."""
        for candidate in candidates:
            self.archive.add(candidate)

    def train_again(
        self, candidates: Sequence[Candidate], *, seed: int, report: StageStepsDone | None = None
    ) -> list[Fitness | Failure]:
        """The results of training with each candidate's loss from another seed than the search's."""
        stage, columns = self._training(candidates)
        return self._executor.run(stage, *columns, seed=seed, report=report)

    def _evaluate(self, candidates: list[Candidate], report: StageStepsDone | None) -> None:
        """Replace each candidate in the list by one that has a state: by default, train with all that have none."""
        self._train(candidates, still_open(candidates), report)

    def first_unlike(self, candidates: Sequence[Candidate], count: int) -> list[Candidate]:
        """The first `count` candidates, without those whose gradients are nearly those of one before them.

        If too few are left, the first of the others fill up.
        """
        return list(candidates[:count])

    @abstractmethod
    def losses_of(self, candidates: Sequence[Candidate]) -> list[TrialLoss]:
        """The losses that candidates stand for, without their factors."""

    def measured_rivals(self, best: str, rate: float) -> None:
        """Take in which known loss is the best before the search, and at which learning rate.

        Losses that are not scaled keep to rates around the task's own: the other one may only fit a small gradient.
        """
        if self._ladder is not None and self.reference is not None and self._context.settings.scaled_to == "best":
            self._ladder = replace(self._ladder, reference=best, centre=rate)

    @property
    def reference(self) -> str | None:
        """The known loss to whose gradient at the start losses are scaled (see `Rung`); None: they are not.

        Only a loss into which a factor can be multiplied is scaled, as a search returns the loss that it trained with.
        """
        return None

    def _training(self, candidates: Sequence[Candidate]) -> tuple[Stage, list[Sequence[Any]]]:
        """The stage that trains once with each of these losses, and its columns."""
        losses = self.losses_of(candidates)
        trees = [loss for loss in losses if isinstance(loss, WeightedTree)]
        if len(trees) < len(losses):
            return "evaluate_losses", [losses]
        return "evaluate", [[tree.expression for tree in trees], [tree.edge_weights for tree in trees]]

    def _train(self, candidates: list[Candidate], places: Sequence[int], report: StageStepsDone | None) -> None:
        """Train with the losses at these places, and give each candidate its fitness."""
        if not places:
            return
        if self._ladder is not None:
            self._climb(self._ladder, candidates, places, report)
            return
        stage, columns = self._training([candidates[place] for place in places])
        fitness: Fitness
        for place, trained in self._run(stage, candidates, places, *columns, report=report):
            fitness = trained if self.across is None else self.across.of_fitness(trained, self._context.seed)
            if fitness.outcome == "diverged":
                candidates[place] = candidates[place].ended(State.DIVERGED, fitness.sentence)
            else:
                candidates[place] = candidates[place].measured(fitness.value)

    def _climb(
        self, ladder: Ladder, candidates: list[Candidate], places: Sequence[int], report: StageStepsDone | None
    ) -> None:
        """Train on every rung, the shortest first; only the best go on to the next."""
        remaining = list(places)
        for number, rung in enumerate(ladder.rungs):
            if number:
                index_of = {candidates[place].place: place for place in remaining}
                chosen = ladder.chosen([candidates[place] for place in remaining])
                remaining = [index_of[candidate.place] for candidate in chosen]
            entered = [candidates[place] for place in remaining]
            owners = list(remaining)
            if number and ladder.tuned == number + 1:
                variants = self._tuned(entered, report)
                entered = [*entered, *variants.values()]
                owners = [*owners, *(remaining[index] for index in variants)]
            rates = [ladder.rates_of(number, candidate) for candidate in entered]
            own_rung = replace(rung, reference=self.reference)
            columns = self.losses_of(entered), [own_rung] * len(entered), rates
            trained: dict[int, RungScores] = dict(
                self._run("try_rates", entered, range(len(entered)), *columns, report=report)
            )
            if self.across is not None:
                trained = {index: self.across.of_scores(scores, rung) for index, scores in trained.items()}
            after = [
                candidate.climbed(trained[index]) if index in trained else candidate
                for index, candidate in enumerate(entered)
            ]
            for place in remaining:
                variants_of = [candidate for candidate, owner in zip(after, owners, strict=True) if owner == place]
                candidates[place] = min(variants_of, key=lambda candidate: candidate.standing)

    def _tuned(self, candidates: Sequence[Candidate], report: StageStepsDone | None) -> dict[int, Candidate]:
        """The candidates with optimised weights, by their place in the list; those without weights are left out."""
        return {}

    def _run(
        self, stage: Stage, candidates: list[Candidate], places: Sequence[int], *columns: Sequence[Any],
        report: StageStepsDone | None = None,
    ) -> Iterator[tuple[int, Any]]:  # fmt: skip
        """Each place with its result; a candidate without a result is marked as failed, and the others continue."""
        if not places:
            return
        begin = time.perf_counter()
        results = self._executor.run(stage, *columns, report=report)
        name, each = TIMED_AS[stage], (time.perf_counter() - begin) / len(places)
        self._require_some_result(stage, results)
        for place, result in zip(places, results, strict=True):
            seconds = candidates[place].seconds
            candidates[place] = replace(candidates[place], seconds={**seconds, name: seconds.get(name, 0.0) + each})
            if isinstance(result, Failure):
                candidates[place] = candidates[place].ended(State.FAILED, f"{name} failed: {result.sentence}")
            else:
                yield place, result

    def _require_some_result(self, stage: Stage, results: Sequence[Any]) -> None:
        """Stop if every candidate fails for the same reason before any was trained: then no candidate caused it."""
        failures = [result for result in results if isinstance(result, Failure)]
        if not failures or len(failures) < len(results) or self.archive.best is not None:
            return
        first = failures[0]
        if (len(results) > 1 or self._is_alone) and all(first.is_like(failure) for failure in failures):
            cause = None if first.raised is None else first.raised.error
            reason = first.raised or first.sentence
            raise EvomalError(f"every candidate failed, at {TIMED_AS[stage]}: {reason}") from cause


def still_open(candidates: Sequence[Candidate]) -> list[int]:
    """Places of the candidates that have no state yet."""
    return [place for place, candidate in enumerate(candidates) if candidate.state is None]


def with_optimised(candidate: Candidate, result: Optimised) -> Candidate:
    """The candidate with its optimised weights; diverged if the optimisation stopped early."""
    candidate = replace(candidate, weights=tuple(result.weights))
    if result.diverged_at is None:
        return candidate
    step = result.diverged_at + 1
    return candidate.ended(State.DIVERGED, f"its meta-gradient or task loss was not finite at meta step {step}")
