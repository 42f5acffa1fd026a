"""Hard training data: exact shares, seeded, of the right kind."""

import numpy as np
import pytest

from evomal.errors import InputError
from evomal.tasks.hardships import Hardships, hardened_rows, noisy_labels, outlying_targets

LABELS = np.tile(np.arange(10), 100)


def test_symmetric_noise_changes_the_share_to_any_other_class():
    noisy = noisy_labels(LABELS, 10, Hardships(label_noise=0.3), seed=0)
    changed = noisy != LABELS
    assert changed.sum() == 300
    assert np.bincount((noisy - LABELS)[changed] % 10, minlength=10)[1:].min() > 15
    assert np.array_equal(noisy, noisy_labels(LABELS, 10, Hardships(label_noise=0.3), seed=0))
    assert not np.array_equal(noisy, noisy_labels(LABELS, 10, Hardships(label_noise=0.3), seed=1))


def test_asymmetric_noise_turns_a_class_into_the_next():
    noisy = noisy_labels(LABELS, 10, Hardships(label_noise=0.2, asymmetric=True), seed=0)
    changed = noisy != LABELS
    assert changed.sum() == 200
    assert np.array_equal(noisy[changed], (LABELS[changed] + 1) % 10)


def test_outliers_are_far_off_and_as_many_as_asked():
    targets = np.random.default_rng(0).normal(10, 2, 1000)
    thrown = outlying_targets(targets, Hardships(outliers=0.25), seed=0)
    moved = (thrown - targets)[thrown != targets] / targets.std()
    assert len(moved) == 250
    assert moved.mean() == pytest.approx(4, abs=1)
    assert moved.std() == pytest.approx(5, abs=0.7)


def test_imbalance_falls_geometrically():
    rows = hardened_rows(LABELS, np.arange(1000), Hardships(imbalance=0.01), seed=0)
    counts = np.bincount(LABELS[rows])
    assert counts.tolist() == [100, 60, 36, 22, 13, 8, 5, 3, 2, 1]
    assert len(set(rows)) == len(rows)


def test_a_fraction_is_kept_after_imbalance():
    rows = hardened_rows(LABELS, np.arange(200, 1000), Hardships(fraction=0.1), seed=0)
    assert len(rows) == 80
    assert rows.min() >= 200
    both = hardened_rows(LABELS, np.arange(1000), Hardships(imbalance=0.01, fraction=0.5), seed=0)
    assert len(both) == 125


def test_none_changes_nothing():
    none = Hardships()
    assert np.array_equal(noisy_labels(LABELS, 10, none, seed=0), LABELS)
    assert np.array_equal(hardened_rows(LABELS, np.arange(1000), none, seed=0), np.arange(1000))
    assert np.array_equal(outlying_targets(np.arange(5.0), none, seed=0), np.arange(5.0))


def test_inputs_stay_as_they_were():
    labels, targets = LABELS.copy(), np.arange(100.0)
    noisy_labels(labels, 10, Hardships(label_noise=0.5), seed=0)
    outlying_targets(targets, Hardships(outliers=0.5), seed=0)
    assert np.array_equal(labels, LABELS)
    assert np.array_equal(targets, np.arange(100.0))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"label_noise": 1.1}, "label_noise must be a share of 0 to 1 but got 1.1"),
        ({"outliers": -0.1}, "outliers must be a share of 0 to 1 but got -0.1"),
        ({"imbalance": 0}, "imbalance must be a share above 0 and at most 1 but got 0"),
        ({"fraction": 2}, "fraction must be a share above 0 and at most 1 but got 2"),
    ],
)
def test_bad_shares(options, sentence):
    with pytest.raises(InputError, match=sentence):
        Hardships(**options)


def test_hardships_of_the_wrong_kind():
    with pytest.raises(InputError, match="outliers are defined for regression only"):
        noisy_labels(LABELS, 10, Hardships(outliers=0.1), seed=0)
    with pytest.raises(InputError, match="label noise is defined for classes only"):
        outlying_targets(np.arange(5.0), Hardships(label_noise=0.1), seed=0)
    with pytest.raises(InputError, match="imbalance is defined for classes only"):
        hardened_rows(None, np.arange(5), Hardships(imbalance=0.1), seed=0)
