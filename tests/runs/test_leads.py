"""Leads of one loss over another: over seeds, and with other validation rows than those that all seeds share."""

import math

import pytest
from scipy import stats

from evomal.engine.left_out import error_of_rows
from evomal.randomness import generator
from evomal.runs.leads import Scores, lead_on_other_rows, paired_lead
from tests.engine.blocks import left_out


def scores(costs):
    """Scores of which the cost of every row is known: one row of the array per seed."""
    return Scores(tuple(costs.mean(axis=1).tolist()), tuple(map(tuple, left_out(costs, 20))))


@pytest.fixture
def rows():
    """A loss that is better by 0.1 on average, with 15 seeds that hardly differ and 40 rows that differ much."""
    draws = generator(0, "rows")
    other = draws.normal(size=(1, 40)) + 0.01 * draws.normal(size=(15, 40)) + 2.0
    return other - 0.1 - draws.normal(size=(1, 40)) - 0.01 * draws.normal(size=(15, 40)), other


def test_rows_that_all_seeds_share_widen_the_interval(rows):
    own, other = map(scores, rows)
    lead, half = paired_lead(own, other)
    wide_lead, wide = lead_on_other_rows(own, other)
    assert lead == wide_lead == pytest.approx((rows[1] - rows[0]).mean())
    error = error_of_rows([own.left_out], other.left_out)
    assert wide == pytest.approx(math.hypot(half, stats.t.ppf(0.975, 19) * error))
    assert wide > 10 * half
    assert lead_on_other_rows(own, other, confidence=0.99)[1] > wide


@pytest.mark.parametrize("lost", [(), ("own",), ("other",), ("own", "other")])
def test_without_scores_of_all_rows_nothing_is_known_of_others(rows, lost):
    found = {"own": scores(rows[0]), "other": scores(rows[1])}
    found |= {name: Scores(found[name].values) for name in lost}
    assert (lead_on_other_rows(found["own"], found["other"]) is None) is bool(lost)


def test_seeds_with_which_only_the_other_diverged_are_left_out(rows):
    own, other = scores(rows[0] - 100), scores(rows[1])
    lost = Scores((math.inf, *other.values[1:]), ((), *other.left_out[1:]))
    expected = lead_on_other_rows(
        Scores(own.values[1:], own.left_out[1:]), Scores(other.values[1:], other.left_out[1:])
    )
    assert lead_on_other_rows(own, lost) == expected
    assert expected[0] == pytest.approx(100, rel=0.05)
    # Where divergence itself decides, other rows would not change it.
    often = Scores((math.inf,) * 6 + other.values[6:], ((),) * 6 + other.left_out[6:])
    assert paired_lead(own, often) == (math.inf, 0.0)
    assert lead_on_other_rows(own, often) is None
    assert lead_on_other_rows(lost, own) is None
    assert lead_on_other_rows(own, Scores((math.inf,) * 15, ((),) * 15)) is None


def test_one_seed_has_no_interval():
    one, other = Scores((1.0,), ((1.0, 1.1),)), Scores((2.0,), ((2.0, 2.2),))
    assert lead_on_other_rows(one, other) is None
