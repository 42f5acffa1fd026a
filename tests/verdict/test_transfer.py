"""Losses on tasks they were not learned on."""

import pytest

from evomal.errors import InputError
from evomal.verdict.comparing import best_search, rate_curve, transfer
from evomal.verdict.contestants import Contestant
from tests.engine.populations import classification, regression
from tests.protocols import ONE_TRAINING

SMALL = {
    **ONE_TRAINING,
    "population": 5, "generations": 2, "meta_steps": 2, "training_steps": 10, "filter_steps": 20, "device": "cpu",
    "final_steps": 20,
}  # fmt: skip


def test_all_searches_are_used_and_the_best_of_them_beside():
    found = transfer(
        regression(seed=3), source=regression(seed=0), methods=["taylorglo"], seeds=2, search_seeds=3, rescale=False,
        **SMALL,
    )  # fmt: skip
    names = [entry.name for entry in found.comparison.entries]
    assert names == ["mse", "taylorglo", "taylorglo (best search)"]
    best = min(range(3), key=lambda index: found.fitnesses["taylorglo"][index])
    alone = found.comparison.entry("taylorglo (best search)").losses[0]
    assert alone == found.comparison.entry("taylorglo").losses[best]


def test_the_best_search_is_the_one_with_the_least_fitness_and_nothing_is_never_best():
    first, last = object(), object()
    contestant = Contestant("evomal", (first, None, last), (0.5, None, 0.4))
    assert best_search(contestant).losses == (last,)


def test_given_losses_need_no_search(tmp_path):
    found = transfer(regression(), losses=["mae"], seeds=2, rescale=False, folder=tmp_path, **SMALL)
    assert found.source is None
    assert found.comparison.differences["mae", "plain"].n == 2


def test_what_cannot_be_transferred_is_said():
    with pytest.raises(InputError, match=r"a loss for regression \(own\) cannot be used for classification \(own\)"):
        transfer(classification(), source=regression(), **SMALL)
    with pytest.raises(InputError, match="a transfer needs losses, or a source task on which to search for them"):
        transfer(classification(), **SMALL)


def test_a_comparison_at_each_rate():
    curve = rate_curve(regression(), rates=[0.001, 0.01], losses=["mae"], seeds=2, **SMALL)
    assert list(curve.comparisons) == [0.001, 0.01]
    for rate, comparison in curve.comparisons.items():
        assert {loss.lr for entry in comparison.entries for loss in entry.losses} == {rate}


def test_a_search_at_each_rate(tmp_path):
    curve = rate_curve(
        regression(), rates=[0.003, 0.01], methods=["gp-lfl"], search_each=True, seeds=1, folder=tmp_path, **SMALL
    )
    assert (tmp_path / "lr-0.003" / "searches" / "gp-lfl-0" / "run.sqlite").exists()
    once = rate_curve(regression(), rates=[0.003, 0.01], methods=["gp-lfl"], seeds=1, **SMALL)
    formulas = {c.entries[-1].losses[0].formula for c in once.comparisons.values()}
    assert len(formulas) == 1
    assert curve.search_each


@pytest.mark.parametrize(
    "rates", [[], [0.0], [0.1, 0.1], 0.1, None, "0.1", ["0.1"], [None], [[0.1]], {0.1, float("nan")}, [10**400]]
)
def test_rates_are_checked(rates):
    with pytest.raises(InputError, match="rates must be"):
        rate_curve(regression(), rates=rates, losses=["mae"], **SMALL)


def test_a_rate_curve_needs_a_task():
    with pytest.raises(InputError, match=r"^task must be a Task but got 'diabetes'$"):
        rate_curve("diabetes", rates=[0.1], losses=["mae"], **SMALL)
