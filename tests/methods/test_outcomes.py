"""Outcomes: which fitness a state may have, and that NaN is none."""

import math
import pickle

import pytest

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.methods.outcomes import Outcome, State
from evomal.methods.proposals import Proposal
from tests.methods.told import DIVERGED, evaluated

WITHOUT_FITNESS = [State.DEAD, State.REJECTED, State.DIVERGED, State.FAILED]


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("fitness", [math.nan, -math.inf])
def test_a_fitness_that_would_spoil_comparisons_cannot_be_made(state, fitness):
    with pytest.raises(InputError, match=f"finite number, or inf where there is none, but got {fitness}"):
        Outcome(state, fitness, "")


@pytest.mark.parametrize("state", WITHOUT_FITNESS)
def test_a_candidate_that_was_not_trained_has_no_fitness(state):
    assert not Outcome(state, math.inf, "").has_fitness
    with pytest.raises(InputError, match=f"fitness must be inf for a candidate that is {state} but got 0.5"):
        Outcome(state, 0.5, "")


@pytest.mark.parametrize("state", [State.CACHED, State.EQUIVALENT])
def test_a_fitness_taken_over_may_be_none(state):
    assert Outcome(state, 0.5, "").has_fitness
    assert not Outcome(state, math.inf, "").has_fitness


def test_evaluated_means_that_there_is_a_fitness():
    with pytest.raises(InputError, match="fitness must be finite for a candidate that is evaluated but got inf"):
        evaluated(math.inf)


@pytest.mark.parametrize("fitness", [math.nan, math.inf, -math.inf])
def test_a_measurement_that_is_not_finite_is_divergence(fitness):
    outcome = Outcome.measured(fitness, "trained", weights=(1.0,), fingerprint="a", seconds={"training": 2.0})
    assert (outcome.state, outcome.fitness) == (State.DIVERGED, math.inf)
    assert outcome.sentence == f"the fitness was {fitness}, which counts as divergence"
    assert (outcome.weights, outcome.fingerprint, outcome.seconds) == ((1.0,), "a", {"training": 2.0})


def test_a_finite_measurement_is_the_fitness():
    assert Outcome.measured(0.25, "trained", weights=(1.0,)) == evaluated(0.25, weights=(1.0,))


def test_seconds_take_no_part_in_equality():
    quick, slow = evaluated(0.5, seconds={"training": 1.0}), evaluated(0.5, seconds={"training": 9.0})
    assert quick == slow
    assert hash(quick) == hash(slow)
    assert pickle.loads(pickle.dumps(slow)).seconds == {"training": 9.0}


def test_seen_again_keeps_everything_but_the_state_and_the_time():
    first = evaluated(0.5, weights=(1.0, 2.0), fingerprint="a", seconds={"training": 1.0})
    again = first.seen_again()
    assert again == Outcome(State.CACHED, 0.5, "seen before: trained", (1.0, 2.0), "a")
    assert again.seconds == {}
    assert again.seen_again() == again
    assert DIVERGED.seen_again().fitness == math.inf


def test_a_twin_has_the_fitness_and_its_own_weights():
    first = evaluated(0.5, weights=(1.0, 2.0), fingerprint="a")
    twin = first.of_twin((3.0,))
    assert (twin.state, twin.fitness, twin.weights, twin.fingerprint) == (State.EQUIVALENT, 0.5, (3.0,), "a")
    assert twin.sentence == "same gradients as an earlier candidate: trained"


def test_a_proposal_says_what_it_is_made_of():
    tree, vector = Proposal(Expression.parse("sub(y, f)"), "initial"), Proposal((1.0, 2.0), "sampled")
    assert tree.expression.size == 3
    assert vector.numbers == (1.0, 2.0)
    with pytest.raises(InputError, match="a proposal of 2 numbers has no expression"):
        _ = vector.expression
    with pytest.raises(InputError, match="a proposal of an expression has no numbers"):
        _ = tree.numbers
