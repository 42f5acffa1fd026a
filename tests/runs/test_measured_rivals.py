"""The headroom of a task: its lead and its noise are those of differences by seed."""

import math

import pytest

from evomal.runs.measured_rivals import Headroom, recorded_headroom
from evomal.runs.rows import RecordedTrial
from evomal.tasks.metric_display import ShownMetric

SPLITS = (0.0, 0.1, 0.2, 0.4)  # what redrawn splits add to the cost of every loss


def headroom(**losses):
    trials = [
        RecordedTrial(stage="rivals", loss=loss, seed=seed, score=score, sentence="trained", steps=8)
        for loss, scores in losses.items()
        for seed, score in enumerate(scores)
    ]
    return recorded_headroom(trials, lr=0.1)


def test_a_lead_smaller_than_the_deviation_between_splits_is_seen():
    mae = (0.974, 1.068, 1.178, 1.372)
    found = headroom(mse=[1 + split for split in SPLITS], huber=[1.01 + split for split in SPLITS], mae=mae)
    # Differences 0.026, 0.032, 0.022, 0.028: mean 0.027, deviation 0.00416, Student's quantile 3.182, four seeds.
    assert found.lead == pytest.approx(0.027)
    assert found.noise == pytest.approx(3.1824 * 0.0041633 / 2, rel=1e-4)
    assert found.lead_in_noise == pytest.approx(found.lead / found.noise)
    assert found.last("mse").deviation > 5 * found.lead
    assert found.sentence(ShownMetric("mse"), found.lr) == (
        "mse 1.175 ± 0.17 (4 seeds, lr 0.1); mae 1.148, the best of 2 other known losses, beats it by 0.027 ± 0.0066, "
        "4.1 times the noise (95 %, differences by seed): use it with lr 0.1 for 8 steps"
    )


def test_the_noise_is_not_known_if_the_baseline_diverged():
    found = headroom(mse=(math.inf, 1.1, 1.2, 1.3), mae=(0.9, 1.0, 1.1, 1.2))
    assert found.noise == math.inf


def test_a_lead_within_its_interval_is_no_lead():
    found = headroom(mse=[1 + split for split in SPLITS], mae=(0.9, 1.15, 1.1, 1.39))
    assert found.best == "mae"
    assert 0 < found.lead_in_noise < 1
    end = "mae 1.135, the best of 1 other known loss, shows no lead over it (0.04 ± 0.12: 95 %, differences by seed)"
    assert found.sentence(ShownMetric("mse"), None).endswith(end)


def test_where_the_baseline_is_best_the_noise_is_that_of_the_next_loss():
    found = headroom(mse=(0.5, 0.6), mae=(0.7, 0.9), huber=(0.6, 0.72))
    assert (found.best, found.best_rival, found.lead, found.lead_in_noise) == ("mse", "huber", 0.0, 0.0)
    assert found.noise == pytest.approx(12.7062 * 0.01, rel=1e-4)  # differences of 0.1 and 0.12
    assert "huber 0.66, the best of 2 other known losses, shows no lead over it (-0.11 ± 0.13: 95 %" in found.sentence(
        ShownMetric("mse"), None
    )


def test_pairs_are_made_by_seed_not_by_place():
    trials = [
        RecordedTrial(stage="rivals", loss=loss, seed=seed, score=score, sentence="trained", steps=8)
        for loss, seed, score in (("mse", 0, 1.0), ("mse", 1, 2.0), ("mae", 1, 1.9), ("mae", 0, 0.9), ("mae", 2, 0.1))
    ]
    found = Headroom.of(trials)
    assert found.last("mae").lead_over(found.last("mse")) == pytest.approx((0.1, 0.0), abs=1e-9)


def test_a_baseline_that_diverges_is_beaten_by_a_loss_that_does_not():
    found = headroom(mse=(0.5, math.inf, 0.4), mae=(0.7, 0.9, 0.8))
    assert (found.best, found.lead_in_noise) == ("mae", math.inf)
    assert found.sentence(ShownMetric("mse"), 0.1) == (
        "mse diverged with 1 of 3 seeds at every learning rate tried; mae 0.8, the best of 1 other known loss, with "
        "none, but is worse with the others"
    )
    found = headroom(mse=(0.9, math.inf, 0.8), mae=(0.7, 0.9, 0.8))
    assert found.sentence(ShownMetric("mse"), 0.1).endswith("with none: use it with lr 0.1 for 8 steps")
    found = headroom(mse=(0.9, math.inf, 0.8), mae=(0.7, math.inf, 0.8))
    assert found.sentence(ShownMetric("mse"), 0.1) == (
        "mse diverged with 1 of 3 seeds at every learning rate tried, and so did every other known loss with some of "
        "them"
    )


def test_the_same_difference_with_every_seed_is_not_counted_in_noise():
    found = headroom(ce=(0.1, 0.2, 0.1, 0.15), gce=(0.09, 0.19, 0.09, 0.14))
    assert found.sentence(ShownMetric("error_rate"), 0.1).endswith(
        "beats it by 1.00 ± 0.00 points (95 %, differences by seed): use it with lr 0.1 for 8 steps"
    )


def test_losses_that_are_best_at_an_end_of_the_learning_rates_are_named():
    costs = {"mse": (0.3, 0.2, 0.1), "mae": (0.1, 0.2, 0.3), "huber": (0.3, 0.1, 0.3), "tukey": (math.inf,) * 3}
    trials = [
        RecordedTrial(stage="rivals", loss=loss, seed=seed, score=score, sentence="trained", rate=rate)
        for loss, row in costs.items()
        for rate, score in zip((0.1, 1.0, 10.0), row, strict=True)
        for seed in (0, 1)
    ]
    found = Headroom.of(trials)
    low, high = found.notes()
    rest = "set tried_rates to try more"
    assert low == f"mae: best at the lowest learning rate that was tried, and perhaps better at lower ones: {rest}"
    assert high == f"mse: best at the highest learning rate that was tried, and perhaps better at higher ones: {rest}"
    assert all(note.split(":")[0] in str(found) for note in (low, high))
    assert not Headroom.of([trial for trial in trials if trial.rate == 1.0]).notes()


def test_one_seed_shows_no_lead():
    found = headroom(mse=(0.5,), mae=(0.4,))
    assert (found.noise, found.lead_in_noise) == (math.inf, 0.0)
    assert found.sentence(ShownMetric("mse"), 0.1).endswith("other known loss, shows no lead over it")
