"""Comparisons over seeds against scipy, against cases worked out by hand, and against what an interval promises."""

import dataclasses
import itertools
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evomal.engine.left_out import error_of_rows
from evomal.errors import InputError
from evomal.randomness import generator
from evomal.verdict.statistics import (
    Direction,
    Paired,
    Summary,
    direction,
    paired,
    paired_searches,
    summarised,
)
from tests.engine.blocks import left_out

INF, NAN = math.inf, math.nan
BASELINE = [0.5, 0.6, 0.7, 0.8, 0.9]


def compared(*differences, **options):
    """The comparison with a baseline that is zero in every seed."""
    return paired(differences, [0.0] * len(differences), **options)


def global_random_states():
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002


def enumerated_p(differences):
    """Wilcoxon's two-sided p spelt out: the share of all signs whose rank sum lies as far from the middle."""
    differing = [difference for difference in differences if difference]
    ranks = stats.rankdata(np.abs(differing))
    observed = abs(sum(ranks * np.sign(differing)))
    signs = itertools.product((-1, 1), repeat=len(ranks))
    return float(np.mean([abs(sum(ranks * sign)) >= observed - 1e-9 for sign in signs]))


def test_a_summary_is_that_of_numpy():
    values = [0.31, 0.27, 0.29, 0.36]
    assert summarised(values) == Summary(
        n=4, mean=pytest.approx(0.3075), deviation=pytest.approx(np.std(values, ddof=1)), median=0.3, diverged=0
    )


@pytest.mark.parametrize("lost", [INF, NAN, -INF])
def test_a_summary_leaves_out_what_diverged_but_counts_it(lost):
    assert summarised([1.0, lost, 3.0, 8.0, lost]) == Summary(
        n=5, mean=4.0, deviation=pytest.approx(math.sqrt(13)), median=3.0, diverged=2
    )


def test_a_summary_has_no_figures_where_there_are_too_few_values():
    assert summarised([0.25]) == Summary(n=1, mean=0.25, deviation=None, median=0.25, diverged=0)
    assert summarised([0.25, NAN]) == Summary(n=2, mean=0.25, deviation=None, median=0.25, diverged=1)
    assert summarised([INF, NAN]) == Summary(n=2, mean=None, deviation=None, median=None, diverged=2)


def test_a_difference_is_the_mean_over_pairs_and_negative_where_the_loss_is_better():
    found = paired([0.4, 0.4, 0.7, 0.5, 1.0], BASELINE)
    assert found.n == 5
    assert found.difference == pytest.approx((-0.1 - 0.2 + 0.0 - 0.3 + 0.1) / 5)
    assert (found.wins, found.ties, found.losses) == (3, 1, 1)
    assert (found.diverged, found.baseline_diverged) == (0, 0)
    assert found.low < found.difference < found.high


@pytest.mark.parametrize("count", [1, 2, 5, 6, 10, 50, 51])
def test_p_is_wilcoxon_s_where_nothing_ties(count):
    differences = generator(count, "differences").normal(0.4, 1.0, count)
    found = compared(*differences, resamples=100)
    assert found.p == pytest.approx(stats.wilcoxon(differences).pvalue, rel=1e-12)
    assert found.test == "Wilcoxon"


@pytest.mark.parametrize(
    "differences", [(-1, -1, -2, 3, 4), (1, 1, 2), (-3, -3, -3, -2, -2, 1, 5), (-1, 0, 0, -2, -2, 4, -5)]
)
def test_p_is_exact_where_differences_tie_in_size(differences):
    found = compared(*differences)
    assert found.p == pytest.approx(enumerated_p(differences), rel=1e-12)
    assert found.test == "Wilcoxon"


def test_p_of_many_pairs_with_ties_is_that_of_the_normal_distribution():
    differences = [*range(1, 11), *range(-8, 0), 3, 4]
    found = compared(*differences)
    assert found.p == pytest.approx(stats.wilcoxon(differences, method="asymptotic").pvalue, rel=1e-12)
    assert found.test == "Wilcoxon"


def test_the_sign_test_stands_in_where_sizes_tie_so_often_that_ranks_say_nothing():
    found = compared(-1, -1, -1, -1, 2, -1, 0)
    assert (found.p, found.test) == (pytest.approx(stats.binomtest(5, 6).pvalue), "sign")


def test_five_seeds_never_reach_five_percent_but_six_do():
    assert compared(-1, -2, -3, -4, -5).p == 0.0625
    assert compared(-1, -2, -3, -4, -5, -6).p == 0.03125


def test_identical_results_are_a_tie_in_every_seed():
    assert paired(BASELINE, BASELINE) == Paired(
        n=5, difference=0.0, low=0.0, high=0.0, p=1.0, test="sign", wins=0, ties=5, losses=0
    )


def test_equal_differences_leave_no_doubt_although_subtracting_rounds_them_differently():
    values = [0.3, 0.4, 0.5, 0.6, 0.7]
    assert len({value - baseline for value, baseline in zip(values, BASELINE, strict=True)}) > 1
    found = paired(values, BASELINE)
    assert (found.difference, found.low, found.high) == (-0.2, -0.2, -0.2)
    assert (found.p, found.test) == (0.0625, "sign")
    assert direction(found) is Direction.BETTER


def test_costs_that_differ_by_rounding_tie():
    found = paired([0.1 + 0.2, 1e9 + 1e-6], [0.3, 1e9])
    assert (found.wins, found.ties, found.losses, found.difference) == (0, 2, 0, 0.0)


def test_one_seed_gives_a_difference_and_decides_nothing():
    found = paired([0.2], [0.3])
    assert (found.n, found.difference, found.p, found.wins) == (1, -0.1, 1.0, 1)
    assert (found.low, found.high) == (None, None)
    assert direction(found) is Direction.UNDECIDED


@pytest.mark.parametrize("lost", [INF, NAN, -INF])
def test_a_diverged_seed_loses_its_pair_and_takes_the_top_rank(lost):
    found = paired([0.4, 0.4, lost, 0.5, 0.5], BASELINE)
    assert (found.wins, found.ties, found.losses, found.diverged, found.baseline_diverged) == (4, 0, 1, 1, 0)
    assert found.difference == pytest.approx((-0.1 - 0.2 - 0.3 - 0.4) / 4)
    assert (found.low, found.high) == (None, None)
    assert found.p == pytest.approx(stats.wilcoxon([-1, -2, -3, -4, 5]).pvalue)
    assert direction(found) is Direction.UNDECIDED


@pytest.mark.parametrize("lost", [INF, NAN, -INF])
def test_a_diverged_baseline_loses_likewise(lost):
    found = paired([0.6, 0.8, 0.4, 0.9], [0.5, 0.6, lost, lost])
    assert (found.wins, found.ties, found.losses, found.diverged, found.baseline_diverged) == (2, 0, 2, 0, 2)
    assert found.p == pytest.approx(enumerated_p([1, 2, -3, -3]))
    assert (found.low, found.high) == (None, None)


def test_two_diverged_seeds_tie_and_leave_no_interval():
    found = paired([INF, 0.1, 0.2], [NAN, 0.4, 0.6])
    assert (found.wins, found.ties, found.losses, found.diverged, found.baseline_diverged) == (2, 1, 0, 1, 1)
    assert found.difference == pytest.approx(-0.35)
    assert (found.low, found.high, found.p) == (None, None, 0.5)


def test_where_everything_diverged_nothing_is_known():
    assert paired([INF, NAN], [NAN, INF]) == Paired(
        n=2,
        difference=None,
        low=None,
        high=None,
        p=1.0,
        test="sign",
        wins=0,
        ties=2,
        losses=0,
        diverged=2,
        baseline_diverged=2,
    )
    against_finite = paired([INF] * 5, BASELINE)
    assert (against_finite.difference, against_finite.losses, against_finite.p) == (None, 5, 0.0625)


def test_the_interval_by_many_seeds_is_student_s():
    differences = generator(3, "normal").normal(-0.1, 1.0, 300)
    found = compared(*differences)
    student = stats.t.interval(0.95, 299, differences.mean(), stats.sem(differences))
    assert (found.low, found.high) == pytest.approx(student, abs=0.01)


def test_the_interval_grows_with_the_confidence():
    differences = (-3.0, -1.0, -2.0, -2.5, 0.5)
    widths = [
        found.high - found.low for found in (compared(*differences, confidence=share) for share in (0.5, 0.8, 0.95))
    ]
    assert widths == sorted(widths)
    assert widths[0] < 0.5 * widths[2]


@pytest.mark.parametrize("differences", [(-1, -1, -1, -1, 1), (-1, -1, 1), (-1, -1, -1, -1, -1, -1, -1, 0, 0, 3)])
def test_ties_do_not_feign_certainty(differences):
    # The usual bootstrap-t is infinite here, or far too short where resamples without any spread are dropped.
    found = compared(*differences)
    assert found.low < found.difference < 0 < found.high < math.inf


def test_a_cost_that_all_but_diverged_leaves_the_question_open():
    found = paired([1e200, 1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 3.0, 5.0, 5.0])
    assert found.low < 0 < found.difference < found.high < math.inf


DRAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
    "reversed exponential": lambda rng, shape: 1 - rng.exponential(size=shape),
    "log-normal": lambda rng, shape: rng.lognormal(size=shape) - math.exp(0.5),
}


def test_an_interval_is_no_wider_than_differences_can_be():
    # One of five searches failed, so that the interval of the mean reaches beyond 1.
    costs, base = [0.015, 0.016, 0.014, 0.45, 0.015], [0.016, 0.015, 0.016, 0.017, 0.016]
    free, bounded = paired(costs, base), paired(costs, base, largest=1.0)
    assert free.high > 1.0
    assert (bounded.low, bounded.high) == (free.low, 1.0)
    better = paired(base, costs, largest=1.0)
    assert (better.low, better.high) == (-1.0, pytest.approx(-free.low))
    by_search = paired_searches([[cost] * 5 for cost in costs], base, largest=1.0)
    assert by_search.difference < by_search.high == 1.0
    # A user's metric may have the name of a known one, and other values.
    assert paired([5.0, *costs[1:]], base, largest=1.0) == paired([5.0, *costs[1:]], base)


@pytest.mark.parametrize(
    ("kind", "count", "least", "most"),
    [
        ("normal", 5, 0.92, 0.98),
        ("normal", 10, 0.92, 0.98),
        ("exponential", 5, 0.87, 0.95),
        ("reversed exponential", 5, 0.87, 0.95),
        ("exponential", 10, 0.9, 0.97),
        ("log-normal", 5, 0.82, 0.9),
        ("log-normal", 10, 0.85, 0.93),
    ],
)
def test_a_95_percent_interval_holds_the_true_mean_as_often_as_documented(kind, count, least, most):
    samples = DRAWS[kind](generator(0, "coverage", kind, count), (500, count))
    found = [compared(*sample, seed=seed, resamples=500) for seed, sample in enumerate(samples)]
    assert least < np.mean([one.low <= 0 <= one.high for one in found]) < most


def test_a_comparison_is_the_same_each_time_and_its_seed_matters_little():
    values = [0.41, 0.55, 0.66, 0.81, 0.83]
    first = paired(values, BASELINE, seed=0)
    assert paired(values, BASELINE, seed=0) == first
    other = paired(values, BASELINE, seed=1)
    assert (other.low, other.high) != (first.low, first.high)
    assert (other.low, other.high) == pytest.approx((first.low, first.high), abs=0.1 * (first.high - first.low))


def test_the_global_random_states_stay_as_they_are():
    before = global_random_states()
    for differences in [(-1, -2, 3, 4.5), (-1, -1, 2, 3), (1, 1, 1, 1, -1)]:
        compared(*differences)
    assert global_random_states() == before


costs = st.floats(0, 10) | st.sampled_from([INF, NAN, 0.1, 0.2, 0.3])


@given(st.lists(st.tuples(costs, costs), min_size=1, max_size=9))
def test_swapping_the_sides_swaps_everything(pairs):
    values, baseline = zip(*pairs, strict=True)
    one, other = paired(values, baseline, resamples=200), paired(baseline, values, resamples=200)
    assert (one.wins, one.ties, one.losses) == (other.losses, other.ties, other.wins)
    assert one.wins + one.ties + one.losses == one.n == len(pairs)
    assert (one.p, one.test) == (pytest.approx(other.p), other.test)
    assert 0 < one.p <= 1
    assert (one.difference is None) == all(not math.isfinite(a) or not math.isfinite(b) for a, b in pairs)
    if one.low is not None:
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-9)


@pytest.mark.parametrize(
    ("low", "high", "p", "expected"),
    [
        (-2.0, -1.0, 0.0625, Direction.BETTER),
        (1.0, 2.0, 0.0625, Direction.WORSE),
        (-2.0, -1.0, 0.063, Direction.UNDECIDED),
        (1.0, 2.0, 0.25, Direction.UNDECIDED),
        (-1.0, 1.0, 0.5, Direction.EVEN),
        (-1.0, 0.0, 0.0625, Direction.EVEN),
        (0.0, 1.0, 0.5, Direction.EVEN),
        (None, None, 0.0625, Direction.UNDECIDED),
    ],
)
def test_a_comparison_is_decided_by_its_interval_and_by_the_test(low, high, p, expected):
    found = Paired(n=5, difference=0.5, low=low, high=high, p=p, test="Wilcoxon", wins=2, ties=0, losses=3)
    assert direction(found) is expected
    assert direction(dataclasses.replace(found, n=4)) is Direction.UNDECIDED


@pytest.mark.parametrize(
    ("n", "expected"), [(1, "undecided"), (2, "undecided"), (3, "undecided"), (5, "better"), (10, "better")]
)
def test_a_clear_gain_is_one_from_five_seeds_on(n, expected):
    rng = np.random.default_rng(n)
    base = rng.normal(1.0, 0.01, n)
    assert direction(paired(base - 0.5 + rng.normal(0, 0.01, n), base)) == expected


def test_seeds_must_be_the_same_on_both_sides():
    with pytest.raises(InputError, match=r"^values and baseline must have the same seeds but got 2 and 3$"):
        paired([1.0, 2.0], [1.0, 2.0, 3.0])


def test_there_must_be_a_seed():
    with pytest.raises(InputError, match=r"^seeds must be at least 1 but got 0$"):
        paired([], [])
    with pytest.raises(InputError, match=r"^seeds must be at least 1 but got 0$"):
        summarised([])


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, NAN])
def test_a_confidence_is_a_share(confidence):
    with pytest.raises(InputError, match=f"^confidence must lie between 0 and 1 but got {confidence}$"):
        paired([1.0], [2.0], confidence=confidence)


def test_there_must_be_a_resample():
    with pytest.raises(InputError, match=r"^resamples must be at least 1 but got 0$"):
        paired([1.0], [2.0], resamples=0)


def test_searches_that_all_found_the_baseline_have_no_rounding_errors():
    base = left_out(generator(0, "base").normal(size=(5, 40)), 20)
    for searches in (1, 3, 5, 6):
        assert error_of_rows([base] * searches, base) == 0
        costs = [[0.1, 0.7, 0.3, 0.35, 0.15]] * searches
        found = paired_searches(costs, costs[0], left_out=([base] * searches, base))
        assert (found.low, found.high) == (0.0, 0.0)


def test_an_interval_with_rows_contains_the_true_difference_as_often_as_it_promises():
    """Rows that differ more than seeds do: the interval over seeds alone fails in most cases."""
    draws = generator(0, "coverage")
    covered = {"seeds": 0, "rows": 0}
    for _ in range(300):
        differences = draws.normal(size=(1, 40)) + 0.3 * draws.normal(size=(5, 40)) + 0.05 * draws.normal(size=(5, 1))
        costs, base = [differences.mean(axis=1).tolist()], [0.0] * 5
        rows = [left_out(differences, 20)], left_out(np.zeros((5, 40)), 20)
        for name, found in (
            ("seeds", paired_searches(costs, base)),
            ("rows", paired_searches(costs, base, left_out=rows)),
        ):
            covered[name] += found.low <= 0 <= found.high
    assert covered["seeds"] < 150
    assert 276 <= covered["rows"] <= 297  # 92 to 99 %


def test_an_interval_with_rows_is_cut_at_the_largest_difference():
    rows = [[(0.9, -0.9)] * 5], [(0.0, 0.0)] * 5
    found = paired_searches([[0.1, 0.2, 0.1, 0.2, 0.1]], [0.0] * 5, largest=1.0, left_out=rows)
    assert (found.low, found.high) == (-1.0, 1.0)
    assert str(direction(found)) == "even"
