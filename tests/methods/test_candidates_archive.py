"""The archive: lookups by tree and by gradients, the best ever seen, the front."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from evomal.expression import Expression
from evomal.methods.candidates import Archive, State, genome_text, proposed
from tests.methods.outcomes import DIVERGED, REJECTED, evaluated, outcome, outcomes
from tests.strategies import losses

SMALL = Expression.parse("sub(y, f)")
OTHER_SMALL = Expression.parse("mul(y, f)")
MIDDLE = Expression.parse("square(sub(y, f))")
LARGE = Expression.parse("abs(square(sub(y, f)))")


def archive_of(*entries):
    archive = Archive()
    for index, (genome, result) in enumerate(entries):
        archive.add(replace(result, genome=genome_text(genome), index=index))
    return archive


def of(genome, **parts):
    return proposed(genome, "initial", **parts)


def test_an_empty_archive_knows_nothing():
    archive = Archive()
    assert (len(archive), archive.best, archive.front) == (0, None, ())
    assert archive.same_genome(of(SMALL)) is None
    assert archive.same_gradients(of(SMALL, fingerprint="a")) is None
    assert archive.same_gradients(of(SMALL)) is None


def test_the_same_tree_has_the_result_it_had():
    archive = archive_of((SMALL, evaluated(0.5, weights=(1.0, 2.0))), (MIDDLE, REJECTED))
    found = archive.same_genome(of(Expression.parse("sub(y,f)")))
    assert (found.state, found.fitness, found.weights) == (State.EVALUATED, 0.5, (1.0, 2.0))
    assert archive.same_genome(of(MIDDLE)).state is State.REJECTED
    assert archive.same_genome(of(Expression.parse("sub(f, y)"))) is None
    assert len(archive) == 2


def test_the_first_result_of_a_tree_stays():
    archive = archive_of((SMALL, evaluated(0.5)), (SMALL, of(SMALL).cached(evaluated(0.1))))
    assert archive.same_genome(of(SMALL)).fitness == 0.5
    assert archive.best.fitness == 0.5


def test_equal_gradients_give_the_earlier_candidate():
    archive = archive_of((SMALL, evaluated(0.5, fingerprint="a")), (MIDDLE, evaluated(0.4, fingerprint="a")))
    assert archive.same_gradients(of(LARGE, fingerprint="a")).fitness == 0.5
    assert archive.same_gradients(of(LARGE, fingerprint="b")) is None


def test_divergence_in_training_is_foretold_by_gradients_but_rejection_and_failure_are_not():
    archive = archive_of(
        (SMALL, outcome(State.DIVERGED, fingerprint="diverged")),
        (MIDDLE, outcome(State.REJECTED, fingerprint="rejected")),
        (LARGE, outcome(State.FAILED, fingerprint="failed")),
    )
    assert archive.same_gradients(of(SMALL, fingerprint="diverged")).fitness == math.inf
    assert archive.same_gradients(of(SMALL, fingerprint="rejected")) is None
    assert archive.same_gradients(of(SMALL, fingerprint="failed")) is None


def test_the_best_is_the_fittest_then_the_smallest_then_the_earliest():
    as_large_as_middle = Expression.parse("abs(sub(y, f))")
    archive = archive_of(
        (LARGE, evaluated(0.5)),
        (MIDDLE, evaluated(0.5)),
        (SMALL, evaluated(0.7)),
        (as_large_as_middle, evaluated(0.5)),
    )
    best = archive.best
    assert (best.expression, best.fitness, best.generation, best.index) == (MIDDLE, 0.5, 0, 1)


def test_the_earlier_is_the_earlier_in_the_search_whatever_the_order_of_recording():
    archive = Archive()
    archive.add(evaluated(0.5, genome=str(SMALL), generation=2, index=0))
    archive.add(evaluated(0.5, genome=str(OTHER_SMALL), generation=1, index=7))
    assert archive.best.expression == OTHER_SMALL
    assert archive.front[0].expression == OTHER_SMALL


def test_only_what_was_trained_can_be_the_best():
    archive = archive_of(
        (LARGE, evaluated(0.5, weights=(1.0,) * 4, fingerprint="a")),
        (SMALL, of(SMALL).equivalent(evaluated(0.5))),
        (MIDDLE, DIVERGED),
    )
    assert archive.best.expression == LARGE
    assert archive.best.weights == (1.0,) * 4
    assert [candidate.expression for candidate in archive.front] == [LARGE]
    assert archive_of((SMALL, DIVERGED), (MIDDLE, REJECTED)).best is None
    assert archive_of((SMALL, DIVERGED), (MIDDLE, REJECTED)).front == ()


def test_a_measurement_of_nan_never_wins():
    archive = archive_of((SMALL, of(SMALL).measured(math.nan)), (MIDDLE, evaluated(1e300)))
    assert archive.best.expression == MIDDLE
    assert archive.same_genome(of(SMALL)).fitness == math.inf


def test_vectors_are_archived_too():
    archive = archive_of(((0.1, 0.2), evaluated(0.5)), ((0.1, 0.3), evaluated(0.4)))
    assert archive.best.form == (0.1, 0.3)
    assert archive.best.expression is None
    assert archive.same_genome(of((0.1, 0.2))).fitness == 0.5
    assert [candidate.size for candidate in archive.front] == [2]


@given(st.lists(st.tuples(losses(6), outcomes() | st.integers(-3, 3).map(float).map(evaluated)), max_size=30))
def test_best_and_front_agree_with_their_definitions(entries):
    archive = archive_of(*entries)
    trained = [
        (result.fitness, tree.size, index)
        for index, (tree, result) in enumerate(entries)
        if result.state is State.EVALUATED
    ]
    best = archive.best
    assert (best and (best.fitness, best.size, best.index)) == min(trained, default=None)
    undominated = {
        (size, fitness)
        for fitness, size, _ in trained
        if not any(f <= fitness and s <= size and (f, s) != (fitness, size) for f, s, _ in trained)
    }
    assert [(candidate.size, candidate.fitness) for candidate in archive.front] == sorted(undominated)
    assert all(math.isfinite(candidate.fitness) for candidate in archive.front)
    assert len(archive) == len({tree for tree, _ in entries})
