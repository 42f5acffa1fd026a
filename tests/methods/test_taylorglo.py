"""CMA-ES: it minimises, takes failures as the worst, and repeats itself."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evomal.errors import InputError
from evomal.methods.taylorglo import CmaSearch, finite_values
from tests.methods.outcomes import DIVERGED, REJECTED, evaluated, make, run, tell


def minimised(objective, **settings):
    """The best value of each generation."""
    strategy = make(CmaSearch, **settings)
    best = []
    while not strategy.finished:
        told = [objective(np.array(proposal.form)) for proposal in strategy.ask()]
        tell(strategy, told)
        best.append(min(outcome.fitness for outcome in told))
    return best


def sphere(vector):
    return evaluated(float(np.sum((vector - 1) ** 2)))


@pytest.mark.parametrize("seed", range(5))
def test_a_sphere_is_minimised(seed):
    best = minimised(sphere, seed=seed)
    assert best[0] > 1
    assert best[-1] < 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_a_sphere_of_which_half_diverges_is_minimised(seed):
    best = minimised(lambda vector: sphere(vector) if vector[0] > 0.5 else DIVERGED, seed=seed)
    assert best[-1] < 1e-2


def test_the_first_generation_has_the_mean_and_spread_of_the_specification():
    vectors = np.array(
        [make(CmaSearch, seed=seed, population=25).ask()[place].form for seed in range(40) for place in (0, 9, 24)]
    )
    assert vectors.shape == (120, 8)
    assert abs(vectors.mean()) < 4 * 1.2 / math.sqrt(vectors.size)
    assert abs(vectors.std() - 1.2) < 4 * 1.2 / math.sqrt(2 * vectors.size)


def test_numbers_are_plain_and_the_origin_is_said():
    proposal = make(CmaSearch, seed=0).ask()[0]
    assert (proposal.origin, proposal.parents) == ("sampled", ())
    assert [type(number) for number in proposal.form] == [float] * 8


def test_the_same_seed_gives_the_same_search():
    assert minimised(sphere, seed=2) == minimised(sphere, seed=2)
    assert minimised(sphere, seed=2) != minimised(sphere, seed=3)


def test_a_failure_is_only_a_rank():
    # However it failed, what is told and so what comes next is the same.
    def second_generation(failure):
        strategy = make(CmaSearch, seed=0, population=6)
        strategy.ask()
        tell(strategy, [evaluated(float(place)) for place in range(5)] + [failure])
        return strategy.ask()

    assert second_generation(DIVERGED) == second_generation(REJECTED) == second_generation(evaluated(1e9))
    assert second_generation(DIVERGED) != second_generation(evaluated(-1.0))


def test_generations_without_any_fitness_are_survived():
    strategy = make(CmaSearch, seed=0)
    while not strategy.finished:
        proposals = strategy.ask()
        assert np.isfinite([proposal.form for proposal in proposals]).all()
        tell(strategy, [DIVERGED] * 25)


@given(st.lists(st.floats(allow_nan=False).filter(lambda fitness: fitness != -math.inf), min_size=1))
def test_values_are_told_in_the_order_of_fitness(fitnesses):
    values = finite_values(fitnesses)
    finite = [fitness for fitness in fitnesses if math.isfinite(fitness)]
    behind = {value for value, fitness in zip(values, fitnesses, strict=True) if fitness == math.inf}
    assert [value for value, fitness in zip(values, fitnesses, strict=True) if math.isfinite(fitness)] == finite
    assert len(behind) <= 1
    assert all(value > max(finite) for value in behind if finite)


def test_failures_come_one_behind_the_worst():
    assert finite_values([0.5, math.inf, -2.0]) == [0.5, 1.5, -2.0]
    assert finite_values([-5.0, math.inf]) == [-5.0, -4.0]
    assert finite_values([math.inf, math.inf]) == [1.0, 1.0]
    assert finite_values([1e300, math.inf])[1] > 1e300
    assert finite_values([sys.float_info.max / 2, math.inf])[1] < math.inf


@pytest.mark.parametrize("population", [4, 5, 25, 60])
def test_any_population_from_four_on_works(population):
    run(make(CmaSearch, seed=0, population=population, generations=5), 5)


def test_a_population_of_fewer_than_four_is_refused():
    with pytest.raises(InputError, match="population must be at least 4 but got 3"):
        make(CmaSearch, seed=0, population=3)
