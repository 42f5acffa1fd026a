"""Results to tell a strategy, and strategies that are driven by them."""

import math
from dataclasses import replace

from hypothesis import strategies as st

from evomal.methods.candidates import Candidate, State
from evomal.methods.evaluation import SearchContext
from evomal.randomness import generator
from evomal.settings import SearchSettings


def outcome(state: State, fitness: float = math.inf, sentence: str = "", **parts) -> Candidate:
    """Some candidate in that state."""
    parts = {"genome": "sub(y, f)", "origin": "given", **parts}
    return Candidate(state=state, fitness=fitness, sentence=sentence or str(state), **parts)


def evaluated(fitness: float, **parts) -> Candidate:
    return outcome(State.EVALUATED, fitness, "trained", **parts)


DIVERGED = outcome(State.DIVERGED)
REJECTED = outcome(State.REJECTED)


def outcomes() -> st.SearchStrategy[Candidate]:
    """Any result that a strategy can be told."""
    finite = st.floats(-1e300, 1e300)
    without = st.sampled_from(
        [State.INADMISSIBLE, State.DEAD, State.REJECTED, State.DIVERGED, State.FAILED, State.CACHED]
    )
    return st.one_of(
        finite.map(evaluated),
        finite.map(lambda fitness: outcome(State.CACHED, fitness)),
        finite.map(lambda fitness: outcome(State.EQUIVALENT, fitness)),
        without.map(outcome),
    )


def generation_of(draw_seed: int, generation: int, count: int, *, failing: float = 0.4) -> list[Candidate]:
    """So many results, a share of them without fitness, from numbers alone."""
    rng = generator(draw_seed, "outcomes", generation)
    return [REJECTED if rng.random() < failing else evaluated(rng.normal()) for _ in range(count)]


def make(strategy, *, seed: int = 0, seeds=(), **settings):
    """A strategy with these settings."""
    return strategy(SearchContext(SearchSettings(**settings), seed, "regression"), seeds)


def tell(strategy, results) -> list[Candidate]:
    """Give the candidates that were asked last these results; what the strategy was told."""
    told = [
        replace(
            asked, state=result.state, fitness=result.fitness, sentence=result.sentence, weights=result.weights,
            fingerprint=result.fingerprint, seconds=result.seconds,
        )
        for asked, result in zip(strategy._asked, results, strict=True)
    ]  # fmt: skip
    strategy.tell(told)
    return told


def run(strategy, generations: int, *, draw_seed: int = 0):
    """What a strategy proposed and what it was told in so many generations."""
    proposals, told = [], []
    for generation in range(generations):
        proposals.append(strategy.ask())
        told.append(tell(strategy, generation_of(draw_seed, generation, len(proposals[-1]))))
    return proposals, told
