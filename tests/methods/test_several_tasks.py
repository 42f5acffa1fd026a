"""Costs on several tasks as one fitness: by rank among known losses, or by the worst change from the baseline."""

import math

import pytest

from evomal.engine import Fitness, Rung, RungScores
from evomal.errors import InputError
from evomal.methods.several_tasks import AcrossTasks, best_rate, change, common_lr, rank, with_rule
from evomal.settings import SearchSettings
from tests.engine.populations import classification, regression

KNOWN = [{"ce": 0.2, "focal": 0.1}, {"ce": 40.0, "focal": 20.0}]
WORST, RANK = (AcrossTasks(rule, {0: KNOWN, 50: KNOWN}) for rule in ("worst", "rank"))


def test_the_worst_task_counts_whatever_the_size_of_its_costs():
    assert WORST.fitness([0.1, 20.0], 50, 0) == pytest.approx(-0.5)
    assert WORST.fitness([0.1, 44.0], 50, 0) == pytest.approx(4 / 44)
    assert WORST.fitness([0.22, 4.0], 50, 0) == pytest.approx(0.02 / 0.22)
    assert WORST.fitness([0.2, 40.0], 50, 0) == 0


def test_ranks_are_averaged():
    assert RANK.fitness([0.1, 20.0], 50, 0) == 1
    assert RANK.fitness([0.1, 40.0], 50, 0) == 1.5
    assert RANK.fitness([0.15, 30.0], 50, 0) == 1.5


@pytest.mark.parametrize("known", [[0.3], [0.1, 0.2, 0.2, 0.5], [-0.9, -0.8], [0.0, 0.0], [0.1, math.inf]])
def test_a_rank_grows_with_the_cost_and_stays_within_its_bounds(known):
    costs = [-50.0, -0.9, -0.85, -0.1, 0.0, 0.1, 0.15, 0.2, 0.3, 0.5, 50.0]
    ranks = [rank(cost, known) for cost in costs]
    assert ranks == sorted(ranks)
    assert 0 <= ranks[0] < ranks[-1] <= len([cost for cost in known if math.isfinite(cost)]) + 1


def test_equal_costs_share_their_ranks():
    assert [rank(cost, [0.2, 0.1, 0.2]) for cost in (0.1, 0.2)] == [1.0, 2.5]
    assert rank(0.3, [math.inf]) == 0


def test_changes_are_defined_for_all_costs():
    assert change(0.0, 0.0) == 0
    assert (change(1.0, 0.0), change(0.0, 1.0)) == (1.0, -1.0)
    assert change(-0.95, -0.9) == pytest.approx(-0.05 / 0.95)
    assert (change(1.0, math.inf), change(math.inf, 1.0), change(math.inf, math.inf)) == (-1.0, 1.0, 0.0)


def test_who_diverges_on_one_task_has_diverged():
    assert WORST.fitness([math.inf, 1.0], 50, 0) == math.inf
    lost = Fitness(math.inf, "diverged", "why")
    assert RANK.of_fitness(Fitness(math.inf, "diverged", "why", by_task=(lost, Fitness(1.0))), 0).sentence == "why"


def test_a_hard_seed_is_not_held_against_a_loss():
    across = AcrossTasks("worst", {50: KNOWN}, {(50, 7): [0.1, -10.0]})
    assert across.fitness([0.3, 30.0], 50, 7) == pytest.approx(0)
    assert across.fitness([0.2, 30.0], 50, 7) == pytest.approx(0)
    assert across.fitness([0.2, 10.0], 50, 7) == pytest.approx(-0.5)


def test_the_learning_rate_of_a_rung_is_the_best_across_tasks():
    first = RungScores({0.1: (0.1, 0.1), 1.0: (0.2, 0.2)})
    second = RungScores({0.1: (60.0, 60.0), 1.0: (30.0, 30.0)})
    found = RungScores({0.1: (30.05,) * 2, 1.0: (15.1,) * 2}, 3.0, by_task=(first, second))
    scores = WORST.of_scores(found, Rung(50, (1, 2)))
    assert (scores.rate, scores.cost, scores.factor) == (1.0, 0.0, 3.0)
    assert scores.costs[0.1] == pytest.approx((1 / 3, 1 / 3))
    assert best_rate([{0.1: 1.0, 1.0: 1.1}, {0.1: 9.0, 1.0: 3.0}]) == 1.0
    assert best_rate([{0.1: math.inf, 1.0: 1.1}, {0.1: 1.0, 1.0: 3.0}]) == 1.0


def test_the_rule_must_fit_the_tasks():
    one, other = regression(), regression(seed=1)
    assert with_rule(SearchSettings(), [one]).across_tasks is None
    assert with_rule(SearchSettings(), [one, other]).across_tasks == "worst"
    assert with_rule(SearchSettings(across_tasks="mean"), [one, other]).across_tasks == "mean"
    with pytest.raises(InputError, match="for several tasks, but there is one and across_tasks is rank"):
        with_rule(SearchSettings(across_tasks="rank"), [one])
    with pytest.raises(InputError, match=r"the mean of different metrics \(mse, mae\) says nothing"):
        with_rule(SearchSettings(across_tasks="mean"), [one, other.judged_by("mae")])


def test_a_learning_rate_is_told_where_tasks_share_it():
    assert common_lr(SearchSettings(), [regression(), regression(seed=1)]) == regression().recipe.lr
    tasks = [regression(), classification()]
    rates = {task.recipe.lr for task in tasks}
    assert common_lr(SearchSettings(lr=0.3), tasks) == 0.3
    assert common_lr(SearchSettings(), tasks) == (rates.pop() if len(rates) == 1 else None)
