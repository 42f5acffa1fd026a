"""The filters that save trainings (EvoMAL, section 3.5), and the evaluator that applies them.

In this order: symbolic equivalence (3.5.1), admissibility, dead gradients, rejection (3.5.2) and gradient equivalence
(3.5.3).

The filter for admissible losses is an addition, which the paper's settings leave out: it ends a candidate whose minimum
is in the wrong place, or which has no lower bound (see `evomal.engine.admissibility`). If weights are optimised, which
can put such a candidate right, a few others near the starting weights must fail, too.

The filter for dead gradients is an addition: it ends a candidate whose gradient is zero on every sample, with its
starting weights and at the untrained outputs. The paper spends all meta steps on such trees. A quarter of the initial
regression trees and a third of the classification trees are dead at φ = 1; the noise of the starting weights revives
about one in twenty of them. The filter is not exact, since meta steps can revive a tree, too: with the filter switched
off, 2 of 113 and 1 of 197 dead trees passed the rejection filter after 250 meta steps.
`filters=symbolic,rejection,gradient` switches it off.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from evomal.engine import TrialLoss
from evomal.expression import Expression
from evomal.losses.expression_loss import starting_weights
from evomal.losses.loss import WeightedTree
from evomal.methods.candidates import Candidate, State
from evomal.methods.evaluation import (
    Evaluator,
    Executor,
    Failure,
    SearchContext,
    Stage,
    still_open,
    with_optimised,
)
from evomal.progress import StageStepsDone
from evomal.randomness import generator
from evomal.settings import Filter

FILTERS: tuple[Filter, ...] = get_args(Filter)
"""In the order in which they are applied; each can be left out."""
_DIGITS = 2
_REACH = 0.2  # about what 250 meta steps of 0.001 change a weight by
_TRIED_IN_REACH = 6
_PROFILE_RANGE = (1e-4, 1e4)  # beyond it, a gradient is negligible or overwhelming, and by how much does not matter
_ALIKE = 0.05  # root mean square between logarithms of profiles: gradients that differ by a twentieth train alike
_LOOKED_AT = 10  # candidates for each one that is wanted


def is_dead(norms: Sequence[float]) -> bool:
    """Whether every sample's gradient norm is exactly zero; NaN is not zero."""
    return all(norm == 0 for norm in norms)


def is_rejected(gain: float) -> bool:
    """Whether the metric did not improve when the untrained outputs themselves descended the loss: g is not above 0."""
    return math.isnan(gain) or gain <= 0


def fingerprint(norms: Sequence[float], *, within: tuple[float, float] = (0.0, math.inf)) -> str | None:
    """A text that losses share if their rounded gradient norms are equal; None if a norm is not finite.

    `within`: norms beyond these limits count as the limit. Without it, a loss that is flat somewhere and the same loss
    plus a constant that cancels there differ by rounding errors.
    """
    if not all(map(math.isfinite, norms)):
        return None
    rounded = " ".join(f"{min(max(abs(norm), within[0]), within[1]):.{_DIGITS - 1}e}" for norm in norms)
    return hashlib.sha256(rounded.encode()).hexdigest()


class FilteringEvaluator(Evaluator):
    """Evaluates expressions; their weights are optimised, or all stay at one.

    The starting weights of a candidate depend on the seed and its tree only, so its result does not depend on when it
    is proposed. Of equal trees, or of trees with equal gradients, in one generation the first is computed.
    """

    def __init__(self, context: SearchContext, executor: Executor, *, optimise: bool = True) -> None:
        super().__init__(context, executor)
        self._can_optimise, self._filters = optimise, frozenset(context.settings.filters)
        # With rungs, weights may be optimised later, or not at all.
        self._optimise = optimise and (self._ladder is None or self._ladder.tuned == 1)

    @property
    def reference(self) -> str | None:
        """That of the rungs, if a factor can be moved into the expression."""
        is_movable = self._context.settings.activation == "identity"
        return self._ladder.reference if self._ladder is not None and is_movable else None

    def _evaluate(self, candidates: list[Candidate], report: StageStepsDone | None) -> None:
        """A candidate that one stage ends does not reach the next."""
        repeated = self._apply_symbolic(candidates)
        computed = [place for place in still_open(candidates) if place not in repeated]
        for place in computed:
            start = candidates[place].weights or self._start(candidates[place].tree)
            candidates[place] = replace(candidates[place], weights=start)
        if "admissible" in self._filters:
            self._apply_admissible(candidates, computed)
        if "dead" in self._filters:
            for place, norms in self._stage("gradient_norms", candidates, computed):
                if is_dead(norms):
                    candidates[place] = candidates[place].ended(State.DEAD, "its gradient is zero on every sample")
        if self._optimise:
            for place, result in self._stage("optimise", candidates, computed, report):
                candidates[place] = with_optimised(candidates[place], result)
        if "rejection" in self._filters:
            for place, gain in self._stage("gains", candidates, computed):
                candidates[place] = _after_rejection(candidates[place], gain)
        self._train_without_twins(candidates, computed, report)
        for place, first in repeated.items():
            candidates[place] = candidates[place].cached(candidates[first])

    def _apply_symbolic(self, candidates: list[Candidate]) -> dict[int, int]:
        """End candidates whose genome was seen in an earlier generation; return repetitions within this one."""
        repeated: dict[int, int] = {}
        first_of: dict[tuple[str, tuple[float, ...]], int] = {}
        if "symbolic" not in self._filters:
            return repeated
        for place in still_open(candidates):
            candidate = candidates[place]
            if (earlier := self.archive.same_genome(candidate)) is not None:
                candidates[place] = candidate.cached(earlier)
            elif (key := (candidate.genome, candidate.weights)) in first_of:
                repeated[place] = first_of[key]
            else:
                first_of[key] = place
        return repeated

    def _apply_admissible(self, candidates: list[Candidate], computed: list[int]) -> None:
        """End candidates that are inadmissible with all weights that are tried."""
        weights = {place: self._weights_in_reach(candidates[place]) for place in self._open(candidates, computed)}
        places = [place for place, rows in weights.items() for _ in rows]
        trees, rows = [candidates[place].tree for place in places], list(chain.from_iterable(weights.values()))
        reasons: dict[int, list[str]] = {}
        for place, reason in self._run("inadmissible", candidates, places, trees, rows):
            reasons.setdefault(place, []).append(reason)
        for place, found in reasons.items():
            if candidates[place].state is None and all(found):
                candidates[place] = candidates[place].ended(State.INADMISSIBLE, found[0])

    def _weights_in_reach(self, candidate: Candidate) -> list[list[float]]:
        """The candidate's weights, and some of those that optimising them may lead to."""
        start = list(candidate.weights)
        if not self._optimise:
            return [start]
        randomness = generator(self._context.seed, "weights in reach", candidate.tree.key)
        factors = randomness.normal(1.0, _REACH, (_TRIED_IN_REACH, len(start)))
        return [start, *(factors * start).tolist()]

    def _start(self, tree: Expression) -> tuple[float, ...]:
        if not self._optimise:
            return (1.0,) * tree.edges
        randomness = generator(self._context.seed, "starting weights", tree.key)
        return tuple(starting_weights(tree, generator=randomness))

    def _train_without_twins(
        self, candidates: list[Candidate], computed: list[int], report: StageStepsDone | None
    ) -> None:
        """Train; of candidates with equal gradients only the first, whose fitness the others take over."""
        twins = self._apply_gradient(candidates, computed) if "gradient" in self._filters else {}
        self._choose(candidates, [place for place in self._open(candidates, computed) if place not in twins])
        self._train(candidates, [place for place in self._open(candidates, computed) if place not in twins], report)
        # A failed candidate has no fitness to share, so those that waited for it are trained themselves.
        left = [place for place, first in twins.items() if candidates[first].state is State.FAILED]
        self._train(candidates, left, report)
        for place, first in twins.items():
            if candidates[first].state is State.PASSED_OVER:
                candidates[place] = candidates[place].ended(State.PASSED_OVER, candidates[first].sentence)
            elif candidates[place].state is None:
                candidates[place] = candidates[place].equivalent(candidates[first])

    def _apply_gradient(self, candidates: list[Candidate], computed: list[int]) -> dict[int, int]:
        """End candidates whose gradients are known from an earlier generation; return twins within this one."""
        twins: dict[int, int] = {}
        first_of: dict[str, int] = {}
        # With rungs the learning rate is taken out, so losses that differ by a factor only are equal.
        stage: Stage = "gradient_norms" if self._ladder is None else "profiles"
        within = (0.0, math.inf) if self._ladder is None else _PROFILE_RANGE  # the paper rounds every norm
        for place, norms in self._stage(stage, candidates, computed):
            candidates[place] = replace(candidates[place], fingerprint=fingerprint(norms, within=within))
        for place in self._open(candidates, computed):
            candidate = candidates[place]
            if candidate.fingerprint is None:
                continue
            if (earlier := self.archive.same_gradients(candidate)) is not None:
                candidates[place] = candidate.equivalent(earlier)
            elif candidate.fingerprint in first_of:
                twins[place] = first_of[candidate.fingerprint]
            else:
                first_of[candidate.fingerprint] = place
        return twins

    def _choose(self, candidates: list[Candidate], places: list[int]) -> None:
        """End the candidates for which the generation has no room: the last, or in the first those most like others."""
        room = self._context.settings.population
        if len(places) <= room:
            return
        if candidates[0].generation == 0:
            profiles = dict(self._stage("profiles", candidates, places))
            places = list(profiles)  # a candidate without a profile has failed
            if len(places) <= room:
                return
            kept = {places[index] for index in most_different(list(profiles.values()), room)}
        else:
            kept = set(places[:room])
        for place in places:
            if place not in kept:
                candidates[place] = candidates[place].ended(State.PASSED_OVER, "others were trained in its place")

    def _tuned(self, candidates: Sequence[Candidate], report: StageStepsDone | None) -> dict[int, Candidate]:
        if not self._can_optimise:
            return {}
        working = [replace(candidate, state=None, fitness=math.inf) for candidate in candidates]
        found: dict[int, Candidate] = {}
        for place, result in self._stage("optimise", working, list(range(len(working))), report):
            if result.diverged_at is None:
                seconds = working[place].seconds
                found[place] = replace(candidates[place], weights=tuple(result.weights), seconds=seconds)
        return found

    def _open(self, candidates: list[Candidate], computed: list[int]) -> list[int]:
        return [place for place in computed if candidates[place].state is None]

    def first_unlike(self, candidates: Sequence[Candidate], count: int) -> list[Candidate]:
        if self._ladder is None or len(candidates) <= count:
            return super().first_unlike(candidates, count)
        looked_at = candidates[: _LOOKED_AT * count]
        trees, weights = zip(*((one.tree, list(one.weights)) for one in looked_at), strict=True)
        profiles = self._executor.run("profiles", trees, weights)
        return [looked_at[index] for index in unlike(profiles, count)]

    def losses_of(self, candidates: Sequence[Candidate]) -> list[TrialLoss]:
        return [WeightedTree(candidate.tree, list(candidate.weights)) for candidate in candidates]

    def _stage(
        self, stage: Stage, candidates: list[Candidate], computed: list[int], report: StageStepsDone | None = None
    ) -> Iterator[tuple[int, Any]]:
        places = self._open(candidates, computed)
        trees = [candidates[place].tree for place in places]
        weights = [list(candidates[place].weights) for place in places]
        return self._run(stage, candidates, places, trees, weights, report=report)


def most_different(profiles: Sequence[Sequence[float]], count: int) -> list[int]:
    """The indices of that many profiles, each as far as possible from those chosen before it, beginning with the first.

    Distances are Euclidean, between logarithms: norms of gradients differ by orders of magnitude. This is Gonzalez's
    algorithm for the k-center problem (Clustering to Minimize the Maximum Intercluster Distance, 1985).
    """
    points = _logarithms(profiles)
    chosen, distances = [0], np.full(len(points), np.inf)
    while len(chosen) < min(count, len(points)):
        distances = np.minimum(distances, np.linalg.norm(points - points[chosen[-1]], axis=1))
        distances[chosen] = -1.0
        chosen.append(int(np.argmax(distances)))
    return chosen


def unlike(profiles: Sequence[Sequence[float] | Failure], count: int) -> list[int]:
    """The indices of the first profiles that are not like one before them, then of the first others, in order."""
    with_profile = [index for index, profile in enumerate(profiles) if not isinstance(profile, Failure)]
    points = dict(zip(with_profile, _logarithms([profiles[index] for index in with_profile]), strict=True))
    chosen: list[int] = []
    for index, point in points.items():
        if len(chosen) < count and all(np.sqrt(np.mean((point - points[one]) ** 2)) >= _ALIKE for one in chosen):
            chosen.append(index)
    others = (index for index in range(len(profiles)) if index not in chosen)
    return sorted([*chosen, *islice(others, count - len(chosen))])


def _logarithms(profiles: Sequence[Any]) -> NDArray[np.float64]:
    points: NDArray[np.float64] = np.nan_to_num(np.array(profiles, dtype=np.float64), nan=0.0)
    return np.log(np.clip(points, *_PROFILE_RANGE))


def _after_rejection(candidate: Candidate, gain: float) -> Candidate:
    if gain == -math.inf:
        return candidate.ended(State.DIVERGED, "following it led to outputs that are not finite")
    if is_rejected(gain):
        return candidate.ended(State.REJECTED, f"following it improved the metric by {gain:.3g}, which is not above 0")
    return candidate
