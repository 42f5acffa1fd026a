"""What a search is expected to take, held against what it takes."""

import time

import pytest

from evomal.errors import InputError
from evomal.methods import METHODS
from evomal.runs.estimates import estimate
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from tests.engine.populations import regression

SHORT = SearchSettings.preset(
    "quick", population=6, generations=3, meta_steps=3, training_steps=10, filter_steps=20, device="cpu"
)


@pytest.mark.parametrize("method", METHODS)
def test_every_stage_of_a_method_is_in_its_estimate(method):
    found = estimate(regression(), method=method, settings=SHORT)
    stages = {
        "evomal": {"setup", "filter", "optimise", "evaluate"},
        "random": {"setup", "filter", "optimise", "evaluate"},
        "gp-lfl": {"setup", "filter", "evaluate"},
        "ml3": {"setup", "optimise", "evaluate"},
    }.get(method, {"setup", "evaluate"})
    assert set(found.stages) == stages
    assert all(seconds > 0 for seconds in found.stages.values())
    assert found.generations == (1 if method == "baseline" else 3)
    assert found.population == (1 if method in ("baseline", "ml3") else 6)
    assert found.device == "cpu"
    assert found.memory > 50 * 2**20


def test_more_steps_take_longer_in_proportion():
    few = estimate(regression(), method="taylorglo", settings=SHORT.with_changes(training_steps=500))
    many = estimate(regression(), method="taylorglo", settings=SHORT.with_changes(training_steps=50_000))
    assert 20 < many.stages["evaluate"] / few.stages["evaluate"] < 500


def test_looped_candidates_cost_what_there_are_of_them():
    looped = SHORT.with_changes(population_mode="looped", training_steps=1000)
    few = estimate(regression(), method="taylorglo", settings=looped.with_changes(population=4))
    many = estimate(regression(), method="taylorglo", settings=looped.with_changes(population=40))
    assert 3 < many.stages["evaluate"] / few.stages["evaluate"] < 30


def test_what_a_search_would_refuse_is_refused():
    with pytest.raises(InputError, match="there is no method named 'evomall'"):
        estimate(regression(), method="evomall", settings=SHORT)
    with pytest.raises(InputError, match="metric must be one of"):
        estimate(regression(), method="evomal", settings=SHORT.with_changes(metric="charm"))


@pytest.mark.long
@pytest.mark.parametrize("method", ["evomal", "gp-lfl", "taylorglo", "ml3"])
def test_the_estimate_is_right_within_a_factor_of_two(method):
    """Only on a machine that does nothing else."""
    settings = SearchSettings.preset("quick", device="cpu")
    expected = estimate(regression(), method=method, settings=settings).seconds
    begin = time.perf_counter()
    search(regression(), method=method, settings=settings)
    taken = time.perf_counter() - begin
    assert expected / 2 < taken < expected * 2
