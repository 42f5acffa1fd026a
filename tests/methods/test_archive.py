"""The archive: lookups by tree and by gradients, the best ever seen, the front."""

import math

from hypothesis import given
from hypothesis import strategies as st

from evomal.expression import Expression
from evomal.methods.archive import Archive
from evomal.methods.outcomes import Outcome, State
from tests.methods.told import DIVERGED, REJECTED, evaluated, outcomes
from tests.strategies import losses

SMALL = Expression.parse("sub(y, f)")
OTHER_SMALL = Expression.parse("mul(y, f)")
MIDDLE = Expression.parse("square(sub(y, f))")
LARGE = Expression.parse("abs(square(sub(y, f)))")


def archive_of(*entries):
    archive = Archive()
    for index, (genome, outcome) in enumerate(entries):
        archive.record(genome, outcome, generation=0, index=index)
    return archive


def test_an_empty_archive_knows_nothing():
    archive = Archive()
    assert (len(archive), archive.best, archive.front) == (0, None, ())
    assert archive.seen(SMALL) is None
    assert archive.twin("a") is None


def test_the_same_tree_has_the_outcome_it_had():
    archive = archive_of((SMALL, evaluated(0.5, weights=(1.0, 2.0))), (MIDDLE, REJECTED))
    assert archive.seen(Expression.parse("sub(y,f)")) == Outcome(State.CACHED, 0.5, "seen before: trained", (1.0, 2.0))
    assert archive.seen(MIDDLE) == Outcome(State.CACHED, math.inf, "seen before: rejected")
    assert archive.seen(Expression.parse("sub(f, y)")) is None
    assert len(archive) == 2


def test_the_first_outcome_of_a_tree_stays():
    archive = archive_of((SMALL, evaluated(0.5)), (SMALL, evaluated(0.1).seen_again()))
    assert archive.seen(SMALL).fitness == 0.5
    assert archive.best.fitness == 0.5


def test_equal_gradients_give_the_fitness_of_the_earlier_candidate():
    archive = archive_of((SMALL, evaluated(0.5, fingerprint="a")), (MIDDLE, evaluated(0.4, fingerprint="a")))
    twin = archive.twin("a", weights=(1.0, 2.0, 3.0))
    assert (twin.state, twin.fitness, twin.weights) == (State.EQUIVALENT, 0.5, (1.0, 2.0, 3.0))
    assert archive.twin("b") is None


def test_divergence_in_training_is_foretold_by_gradients_but_rejection_and_failure_are_not():
    archive = archive_of(
        (SMALL, Outcome(State.DIVERGED, math.inf, "diverged", fingerprint="diverged")),
        (MIDDLE, Outcome(State.REJECTED, math.inf, "rejected", fingerprint="rejected")),
        (LARGE, Outcome(State.FAILED, math.inf, "out of memory", fingerprint="failed")),
    )
    assert archive.twin("diverged").fitness == math.inf
    assert archive.twin("rejected") is None
    assert archive.twin("failed") is None


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
    archive.record(SMALL, evaluated(0.5), generation=2, index=0)
    archive.record(OTHER_SMALL, evaluated(0.5), generation=1, index=7)
    assert archive.best.expression == OTHER_SMALL
    assert archive.front[0].expression == OTHER_SMALL


def test_only_what_was_trained_can_be_the_best():
    archive = archive_of(
        (LARGE, evaluated(0.5, weights=(1.0,) * 4, fingerprint="a")),
        (SMALL, evaluated(0.5).of_twin()),
        (MIDDLE, DIVERGED),
    )
    assert archive.best.expression == LARGE
    assert archive.best.weights == (1.0,) * 4
    assert [candidate.expression for candidate in archive.front] == [LARGE]
    assert archive_of((SMALL, DIVERGED), (MIDDLE, REJECTED)).best is None
    assert archive_of((SMALL, DIVERGED), (MIDDLE, REJECTED)).front == ()


def test_a_measurement_of_nan_never_wins():
    archive = archive_of((SMALL, Outcome.measured(math.nan, "")), (MIDDLE, evaluated(1e300)))
    assert archive.best.expression == MIDDLE
    assert archive.seen(SMALL).fitness == math.inf


def test_vectors_are_archived_too():
    archive = archive_of(((0.1, 0.2), evaluated(0.5)), ((0.1, 0.3), evaluated(0.4)))
    assert archive.best.genome == (0.1, 0.3)
    assert archive.best.expression is None
    assert archive.seen((0.1, 0.2)).fitness == 0.5
    assert [candidate.size for candidate in archive.front] == [2]


@given(st.lists(st.tuples(losses(6), outcomes() | st.integers(-3, 3).map(float).map(evaluated)), max_size=30))
def test_best_and_front_agree_with_their_definitions(entries):
    archive = archive_of(*entries)
    trained = [
        (outcome.fitness, tree.size, index)
        for index, (tree, outcome) in enumerate(entries)
        if outcome.state is State.EVALUATED
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
