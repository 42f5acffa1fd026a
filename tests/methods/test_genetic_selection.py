"""Tournament selection against its definition and its distribution."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evomal.errors import InputError
from evomal.methods.genetic import penalised, tournament
from evomal.randomness import generator
from tests.strategies import seeds

DRAWS = 20_000


def played(scores, size, rng):
    """The same tournament, spelt out."""
    drawn = [int(entrant) for entrant in rng.integers(len(scores), size=size)]
    winner = drawn[0]
    for entrant in drawn[1:]:
        if scores[entrant] < scores[winner]:
            winner = entrant
    return winner


@given(st.lists(st.floats(0, 3).map(round) | st.just(math.inf), min_size=1, max_size=30), st.integers(1, 9), seeds())
def test_the_winner_is_that_of_the_tournament_spelt_out(scores, size, seed):
    assert tournament(scores, size=size, generator=generator(seed)) == played(scores, size, generator(seed))


def test_ranks_win_as_often_as_they_should():
    # The best of k draws out of n is the r-th (from 0) with probability ((n − r)^k − (n − r − 1)^k) / n^k.
    count, size = 25, 4
    rng = generator(0, "ranks")
    scores = [float(score) for score in rng.permutation(count)]
    won = Counter(int(scores[tournament(scores, size=size, generator=rng)]) for _ in range(DRAWS))
    expected = [((count - r) ** size - (count - r - 1) ** size) / count**size * DRAWS for r in range(count)]
    pooled = next(rank for rank in range(count) if expected[rank] < 20)
    observed = [won[rank] for rank in range(pooled)]
    assert (
        stats.chisquare([*observed, DRAWS - sum(observed)], [*expected[:pooled], DRAWS - sum(expected[:pooled])]).pvalue
        > 1e-3
    )


def test_without_any_fitness_everybody_wins_alike():
    rng = generator(0, "equal")
    won = Counter(tournament([math.inf] * 5, generator=rng) for _ in range(DRAWS))
    assert stats.chisquare([won[place] for place in range(5)]).pvalue > 1e-3


def test_nan_never_wins_against_a_number():
    scores = [math.nan] * 9 + [1e300]
    for attempt in range(300):
        rng = generator(attempt, "nan")
        drawn = generator(attempt, "nan").integers(10, size=4).tolist()
        assert (tournament(scores, generator=rng) == 9) == (9 in drawn)


def test_parsimony_adds_to_the_fitness_by_the_node():
    assert penalised([1.0, 2.0, math.inf], [3, 5, 7], parsimony=0.5) == [2.5, 4.5, math.inf]
    assert penalised([1.0, math.inf], [3, 5], parsimony=0.0) == [1.0, math.inf]


def test_nobody_to_choose_from():
    with pytest.raises(InputError, match="a tournament needs at least 1 score but got 0"):
        tournament([], generator=generator(0))
