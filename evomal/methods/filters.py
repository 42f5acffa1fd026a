"""A loss whose gradient is zero on every sample, with its starting weights and at the untrained outputs.

An addition: the paper spends all meta steps on such trees. A quarter of initial regression trees and a third of
classification trees are dead at φ = 1, and about one in twenty of those is revived by the starting weights' noise.

The filter is not exact, as meta steps can revive a tree, too: with the filter switched off, 2 of 113 and 1 of 197 dead
trees passed the rejection filter after 250 meta steps. `filters=symbolic,rejection,gradient` switches it off.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses.expression_loss import starting_weights
from evomal.methods.judging import Case, Executor, Judge, Learned, Stage, still_open
from evomal.methods.outcomes import Outcome, State
from evomal.methods.proposals import Proposal
from evomal.progress import StageStepsDone
from evomal.randomness import generator


def is_dead(norms: Sequence[float]) -> bool:
    """Whether every sample's gradient norm is exactly zero; one that is not a number is another matter."""
    return all(norm == 0 for norm in norms)


def is_rejected(gain: float) -> bool:
    """Whether the metric did not improve (g > 0) when the untrained outputs themselves descended the loss."""
    return math.isnan(gain) or gain <= 0


_DIGITS = 2


def fingerprint(norms: Sequence[float]) -> str | None:
    """Text that losses share when their rounded gradient norms do; None where a norm is not finite."""
    if not all(map(math.isfinite, norms)):
        return None
    rounded = " ".join(f"{abs(norm):.{_DIGITS - 1}e}" for norm in norms)
    return hashlib.sha256(rounded.encode()).hexdigest()


FILTERS = ("symbolic", "dead", "rejection", "gradient")
"""In the order in which they are asked; each can be left out."""


class FilteringJudge(Judge):
    """Judges expressions, whose weights are tuned or stay at one as the formula is written.

    A candidate's starting weights come from the seed and its tree alone, so its outcome does not depend on when it is
    proposed. Within a generation the first of equal trees, or of trees with equal gradients, is the one computed.
    """

    def __init__(
        self, executor: Executor, *, seed: int, optimised: bool = True, filters: Sequence[str] = FILTERS
    ) -> None:
        super().__init__(executor)
        for name in filters:
            if name not in FILTERS:
                raise InputError(f"filters must be some of {', '.join(FILTERS)} but got {name!r}")
        self._seed, self._optimised, self._filters = seed, optimised, frozenset(filters)

    def _judged(self, proposals: Sequence[Proposal], generation: int, report: StageStepsDone | None) -> list[Outcome]:
        found: dict[int, Outcome] = {}
        first_of: dict[str, int] = {}
        cases: list[Case] = []
        for place, proposal in enumerate(proposals):
            known = proposal.known or self._seen(proposal)
            if known is not None:
                found[place] = known
            elif "symbolic" in self._filters and proposal.expression.key in first_of:
                continue  # its twin of this generation is on the way
            else:
                first_of[proposal.expression.key] = place
                cases.append(Case(proposal, self._start(proposal.expression), place))
        self._through_the_stages(cases, report)
        found |= {case.place: case.outcome for case in cases if case.outcome is not None}
        return [
            found[place] if place in found else found[first_of[proposal.expression.key]].seen_again()
            for place, proposal in enumerate(proposals)
        ]

    def _seen(self, proposal: Proposal) -> Outcome | None:
        return self.archive.seen(proposal.genome) if "symbolic" in self._filters else None

    def _start(self, expression: Expression) -> list[float]:
        if not self._optimised:
            return [1.0] * expression.edges
        return starting_weights(expression, generator=generator(self._seed, "starting weights", expression.key))

    def _through_the_stages(self, cases: list[Case], report: StageStepsDone | None) -> None:
        """Dead gradients, optimisation, rejection, equal gradients, training: what one ends does not reach the next."""
        if "dead" in self._filters:
            for case, norms in self._staged("gradient_norms", still_open(cases)):
                if is_dead(norms):
                    case.end(State.DEAD, "its gradient is zero on every sample")
        if self._optimised:
            for case, result in self._staged("optimise", still_open(cases), report):
                case.tuned(result)
        if "rejection" in self._filters:
            for case, gain in self._staged("gains", still_open(cases)):
                if gain == -math.inf:
                    case.end(State.DIVERGED, "following it led to outputs that are not finite")
                elif is_rejected(gain):
                    case.end(State.REJECTED, f"following it improved the metric by {gain:.3g}, which is not above 0")
        twins = self._without_twins(cases)
        waiting = {id(cases[position]) for position in twins}
        self._trained([case for case in still_open(cases) if id(case) not in waiting], report)
        # Whoever failed has no fitness to share, so those who waited for it are trained themselves.
        left = [cases[position] for position, first in twins.items() if _failed(cases[first])]
        self._trained(left, report)
        for position, first in twins.items():
            case, earlier = cases[position], cases[first].outcome
            if case.outcome is not None:
                continue
            assert earlier is not None
            case.outcome = replace(earlier.of_twin(tuple(case.weights)), seconds=case.seconds)

    def _without_twins(self, cases: list[Case]) -> dict[int, int]:
        """End those whose gradients an earlier generation knows; positions of those that wait for one of this one."""
        if "gradient" not in self._filters:
            return {}
        waiting: dict[int, int] = {}
        first_of: dict[str, int] = {}
        for case, norms in self._staged("gradient_norms", still_open(cases)):
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

    def _training(self, losses: Sequence[Learned]) -> tuple[Stage, list[Sequence[Any]]]:
        return "evaluate", [[genome for genome, _ in losses], [weights for _, weights in losses]]

    def _staged(
        self, stage: Stage, cases: list[Case], report: StageStepsDone | None = None
    ) -> Iterator[tuple[Case, Any]]:
        expressions = [case.proposal.expression for case in cases]
        return self._worked_on(stage, cases, expressions, [case.weights for case in cases], report=report)


def _failed(case: Case) -> bool:
    return case.outcome is not None and case.outcome.state is State.FAILED
