"""Genetic search: valid proposals, operator shares, elites, seeds, and replay."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evomal.errors import InputError
from evomal.expression import Expression, crossover, mutate, ramped_half_and_half
from evomal.methods.genetic import GeneticSearch, tournament
from evomal.randomness import generator
from tests.expression.test_generate import same_distribution
from tests.methods.outcomes import REJECTED, evaluated, generation_of, make, outcomes, run, tell
from tests.strategies import losses, seeds


def search(**settings):
    return make(GeneticSearch, **settings)


@settings(max_examples=60)
@given(st.data(), seeds(), st.integers(1, 12), st.integers(1, 5), st.sampled_from([0.0, 0.01]))
def test_every_proposal_is_a_valid_loss_within_the_cap(data, seed, population, max_height, parsimony):
    strategy = search(
        seed=seed, population=population, generations=5, max_height=max_height, initial_height=(1, max_height),
        parsimony=parsimony,
    )  # fmt: skip
    while not strategy.finished:
        before = strategy.generation
        proposals = strategy.ask()
        assert len(proposals) == population
        assert all(proposal.expression.is_loss and proposal.expression.height <= max_height for proposal in proposals)
        assert all(0 <= parent < population for proposal in proposals for parent in proposal.parents)
        tell(strategy, data.draw(st.lists(outcomes(), min_size=population, max_size=population)))
        assert strategy.generation == before + 1
    assert strategy.generation == 5


def test_a_whole_search_stays_within_the_cap_and_reaches_it():
    # Larger trees are fitter here, so the cap is what holds them.
    strategy = search(max_height=6)
    heights = Counter()
    while not strategy.finished:
        proposals = strategy.ask()
        heights.update(proposal.expression.height for proposal in proposals)
        tell(strategy, [evaluated(-float(proposal.expression.size)) for proposal in proposals])
    assert max(heights) == 6
    assert heights[6] > 500


@given(seeds())
@settings(max_examples=10)
def test_the_same_seed_and_outcomes_give_the_same_proposals(seed):
    first, _ = run(search(seed=seed, population=10), 6)
    second, _ = run(search(seed=seed, population=10), 6)
    assert first == second


@pytest.mark.parametrize("told_before", [1, 4, 8])
def test_a_search_rebuilt_from_recorded_outcomes_continues_identically(told_before):
    whole, told = run(search(population=12), 9)
    rebuilt = search(population=12)
    for outcomes_of_generation in told[:told_before]:
        rebuilt.ask()
        rebuilt.tell(outcomes_of_generation)
    for generation in range(told_before, 9):
        assert rebuilt.ask() == whole[generation]
        rebuilt.tell(told[generation])


def test_seeds_and_outcomes_make_a_difference():
    first, _ = run(search(), 2)
    assert run(search(seed=1), 1)[0][0] != first[0]
    assert run(search(), 2, draw_seed=1)[0][0] == first[0]
    assert run(search(), 2, draw_seed=1)[0][1] != first[1]


def test_a_child_is_what_its_own_generator_makes_of_its_parents():
    strategy = search(elitism=0.1)
    proposals, told = run(strategy, 1)
    parents, scores = [p.expression for p in proposals[0]], [outcome.fitness for outcome in told[0]]
    for place, child in list(enumerate(strategy.ask()))[3:]:
        rng = generator(0, "variation", 1, place)
        operator, first = rng.random(), tournament(scores, generator=rng)
        if operator < 0.7:
            second = tournament(scores, generator=rng)
            expected = ("crossover", (first, second), crossover(parents[first], parents[second], generator=rng)[0])
        elif operator < 0.95:
            expected = ("mutation", (first,), mutate(parents[first], generator=rng))
        else:
            expected = ("copy", (first,), parents[first])
        assert (child.origin, child.parents, child.expression) == expected


@pytest.mark.parametrize(("crossed", "mutated"), [(0.7, 0.25), (0.3, 0.3), (0.2, 0.7)])
def test_operators_are_used_by_their_shares(crossed, mutated):
    proposals, _ = run(search(population=200, generations=21, crossover=crossed, mutation=mutated), 21)
    origins = Counter(proposal.origin for generation in proposals[1:] for proposal in generation)
    children = sum(origins.values()) - origins["elite"]
    assert children == 20 * 190
    expected = [children * share for share in (crossed, mutated, 1 - crossed - mutated)]
    observed = [origins[name] for name in ("crossover", "mutation", "copy")]
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize(
    ("shares", "origin"),
    [((1.0, 0.0), "crossover"), ((0.0, 1.0), "mutation"), ((0.0, 0.0), "copy")],
)
def test_one_operator_can_be_all(shares, origin):
    proposals, _ = run(search(crossover=shares[0], mutation=shares[1]), 3)
    assert {proposal.origin for proposal in proposals[2]} == {"elite", origin}


@pytest.mark.parametrize(
    ("population", "elitism", "count"),
    [(25, 0.05, 1), (50, 0.05, 3), (100, 0.05, 5), (10, 0.0, 1), (1, 0.05, 1), (4, 1.0, 4)],
)
def test_elitism_is_rounded_and_at_least_one(population, elitism, count):
    strategy = search(population=population, elitism=elitism)
    run(strategy, 1)
    assert [proposal.origin for proposal in strategy.ask()].count("elite") == count


def test_elites_are_the_best_with_the_outcomes_they_have():
    strategy = search(population=60, parsimony=100.0)
    before = strategy.ask()
    told = tell(strategy, generation_of(3, 0, 60))
    ranked = sorted(range(60), key=lambda index: told[index].rank)
    for elite, place in zip(strategy.ask()[:3], ranked, strict=False):
        assert (elite.origin, elite.parents) == ("elite", (place,))
        assert elite.genome == before[place].genome
        assert replace(elite, origin=told[place].origin, parents=(), generation=0, index=place) == told[place]


def test_of_equally_fit_elites_the_smaller_is_kept():
    small, large = Expression.parse("sub(y, f)"), Expression.parse("abs(square(sub(y, f)))")
    strategy = search(population=3, seeds=[large, small])
    strategy.ask()
    tell(strategy, [evaluated(0.5), evaluated(0.5), REJECTED])
    assert strategy.ask()[0].expression == small


def test_the_best_is_never_lost():
    strategy = search(generations=30)
    fitness_of = {}
    best = math.inf
    while not strategy.finished:
        told = []
        for place, proposal in enumerate(strategy.ask()):
            drawn = generator(0, "fitness", strategy.generation, place).normal()
            fitness_of.setdefault(proposal.genome, evaluated(drawn))
            told.append(proposal if proposal.has_fitness else fitness_of[proposal.genome])
        tell(strategy, told)
        assert min(outcome.fitness for outcome in told) <= best
        best = min(outcome.fitness for outcome in told)


def test_a_generation_without_any_fitness_still_has_children():
    strategy = search()
    for _ in range(4):
        proposals = strategy.ask()
        tell(strategy, [REJECTED] * len(proposals))
    assert len({proposal.genome for proposal in strategy.ask()}) > 10


def test_parsimony_prefers_smaller_trees():
    def mean_size(parsimony):
        strategy = search(population=100, parsimony=parsimony)
        for generation in range(8):
            proposals = strategy.ask()
            tell(strategy, generation_of(0, generation, len(proposals), failing=0.0))
        return sum(proposal.expression.size for proposal in strategy.ask()) / 100

    assert mean_size(1.0) < 0.6 * mean_size(0.0)


def test_selection_lowers_the_fitness():
    # Any search that selects must find small trees when size is the fitness; without selection it does not.
    def mean_size(tournament):
        strategy = search(tournament=tournament)
        for _ in range(10):
            tell(strategy, [evaluated(float(proposal.expression.size)) for proposal in strategy.ask()])
        return sum(proposal.expression.size for proposal in strategy.ask()) / 25

    assert mean_size(4) < 0.5 * mean_size(1)


@given(st.lists(losses(), max_size=8))
@settings(max_examples=30)
def test_seeds_come_first_and_leave_the_other_places_as_they_are(given_seeds):
    plain, seeded = search(population=5).ask(), search(population=5, seeds=given_seeds).ask()
    count = min(5, len(given_seeds))
    assert [proposal.expression for proposal in seeded[:count]] == given_seeds[:count]
    assert {proposal.origin for proposal in seeded[:count]} <= {"seeded"}
    assert seeded[count:] == plain[count:]
    assert {proposal.origin for proposal in plain} == {"initial"}


def test_initial_trees_are_distributed_as_ramped_trees():
    initial = [proposal.expression for proposal in search(population=2000).ask()]
    drawn = ramped_half_and_half(2000, generator=generator(1, "ramped"))
    # A repair may add a level to a tree that lacks y or f.
    assert {tree.height for tree in initial} == {2, 3, 4, 5}
    for measure in (lambda tree: tree.height, lambda tree: tree.size, lambda tree: tree.tokens[0]):
        assert same_distribution(map(measure, initial), map(measure, drawn)) > 1e-3


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            {"seeds": [Expression.parse("tanh(tanh(sub(y, f)))")], "max_height": 2, "initial_height": (1, 2)},
            "a seed's height must be at most max_height = 2 but got 3",
        ),
        (
            {"seeds": [Expression.parse("tanh(f)", fragment=True)]},
            "a loss must use both y and f, but tanh(f) does not use y",
        ),
    ],
)
def test_seeds_that_do_not_fit_are_refused_by_a_sentence(setting, sentence):
    with pytest.raises(InputError) as refused:
        search(**setting)
    assert str(refused.value) == sentence
