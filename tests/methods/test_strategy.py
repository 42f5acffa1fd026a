"""What every strategy keeps to: its turns, its size, its seed."""

import random

import numpy as np
import pytest
import torch

from evomal.errors import EvomalError, InputError
from evomal.methods.genetic import GeneticSearch
from evomal.methods.random_search import RandomSearch
from evomal.methods.taylorglo import CmaSearch
from tests.methods.outcomes import REJECTED, run, tell
from tests.methods.outcomes import make as make_strategy

STRATEGIES = [GeneticSearch, RandomSearch, CmaSearch]


@pytest.fixture(params=STRATEGIES, ids=lambda strategy: strategy.__name__)
def make(request):
    return lambda **settings: make_strategy(request.param, **{"population": 8, "generations": 3} | settings)


def test_as_many_generations_and_proposals_as_were_asked_for(make):
    strategy = make()
    proposals, _ = run(strategy, 3)
    assert [len(generation) for generation in proposals] == [8, 8, 8]
    assert strategy.finished
    assert strategy.generation == 3
    with pytest.raises(EvomalError, match="the search is finished: all 3 generations are done"):
        strategy.ask()


def test_the_papers_settings_are_the_defaults(make):
    strategy = make_strategy(type(make()))
    assert (strategy.population, strategy.generations) == (25, 50)
    assert len(strategy.ask()) == 25


def test_turns_are_kept(make):
    strategy = make()
    with pytest.raises(EvomalError, match="`tell` was called before `ask` for generation 0"):
        strategy.tell([REJECTED] * 8)
    strategy.ask()
    with pytest.raises(EvomalError, match="`ask` was called twice for generation 0: `tell` must be called first"):
        strategy.ask()
    with pytest.raises(InputError, match="`tell` must get the 8 candidates that `ask` returned but got 7"):
        strategy.tell([REJECTED] * 7)
    tell(strategy, [REJECTED] * 8)
    assert (strategy.generation, strategy.finished) == (1, False)


def test_what_is_asked_can_be_changed_without_harm(make):
    strategy, other = make(), make()
    other.ask()
    strategy.ask().clear()
    for each in (strategy, other):
        tell(each, [REJECTED] * 8)
    assert strategy.ask() == other.ask()


def test_a_strategy_rebuilt_from_its_results_continues_identically(make):
    whole, told = run(make(), 3)
    rebuilt = make()
    for generation in range(3):
        assert rebuilt.ask() == whole[generation]
        rebuilt.tell(told[generation])


def test_another_seed_proposes_something_else(make):
    assert make().ask() != make(seed=1).ask()


def test_global_random_state_is_left_alone(make):
    def state():
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002

    before = state()
    run(make(), 3)
    assert state() == before


@pytest.mark.parametrize("name", ["population", "generations"])
def test_sizes_are_checked(make, name):
    with pytest.raises(InputError, match=rf"{name} must be at least [14] but got 0"):
        make(**{name: 0})
