"""Each filter on numbers whose answer is known."""

import math

import pytest

from evomal.methods.evaluation import Failure
from evomal.methods.filters import fingerprint, is_dead, is_rejected, unlike


@pytest.mark.parametrize(
    ("norms", "dead"), [([0.0, 0.0], True), ([0.0, -0.0], True), ([0.0, 1e-30], False), ([0.0, math.nan], False)]
)
def test_dead_is_zero_on_every_sample(norms, dead):
    assert is_dead(norms) == dead


@pytest.mark.parametrize(
    ("gain", "rejected"),
    [(0.1, False), (1e-12, False), (0.0, True), (-0.1, True), (math.nan, True), (-math.inf, True)],
)
def test_only_an_improvement_passes(gain, rejected):
    assert is_rejected(gain) == rejected


def test_two_significant_digits_decide():
    assert fingerprint([0.123, 4.56e-7]) == fingerprint([0.1249, 4.64e-7])
    assert fingerprint([0.123]) != fingerprint([0.126])
    assert fingerprint([0.123]) != fingerprint([1.23])
    assert fingerprint([9.96]) == fingerprint([10.4]) != fingerprint([9.94])
    assert fingerprint([1.0, 2.0]) != fingerprint([2.0, 1.0])


def test_zero_has_one_sign():
    assert fingerprint([0.0]) == fingerprint([-0.0])


@pytest.mark.parametrize("norms", [[math.nan], [1.0, math.inf]])
def test_what_is_not_finite_has_no_fingerprint(norms):
    assert fingerprint(norms) is None


def test_beyond_its_limits_a_norm_counts_as_the_limit():
    flat, noisy = [1.0, 0.0, 3e4], [1.0, 7e-9, 5e6]
    assert fingerprint(flat) != fingerprint(noisy)
    assert fingerprint(flat, within=(1e-4, 1e4)) == fingerprint(noisy, within=(1e-4, 1e4))
    assert fingerprint(flat, within=(1e-4, 1e4)) != fingerprint([1.0, 3e-4, 3e4], within=(1e-4, 1e4))
    assert fingerprint([1.0, math.inf], within=(1e-4, 1e4)) is None


def test_profiles_like_one_before_them_come_last():
    profiles = [[1.0, 1.0], [1.02, 0.98], [1.0, 1.2], [1.01, 1.2], Failure("lost"), [2.0, 1.0]]
    assert unlike(profiles, 3) == [0, 2, 5]
    assert unlike(profiles, 2) == [0, 2]
    assert unlike(profiles, 4) == [0, 1, 2, 5]  # the first of those that are left out fills up
    assert unlike(profiles, 9) == [0, 1, 2, 3, 4, 5]
    assert unlike([Failure("lost")], 1) == [0]
