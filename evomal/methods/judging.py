"""Where candidates are worked on: behind this, one engine here or many elsewhere."""

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from evomal.engine import Fitness, Optimised
from evomal.errors import EvomalError
from evomal.methods.archive import Archive
from evomal.methods.outcomes import Outcome, State
from evomal.methods.proposals import Genome, Proposal
from evomal.progress import StageStepsDone

Stage = Literal["optimise", "gradient_norms", "gains", "evaluate", "optimise_networks", "evaluate_losses"]
"""The methods of an `Engine` that work on a list of candidates."""


@dataclass(frozen=True)
class Raised:
    """An error that user code or a library raised while a candidate was worked on."""

    kind: str
    message: str
    place: str
    """File and line of the innermost call in the user's own code; empty where there is none."""
    error: BaseException

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.kind}: {self.message}{where}" if self.message else f"{self.kind}{where}"

    def is_like(self, other: "Raised | None") -> bool:
        """Whether the other has the same cause: raised in the same place, or with the same words."""
        if other is None or other.kind != self.kind:
            return False
        return other.place == self.place if self.place else other.message == self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Neither an error of a stranger's class nor its traceback can be sent to other processes; their text can.
        text = "".join(traceback.format_exception(self.error))
        return Raised, (self.kind, self.message, self.place, RaisedInWorkerError(text))


class RaisedInWorkerError(Exception):
    """What was raised in another process, as its traceback reads."""


@dataclass(frozen=True)
class Failure:
    """In the place of a result: why this candidate has none."""

    sentence: str
    raised: Raised | None = field(default=None, compare=False)
    """What was raised; None where its worker was lost."""


class Executor(Protocol):
    """Works on lists of candidates. A result may not depend on how many workers there are or who does what."""

    def run(
        self, stage: Stage, *columns: Sequence[Any], seed: int | None = None, report: StageStepsDone | None = None
    ) -> list[Any]:
        """The results of the engine's method of that name, in order, or a Failure where a candidate has none.

        The candidates are the rows of the columns, which are the method's arguments. `seed` is that of trainings where
        it is not to be the search's.
        """

    def record(self) -> dict[str, Any]:
        """What the engines have decided by rule, and settings that could change a float: see `Engine.record`."""

    def steps(self, candidates: int) -> dict[str, int]:
        """Steps that will be reported for so many candidates: what a progress bar can promise."""


Learned = tuple[Genome, Sequence[float]]
"""A genome and its weights: all that a learned loss is made of."""

TIMED_AS = {
    "gradient_norms": "filter",
    "gains": "filter",
    "optimise": "optimise",
    "optimise_networks": "optimise",
    "evaluate": "evaluate",
    "evaluate_losses": "evaluate",
}
"""Under which name a stage's seconds are recorded."""


@dataclass
class Case:
    """A candidate on its way through the stages."""

    proposal: Proposal
    weights: list[float]
    place: int = 0
    outcome: Outcome | None = None
    fingerprint: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def end(self, state: State, sentence: str) -> None:
        """No fitness, for this reason."""
        self.outcome = Outcome(state, float("inf"), sentence, tuple(self.weights), self.fingerprint, self.seconds)

    def tuned(self, result: Optimised) -> None:
        """Take the weights that optimisation found, or end with them where it broke off."""
        self.weights = result.weights
        if result.diverged_at is not None:
            step = result.diverged_at + 1
            self.end(State.DIVERGED, f"its meta-gradient or task loss was not finite at meta step {step}")

    def measured(self, fitness: Fitness) -> None:
        """Take the fitness that training came to."""
        if fitness.outcome == "diverged":
            self.end(State.DIVERGED, fitness.sentence)
        else:
            self.outcome = Outcome.measured(
                fitness.value, "trained and evaluated", weights=tuple(self.weights), fingerprint=self.fingerprint,
                seconds=self.seconds,
            )  # fmt: skip


class Judge(ABC):
    """Says what becomes of each proposal, and remembers it for those to come."""

    def __init__(self, executor: Executor) -> None:
        self.archive = Archive()
        self._executor = executor
        self._is_alone = False

    def outcomes(
        self, proposals: Sequence[Proposal], *, generation: int, report: StageStepsDone | None = None
    ) -> list[Outcome]:
        """One outcome for each proposal, in order; all are remembered."""
        self._is_alone = len(proposals) == 1
        outcomes = self._judged(proposals, generation, report)
        self.remember(proposals, outcomes, generation=generation)
        return outcomes

    def trained_again(
        self, losses: Sequence[Learned], *, seed: int, report: StageStepsDone | None = None
    ) -> list[Fitness | Failure]:
        """What training with each of these losses comes to with another seed than the search's."""
        stage, columns = self._training(losses)
        return self._executor.run(stage, *columns, seed=seed, report=report)

    def remember(self, proposals: Sequence[Proposal], outcomes: Sequence[Outcome], *, generation: int) -> None:
        """Take in outcomes that were computed before, as a resumed run does."""
        for index, (proposal, outcome) in enumerate(zip(proposals, outcomes, strict=True)):
            self.archive.record(proposal.genome, outcome, generation=generation, index=index)

    @abstractmethod
    def _judged(self, proposals: Sequence[Proposal], generation: int, report: StageStepsDone | None) -> list[Outcome]:
        """One outcome for each proposal of that generation, in order."""

    @abstractmethod
    def _training(self, losses: Sequence[Learned]) -> tuple[Stage, list[Sequence[Any]]]:
        """The stage that trains with such losses, and its columns."""

    def _trained(self, cases: Sequence[Case], report: StageStepsDone | None) -> None:
        """Train with the loss of each case, and give it the fitness that comes of it."""
        if not cases:
            return
        stage, columns = self._training([(case.proposal.genome, case.weights) for case in cases])
        for case, fitness in self._worked_on(stage, cases, *columns, report=report):
            case.measured(fitness)

    def _worked_on(
        self, stage: Stage, cases: Sequence[Case], *columns: Sequence[Any], report: StageStepsDone | None = None
    ) -> Iterator[tuple[Case, Any]]:
        """Each case with its result; a case that cannot be worked on is ended as failed, and the others go on."""
        if not cases:
            return
        with _shared_time(TIMED_AS[stage], cases):
            results = self._executor.run(stage, *columns, report=report)
        self._require_some_result(stage, results)
        for case, result in zip(cases, results, strict=True):
            if isinstance(result, Failure):
                case.end(State.FAILED, f"{TIMED_AS[stage]} failed: {result.sentence}")
            else:
                yield case, result

    def _require_some_result(self, stage: Stage, results: Sequence[Any]) -> None:
        """Stop where one error strikes every candidate before any was trained: then none of them is to blame."""
        failures = [result for result in results if isinstance(result, Failure)]
        first = failures[0].raised if failures else None
        if first is None or len(failures) < len(results) or self.archive.best is not None:
            return
        if (len(results) > 1 or self._is_alone) and all(first.is_like(failure.raised) for failure in failures):
            raise EvomalError(f"every candidate failed, at {TIMED_AS[stage]}: {first}") from first.error


def still_open(cases: Sequence[Case]) -> list[Case]:
    """Those without an outcome."""
    return [case for case in cases if case.outcome is None]


def concluded(cases: Sequence[Case]) -> list[Outcome]:
    """The outcomes of cases that all have one."""
    found = [case.outcome for case in cases if case.outcome is not None]
    assert len(found) == len(cases)
    return found


@contextmanager
def _shared_time(stage: str, cases: Sequence[Case]) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        each = (time.perf_counter() - begin) / len(cases)
        for case in cases:
            case.seconds[stage] = case.seconds.get(stage, 0.0) + each
