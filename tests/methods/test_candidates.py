"""Outcomes: which fitness a state may have, and that NaN is none."""

import math
import pickle

import pytest

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.methods.candidates import State, genome_from, genome_text, proposed
from tests.methods.outcomes import DIVERGED, evaluated, outcome

WITHOUT_FITNESS = [State.INADMISSIBLE, State.DEAD, State.REJECTED, State.DIVERGED, State.FAILED]


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("fitness", [math.nan, -math.inf])
def test_a_fitness_that_would_spoil_comparisons_cannot_be_made(state, fitness):
    with pytest.raises(InputError, match=f"finite number, or inf where there is none, but got {fitness}"):
        outcome(state, fitness)


@pytest.mark.parametrize("state", WITHOUT_FITNESS)
def test_a_candidate_that_was_not_trained_has_no_fitness(state):
    assert not outcome(state).has_fitness
    with pytest.raises(InputError, match=f"fitness must be inf for a candidate that is {state} but got 0.5"):
        outcome(state, 0.5)


@pytest.mark.parametrize("state", [State.CACHED, State.EQUIVALENT])
def test_a_fitness_taken_over_may_be_none(state):
    assert outcome(state, 0.5).has_fitness
    assert not outcome(state).has_fitness


def test_evaluated_means_that_there_is_a_fitness():
    with pytest.raises(InputError, match="fitness must be finite for a candidate that is evaluated but got inf"):
        evaluated(math.inf)


@pytest.mark.parametrize("fitness", [math.nan, math.inf, -math.inf])
def test_a_measurement_that_is_not_finite_is_divergence(fitness):
    given = proposed("ce", "given", weights=(1.0,), fingerprint="a", seconds={"training": 2.0})
    found = given.measured(fitness)
    assert (found.state, found.fitness) == (State.DIVERGED, math.inf)
    assert found.sentence == f"the fitness was {fitness}, which counts as divergence"
    assert (found.weights, found.fingerprint, found.seconds) == ((1.0,), "a", {"training": 2.0})


def test_a_finite_measurement_is_the_fitness():
    found = proposed("ce", "given", weights=(1.0,)).measured(0.25)
    assert (found.state, found.fitness, found.weights) == (State.EVALUATED, 0.25, (1.0,))


def test_seconds_take_no_part_in_equality():
    quick, slow = evaluated(0.5, seconds={"training": 1.0}), evaluated(0.5, seconds={"training": 9.0})
    assert quick == slow
    assert hash(quick) == hash(slow)
    assert pickle.loads(pickle.dumps(slow)).seconds == {"training": 9.0}


def test_the_same_genome_has_the_result_of_the_earlier_one():
    first = evaluated(0.5, weights=(1.0, 2.0), fingerprint="a", seconds={"training": 1.0})
    again = proposed(first.form, "copy", (3,)).cached(first)
    assert again == outcome(
        State.CACHED, 0.5, "seen before: trained", origin="copy", parents=(3,), weights=(1.0, 2.0), fingerprint="a"
    )
    assert again.seconds == {}
    assert again.cached(again) == again
    assert again.cached(DIVERGED).fitness == math.inf


def test_a_twin_has_the_fitness_and_its_own_weights():
    first = evaluated(0.5, weights=(1.0, 2.0), fingerprint="a")
    twin = proposed("abs(sub(y, f))", "mutation", weights=(3.0,)).equivalent(first)
    assert (twin.state, twin.fitness, twin.weights, twin.fingerprint) == (State.EQUIVALENT, 0.5, (3.0,), "a")
    assert twin.sentence == "same gradients as an earlier candidate: trained"


def test_a_candidate_says_what_it_is_made_of():
    tree, vector = proposed(Expression.parse("sub(y, f)"), "initial"), proposed((1.0, 2.0), "sampled")
    assert (tree.genome, tree.expression.size, tree.size) == ("sub(y, f)", 3, 3)
    assert (vector.genome, vector.form, vector.size, vector.expression) == ("[1.0,2.0]", (1.0, 2.0), 2, None)
    with pytest.raises(InputError, match=r"the genome '\[1.0,2.0\]' is not an expression"):
        _ = vector.tree
    assert (proposed("network", "given").size, proposed("abs(", "given").size) == (1, None)


def test_genomes_come_back_from_their_text():
    for genome in (Expression.parse("abs(log(mul(y, f)))"), (0.1, -0.0, 5e-324), "network"):
        assert genome_from(genome_text(genome)) == genome
    assert genome_text((0.1, -0.0)) == "[0.1,-0.0]"
    for text in ("abs(", "[1, 2]", "[NaN]", "[1.0", "[" * 100_000, '{"a": 1}('):
        with pytest.raises(InputError):
            genome_from(text)
