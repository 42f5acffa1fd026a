"""Outcomes to tell a strategy, and searches driven by them."""

import math

from hypothesis import strategies as st

from evomal.methods.outcomes import Outcome, State
from evomal.randomness import generator

DIVERGED = Outcome(State.DIVERGED, math.inf, "diverged")
REJECTED = Outcome(State.REJECTED, math.inf, "rejected")


def evaluated(fitness: float, **parts) -> Outcome:
    return Outcome(State.EVALUATED, fitness, "trained", **parts)


def outcomes() -> st.SearchStrategy[Outcome]:
    """Any outcome a strategy can be told."""
    finite = st.floats(-1e300, 1e300)
    without = st.sampled_from([State.DEAD, State.REJECTED, State.DIVERGED, State.FAILED, State.CACHED])
    return st.one_of(
        finite.map(evaluated),
        finite.map(lambda fitness: Outcome(State.CACHED, fitness, "seen before")),
        finite.map(lambda fitness: Outcome(State.EQUIVALENT, fitness, "same gradients")),
        without.map(lambda state: Outcome(state, math.inf, str(state))),
    )


def generation_of(draw_seed: int, generation: int, count: int, *, failing: float = 0.4) -> list[Outcome]:
    """So many outcomes, a share of them without fitness, from numbers alone."""
    rng = generator(draw_seed, "outcomes", generation)
    return [REJECTED if rng.random() < failing else evaluated(rng.normal()) for _ in range(count)]


def run(strategy, generations: int, *, draw_seed: int = 0):
    """Proposals and told outcomes of so many generations."""
    proposals, told = [], []
    for generation in range(generations):
        proposals.append(strategy.ask())
        told.append(generation_of(draw_seed, generation, len(proposals[-1])))
        strategy.tell(told[-1])
    return proposals, told
