"""What becomes of a generation: the filters in their order, and what is left trained (EvoMAL, Algorithm 1)."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from evomal.engine import Engine
from evomal.engine.engine import Report
from evomal.errors import EvomalError, InputError
from evomal.expression import Expression
from evomal.filters import fingerprint, is_dead, is_rejected
from evomal.losses.expression_loss import starting_weights
from evomal.randomness import generator
from evomal.strategies import Archive, Outcome, Proposal, State

Result = TypeVar("Result")

FILTERS = ("symbolic", "dead", "rejection", "gradient")
"""In the order in which they are asked; each can be left out."""


@dataclass
class _Case:
    """A candidate on its way through the stages."""

    place: int
    expression: Expression
    weights: list[float]
    outcome: Outcome | None = None
    fingerprint: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def end(self, state: State, sentence: str) -> None:
        self.outcome = Outcome(state, float("inf"), sentence, tuple(self.weights), self.fingerprint, self.seconds)


class Judge:
    """Says what becomes of each proposal of expressions, and remembers it for those to come.

    A candidate's starting weights come from the seed and its tree alone, so its outcome does not depend on when it is
    proposed. Within a generation the first of equal trees, or of trees with equal gradients, is the one computed.
    """

    def __init__(self, engine: Engine, *, seed: int, optimised: bool = True, filters: Sequence[str] = FILTERS) -> None:
        """`optimised`: whether weights are tuned, or stay at one as the formula is written."""
        for name in filters:
            if name not in FILTERS:
                raise InputError(f"filters must be some of {', '.join(FILTERS)} but got {name!r}")
        self.archive = Archive()
        self._engine, self._seed, self._optimised, self._filters = engine, seed, optimised, frozenset(filters)

    def outcomes(
        self, proposals: Sequence[Proposal], *, generation: int, report: Report | None = None
    ) -> list[Outcome]:
        """One outcome for each proposal, in order; all are remembered."""
        found: dict[int, Outcome] = {}
        first_of: dict[str, int] = {}
        cases: list[_Case] = []
        for place, proposal in enumerate(proposals):
            known = proposal.known or self._seen(proposal)
            if known is not None:
                found[place] = known
            elif "symbolic" in self._filters and proposal.expression.key in first_of:
                continue  # its twin of this generation is on the way
            else:
                first_of[proposal.expression.key] = place
                cases.append(_Case(place, proposal.expression, self._start(proposal.expression)))
        self._judge(cases, report)
        found |= {case.place: case.outcome for case in cases if case.outcome is not None}
        outcomes = [
            found[place] if place in found else found[first_of[proposal.expression.key]].seen_again()
            for place, proposal in enumerate(proposals)
        ]
        self.remember(proposals, outcomes, generation=generation)
        return outcomes

    def remember(self, proposals: Sequence[Proposal], outcomes: Sequence[Outcome], *, generation: int) -> None:
        """Take in outcomes that were computed before, as a resumed run does."""
        for index, (proposal, outcome) in enumerate(zip(proposals, outcomes, strict=True)):
            self.archive.record(proposal.genome, outcome, generation=generation, index=index)

    def _seen(self, proposal: Proposal) -> Outcome | None:
        return self.archive.seen(proposal.genome) if "symbolic" in self._filters else None

    def _start(self, expression: Expression) -> list[float]:
        if not self._optimised:
            return [1.0] * expression.edges
        return starting_weights(expression, generator=generator(self._seed, "starting weights", expression.key))

    def _judge(self, cases: list[_Case], report: Report | None) -> None:
        """SPEC section 6, steps 2 to 6."""
        if "dead" in self._filters:
            for case, norms in self._staged("filter", _open(cases), self._engine.gradient_norms):
                if is_dead(norms):
                    case.end(State.DEAD, "its gradient is zero on every sample")
        if self._optimised:
            for case, tuned in self._staged("optimise", _open(cases), self._engine.optimise, report=report):
                case.weights = tuned.weights
                if tuned.diverged_at is not None:
                    step = tuned.diverged_at + 1
                    case.end(State.DIVERGED, f"its meta-gradient or task loss was not finite at meta step {step}")
        if "rejection" in self._filters:
            for case, gain in self._staged("filter", _open(cases), self._engine.gains):
                if is_rejected(gain):
                    case.end(State.REJECTED, f"following it improved the metric by {gain:.3g}, which is not above 0")
        twins = self._without_twins(cases)
        for case, fitness in self._staged("evaluate", _open(cases, twins), self._engine.evaluate, report=report):
            if fitness.outcome == "diverged":
                case.end(State.DIVERGED, fitness.sentence)
            else:
                case.outcome = Outcome.measured(
                    fitness.value, "trained and evaluated", weights=tuple(case.weights), fingerprint=case.fingerprint,
                    seconds=case.seconds,
                )  # fmt: skip
        for place, first in twins.items():
            case, earlier = cases[place], cases[first].outcome
            assert earlier is not None
            # Whoever failed has no fitness to share.
            case.outcome = replace(earlier.of_twin(tuple(case.weights)), seconds=case.seconds)

    def _without_twins(self, cases: list[_Case]) -> dict[int, int]:
        """End those whose gradients an earlier generation knows; positions of those that wait for one of this one."""
        if "gradient" not in self._filters:
            return {}
        waiting: dict[int, int] = {}
        first_of: dict[str, int] = {}
        for case, norms in self._staged("filter", _open(cases), self._engine.gradient_norms):
            case.fingerprint = fingerprint(norms)
        for position, case in enumerate(cases):
            if case.outcome is not None or case.fingerprint is None:
                continue
            twin = self.archive.twin(case.fingerprint, weights=tuple(case.weights))
            if twin is not None:
                case.outcome = replace(twin, seconds=case.seconds)
            elif case.fingerprint in first_of:
                waiting[position] = first_of[case.fingerprint]
            else:
                first_of[case.fingerprint] = position
        return waiting

    def _staged(
        self, stage: str, cases: list[_Case], work: Callable[..., list[Result]], **options: Any
    ) -> Iterator[tuple[_Case, Result]]:
        """Each case with its result; a case that cannot be worked on is ended as failed, and the others go on."""
        if not cases:
            return
        with _shared_time(stage, cases):
            try:
                results = work([case.expression for case in cases], [case.weights for case in cases], **options)
            except EvomalError:
                raise  # the settings are to blame, not the candidate
            except (RuntimeError, MemoryError, ArithmeticError, ValueError) as error:
                if len(cases) == 1:
                    cases[0].end(State.FAILED, f"{stage} failed: {_one_line(error)}")
                    return
                results = []
        if results:
            yield from zip(cases, results, strict=True)
            return
        for case in cases:  # one of them is to blame: each alone
            yield from self._staged(stage, [case], work, **options)


def _open(cases: list[_Case], waiting: dict[int, int] | None = None) -> list[_Case]:
    return [case for place, case in enumerate(cases) if case.outcome is None and place not in (waiting or {})]


@contextmanager
def _shared_time(stage: str, cases: list[_Case]) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        each = (time.perf_counter() - begin) / len(cases)
        for case in cases:
            case.seconds[stage] = case.seconds.get(stage, 0.0) + each


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
