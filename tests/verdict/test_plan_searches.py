"""The searches of a comparison as jobs of a pool."""

from types import SimpleNamespace

import pytest

from evomal.errors import EvomalError
from evomal.methods import Failure
from evomal.settings import SearchSettings
from evomal.verdict.plan import ComparedSearch, searched_contestants
from tests.engine.populations import regression

SETTINGS = SearchSettings(
    population=4, generations=1, meta_steps=1, training_steps=2, filter_steps=2, device="cpu", finalists=0
)


class Reversed:
    """A pool in this process, whose last job is done first; jobs in `lost` fail."""

    size = 2

    def __init__(self, lost=()):
        self._lost = lost

    def prepare(self, build, *data):
        self._runner = build(*data)
        return self._runner.describe()

    def run(self, jobs):
        for index in reversed(range(len(jobs))):
            if index in self._lost:
                yield index, Failure("its process was killed (2 times)")
            else:
                yield index, self._runner.run([jobs[index]])[0]


def test_what_is_found_belongs_to_its_method_seed_and_learning_rate_in_whatever_order_it_comes():
    places = [(SETTINGS.with_changes(lr=lr), None) for lr in (0.01, 0.1)]
    asked = {"on": regression(), "search_seeds": 2}
    expected = searched_contestants(["taylorglo", "gp-lfl"], regression(), places, **asked)
    found = searched_contestants(["taylorglo", "gp-lfl"], [regression()], places, pool=Reversed(), **asked)
    shown = [[(one.name, one.fitnesses, [loss.identity for loss in one.found]) for one in row] for row in found]
    assert shown == [
        [(one.name, one.fitnesses, [loss.identity for loss in one.found]) for one in row] for row in expected
    ]
    assert len({one.fitnesses for row in found for one in row}) == 4  # none can stand in for another


def test_a_search_whose_process_dies_again_is_named():
    with pytest.raises(
        EvomalError, match=r"^the search with gp-lfl, seed 1, lr 0\.1, failed: its process was killed \(2 times\)$"
    ):
        searched_contestants(
            ["gp-lfl"], regression(), [(SETTINGS.with_changes(lr=0.1), None)], on=regression(), search_seeds=2,
            pool=Reversed(lost=[1]),
        )  # fmt: skip


def test_a_search_says_its_learning_rate_if_it_has_one_of_its_own():
    assert str(ComparedSearch("evomal", 3, SETTINGS, None)) == "evomal, seed 3"
    assert str(ComparedSearch("evomal", 3, SETTINGS.with_changes(lr=0.01), None)) == "evomal, seed 3, lr 0.01"


def test_one_search_is_announced_in_the_singular():
    said = []
    searched_contestants(
        ["taylorglo"], regression(), [(SETTINGS, None)], on=regression(), search_seeds=1, pool=Reversed(),
        listener=SimpleNamespace(announce=said.append),
    )  # fmt: skip
    assert said[0] == "1 search in 2 processes"
