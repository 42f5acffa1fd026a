"""Island search: valid proposals, turns, survivors, migration, age, seeds, inherited weights, and replay."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evomal.expression import OPERATORS, Expression
from evomal.methods.candidates import State
from evomal.methods.genetic import EVOMAL, GP_LFL, GeneticSearch
from evomal.methods.islands import IslandSearch
from evomal.randomness import generator
from tests.methods.outcomes import REJECTED, evaluated, make, outcome, outcomes, run, tell
from tests.strategies import seeds


def search(**options):
    return make(IslandSearch, **{"islands": 4, **options})


def new_of(proposals):
    return [proposal for proposal in proposals if not proposal.is_carried]


def islands_of(strategy):
    """The island of every candidate of the generation that was asked last."""
    return [member.island for member in strategy._proposals]


def told_by(strategy, rate):
    """One generation in which new candidates get `evaluated(...)` of a rate, and others keep what they have."""
    asked = strategy.ask()
    return tell(strategy, [proposal if proposal.is_carried else rate(proposal) for proposal in asked])


@settings(max_examples=40)
@given(st.data(), seeds(), st.integers(2, 4), st.integers(4, 12), st.integers(1, 5), st.sampled_from([1.0, 2.5]))
def test_every_proposal_is_a_valid_loss_within_the_cap(data, seed, islands, population, cap, surplus):
    strategy = search(
        seed=seed, islands=islands, population=population, generations=4, max_height=cap, initial_height=(1, cap),
        surplus=surplus, migration=2, max_age=1,
    )  # fmt: skip
    before = 0
    while not strategy.finished:
        proposals = strategy.ask()
        assert len(new_of(proposals)) == (population if before == 0 else round(surplus * population))
        assert len([proposal for proposal in proposals if proposal.origin == "elite"]) <= population
        for proposal in proposals:
            assert proposal.tree.is_loss
            assert proposal.tree.height <= cap
            assert len(proposal.weights) in (0, proposal.tree.edges)
            assert all(0 <= parent < before for parent in proposal.parents)
        before = len(proposals)
        tell(strategy, data.draw(st.lists(outcomes(), min_size=before, max_size=before)))


@pytest.mark.parametrize("told_before", [1, 4, 8])
def test_a_search_rebuilt_from_recorded_outcomes_continues_identically(told_before):
    options = {"population": 12, "migration": 3, "max_age": 2, "surplus": 1.5}
    whole, told = run(search(**options), 9)
    rebuilt = search(**options)
    for generation in range(9):
        assert rebuilt.ask() == whole[generation]
        rebuilt.tell(told[generation])
    # Candidates as a record holds them, without the objects that were asked.
    rebuilt = search(**options)
    for outcomes_of_generation in told[:told_before]:
        rebuilt.ask()
        rebuilt.tell([replace(row) for row in outcomes_of_generation])
    assert rebuilt.ask() == whole[told_before]


def test_seeds_and_outcomes_make_a_difference():
    first, _ = run(search(), 2)
    assert run(search(seed=1), 1)[0][0] != first[0]
    assert run(search(), 2, draw_seed=1)[0][0] == first[0]
    assert run(search(), 2, draw_seed=1)[0][1] != first[1]


@pytest.mark.parametrize("surplus", [1.0, 3.0])
def test_islands_take_turns(surplus):
    strategy = search(population=10, first_trees=30, surplus=surplus)
    strategy.ask()
    assert islands_of(strategy) == [0, 1, 2, 3] * 7 + [0, 1]
    tell(strategy, [evaluated(1.0)] * 30)
    proposals = strategy.ask()
    new = [island for island, one in zip(islands_of(strategy), proposals, strict=True) if not one.is_carried]
    assert new == ([0, 1, 2, 3] * 8)[: round(surplus * 10)]


def test_children_have_their_parents_on_their_own_island():
    strategy = search(population=20, migration=100)
    for generation in range(6):
        before = islands_of(strategy)
        proposals = strategy.ask()
        for island, proposal in zip(islands_of(strategy), proposals, strict=True):
            assert {before[parent] for parent in proposal.parents} <= {island}
        tell(strategy, [evaluated(generator(generation, proposal.genome).random()) for proposal in proposals])


def test_every_island_keeps_its_best_with_the_state_they_have():
    strategy = search(population=10, migration=100)
    told, islands = [], []
    for _ in range(5):
        asked = strategy.ask()
        elites = [one for one in asked if one.origin == "elite"]
        for island, places in enumerate([3, 3, 2, 2]):
            ranked = sorted(one.rank for one, home in zip(told, islands, strict=True) if home == island)
            kept = [told[elite.parents[0]].rank for elite in elites if islands[elite.parents[0]] == island]
            assert sorted(kept) == ranked[:places]
        for elite in elites:
            before = told[elite.parents[0]]
            like_before = {"origin": before.origin, "parents": before.parents, "generation": before.generation}
            assert replace(elite, index=before.index, **like_before) == before
        islands = islands_of(strategy)
        told = tell(strategy, [one if one.is_carried else with_own_weights(one) for one in asked])


def with_own_weights(one):
    """A result unlike any other."""
    fitness = generator(0, one.place).random()
    return evaluated(fitness, weights=(1.0 + fitness,) * one.tree.edges)


def test_of_equal_gradients_or_equal_losses_one_is_kept():
    strategy = search(islands=2, population=8)
    asked = strategy.ask()
    tell(strategy, [evaluated(0.1 * index, fingerprint=f"{index // 4}") for index in range(len(asked))])
    # Islands 0 and 1 have four candidates each, of two fingerprints.
    assert [one.fitness for one in strategy.ask() if one.origin == "elite"] == pytest.approx([0.0, 0.4, 0.1, 0.5])
    strategy = search(islands=2, population=4, seeds=[Expression.parse("sub(y, f)")] * 4)
    strategy.ask()
    tell(strategy, [evaluated(0.1), evaluated(0.2), evaluated(0.3), evaluated(0.4, weights=(1.0, 2.0))])
    assert [one.fitness for one in strategy.ask() if one.origin == "elite"] == [0.1, 0.4]


def ages_of(strategy):
    """Age and fitness of the members of the only two islands after a generation."""
    return [(member.age, member.candidate.fitness) for member in strategy._members]


def test_old_members_make_room_for_younger_ones_but_the_best_stays():
    strategy = search(islands=2, population=4, max_age=3, migration=100, generations=20)
    told_by(strategy, lambda one: evaluated(0.25 * one.index))  # 0, 0.5 and 0.25, 0.75
    for generation in range(1, 3):
        told_by(strategy, lambda one: evaluated(9.0 + one.index))
        assert ages_of(strategy) == [(generation, fitness) for fitness in (0.0, 0.5, 0.25, 0.75)]
    told_by(strategy, lambda one: evaluated(9.0 + one.index))
    (best, second), (_, fourth) = ages_of(strategy)[:2], ages_of(strategy)[2:]
    assert best == (3, 0.0)
    assert second[0] == fourth[0] == 0
    assert second[1] > 9
    assert fourth[1] > 9


def test_old_members_stay_while_there_is_nobody_else():
    strategy = search(islands=2, population=4, max_age=2, migration=100, generations=20)
    told_by(strategy, lambda one: evaluated(0.25 * one.index))
    for _ in range(6):
        told_by(strategy, lambda _: REJECTED)
    assert ages_of(strategy) == [(6, 0.0), (6, 0.5), (6, 0.25), (6, 0.75)]


def test_a_loss_that_is_found_again_does_not_become_young():
    strategy = search(islands=2, population=4, max_age=100, migration=100)
    told_by(strategy, lambda one: evaluated(1.0, fingerprint=str(one.index)))
    told_by(strategy, lambda one: outcome(State.EQUIVALENT, 1.0, fingerprint="0"))
    first = next(member for member in strategy._members if member.candidate.fingerprint == "0")
    assert first.age == 1


def test_a_smaller_twin_does_not_replace_the_loss_that_was_trained():
    large = Expression.parse("abs(abs(square(sub(y, f))))")
    strategy = search(islands=2, population=4, seeds=[large, Expression.parse("square(sub(y, f))")])
    strategy.ask()
    twin = outcome(State.EQUIVALENT, 1.0, fingerprint="same")
    tell(strategy, [evaluated(1.0, fingerprint="same"), twin, REJECTED, REJECTED])
    assert [one.tree for one in strategy.ask() if one.origin == "elite"] == [large]


def test_the_best_of_every_island_goes_to_the_next():
    strategy = search(islands=3, population=9, migration=3, generations=20)
    moved = []
    for generation in range(8):
        best = [
            min((m for m in strategy._members if m.island == i), key=lambda m: m.candidate.rank, default=None)
            for i in range(3)
        ]
        proposals = strategy.ask()
        migrants = [
            (island, proposal) for island, proposal in zip(islands_of(strategy), proposals, strict=True)
            if proposal.origin == "migrant"
        ]  # fmt: skip
        if migrants:
            moved.append(generation)
            assert sorted((island, migrant.genome) for island, migrant in migrants) == sorted(
                ((member.island + 1) % 3, member.candidate.genome) for member in best
            )
            assert all(migrant.has_fitness and migrant.state is State.EVALUATED for _, migrant in migrants)
        tell(strategy, [one if one.is_carried else evaluated(generator(0, one.genome).random()) for one in proposals])
    assert moved == [3, 6]


def test_seeds_are_on_the_first_island_and_the_others_get_their_turns():
    given_seeds = [Expression.parse(text) for text in ("sub(y, f)", "abs(sub(y, f))", "square(sub(y, f))")]
    strategy = search(population=8, seeds=given_seeds, first_trees=40)
    proposals = strategy.ask()
    assert [proposal.tree for proposal in proposals[:3]] == given_seeds
    assert {proposal.origin for proposal in proposals[:3]} == {"seeded"}
    assert {proposal.origin for proposal in proposals[3:]} == {"initial"}
    assert islands_of(strategy)[:15] == [0, 0, 0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 0, 1, 2]
    assert len(proposals) == 40


def test_an_island_without_any_fitness_begins_again():
    strategy = search(population=8)
    told_by(strategy, lambda one: REJECTED if one.index % 4 == 2 else evaluated(1.0 + one.index))
    proposals = strategy.ask()
    for island, proposal in zip(islands_of(strategy), proposals, strict=True):
        assert (proposal.origin == "initial") == (island == 2)


def test_children_inherit_the_weights_of_their_parents():
    strategy = search(population=40)
    told_by(strategy, lambda one: evaluated(1.0 + one.index, weights=tuple(range(2, 2 + one.tree.edges))))
    children = new_of(strategy.ask())
    assert all(len(child.weights) == child.tree.edges for child in children)
    origins = Counter(child.origin for child in children)
    assert origins["crossover"] > 5
    assert len(origins) > 4
    inherited = [set(child.weights) - {1.0} for child in children]
    assert sum(map(bool, inherited)) > 30


def test_nothing_is_proposed_twice():
    strategy = search(population=20, surplus=2.0, first_trees=200)
    seen = Counter()
    for _ in range(8):
        asked = strategy.ask()
        seen.update((one.genome, one.weights) for one in new_of(asked))
        tell(
            strategy,
            [
                one if one.is_carried else evaluated(generator(0, one.genome).random(), weights=one.weights)
                for one in asked
            ],
        )
    assert sum(count - 1 for count in seen.values()) < 0.01 * sum(seen.values())


@pytest.mark.parametrize(("state", "again"), [(State.FAILED, True), (State.REJECTED, False)])
def test_what_was_not_tried_may_be_proposed_again(state, again):
    # Trees of height one: a few draws find one that was not proposed before if there is any.
    strategy = search(islands=2, population=8, max_height=1, initial_height=(1, 1))
    first = {one.genome for one in told_by(strategy, lambda _: outcome(state))}
    assert len(first) == 8
    second = {one.genome for one in strategy.ask()}
    assert (len(first & second) >= 4) == again


def test_the_best_is_never_lost():
    strategy, best = search(generations=30, max_age=2), math.inf
    while not strategy.finished:
        told = told_by(strategy, lambda one: evaluated(generator(0, one.genome, one.place).normal()))
        assert min(one.fitness for one in told) <= best
        best = min(one.fitness for one in told)


def test_a_generation_without_any_fitness_is_followed_by_another():
    strategy = search()
    for _ in range(4):
        tell(strategy, [REJECTED] * len(strategy.ask()))
    assert {proposal.origin for proposal in strategy.ask()} == {"initial"}


@pytest.mark.parametrize("method", [EVOMAL, GP_LFL])
def test_the_number_of_islands_chooses_the_search(method):
    assert isinstance(make(method.make_strategy, islands=2), IslandSearch)
    assert isinstance(make(method.make_strategy), GeneticSearch)


def _gradient(tree, weights):
    """The derivative by f at points of a grid, of norm one; None if there is none."""
    targets, step = np.repeat(np.linspace(-2, 2, 9), 9), 1e-4
    outputs = np.tile(np.linspace(-1.9, 2.1, 9), 9)

    def value(f):
        def visit(position, token, arguments):
            leaves = {"y": targets, "f": f, "1": np.ones_like(f), "-1": -np.ones_like(f)}
            found = OPERATORS[token].value(np, *arguments) if token in OPERATORS else leaves[token]
            return found * weights[position - 1] if position else found

        return tree.fold(visit)

    with np.errstate(all="ignore"):
        slope = (value(outputs + step) - value(outputs - step)) / (2 * step)
        norm = np.linalg.norm(slope)
    return slope / norm if np.isfinite(norm) and norm > 1e-6 else None


def _kinds_kept(strategy):
    """How many different gradients the last generation has where fitness is the distance to a planted loss."""
    planted = _gradient(Expression.parse("tanh(square(sub(y, f)))"), (1.0,) * 4)
    kinds = set()
    while not strategy.finished:
        told, kinds = [], set()
        for one in strategy.ask():
            slope = _gradient(one.tree, one.weights or (1.0,) * one.tree.edges)
            if slope is None:
                told.append(REJECTED)
                continue
            kind = str(np.round(slope, 4).tolist())
            kinds.add(kind)
            told.append(evaluated(float(np.linalg.norm(slope - planted)), fingerprint=kind, weights=one.weights))
        tell(strategy, told)
    return len(kinds)


def test_islands_keep_more_different_losses_than_one_population():
    options = {"population": 24, "generations": 12}
    one, several = make(GeneticSearch, **options), make(IslandSearch, **options, islands=4)
    assert _kinds_kept(several) > 1.5 * _kinds_kept(one)
