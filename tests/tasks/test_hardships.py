"""Hard training data: exact shares, seeded, of the right kind."""

import numpy as np
import pytest

from evomal.errors import InputError
from evomal.tasks.hardships import Hardships

LABELS = np.tile(np.arange(10), 100)


def test_symmetric_noise_changes_the_share_to_any_other_class():
    noisy = Hardships(label_noise=0.3).noisy_labels(LABELS, 10, seed=0)
    changed = noisy != LABELS
    assert changed.sum() == 300
    assert np.bincount((noisy - LABELS)[changed] % 10, minlength=10)[1:].min() > 15
    assert np.array_equal(noisy, Hardships(label_noise=0.3).noisy_labels(LABELS, 10, seed=0))
    assert not np.array_equal(noisy, Hardships(label_noise=0.3).noisy_labels(LABELS, 10, seed=1))


def test_asymmetric_noise_turns_a_class_into_the_next():
    noisy = Hardships(label_noise=0.2, asymmetric=True).noisy_labels(LABELS, 10, seed=0)
    changed = noisy != LABELS
    assert changed.sum() == 200
    assert np.array_equal(noisy[changed], (LABELS[changed] + 1) % 10)


def test_outliers_are_far_off_and_as_many_as_asked():
    targets = np.random.default_rng(0).normal(10, 2, 1000)
    thrown = Hardships(outliers=0.25).outlying_targets(targets, seed=0)
    moved = (thrown - targets)[thrown != targets] / targets.std()
    assert len(moved) == 250
    assert moved.mean() == pytest.approx(4, abs=1)
    assert moved.std() == pytest.approx(5, abs=0.7)


def test_imbalance_falls_geometrically():
    rows = Hardships(imbalance=0.01).kept_rows(np.arange(1000), LABELS, seed=0)
    counts = np.bincount(LABELS[rows])
    assert counts.tolist() == [100, 60, 36, 22, 13, 8, 5, 3, 2, 1]
    assert len(set(rows)) == len(rows)


def test_a_fraction_is_kept_after_imbalance():
    rows = Hardships(fraction=0.1).kept_rows(np.arange(200, 1000), LABELS, seed=0)
    assert len(rows) == 80
    assert rows.min() >= 200
    both = Hardships(imbalance=0.01, fraction=0.5).kept_rows(np.arange(1000), LABELS, seed=0)
    assert len(both) == 125


def test_none_changes_nothing():
    none = Hardships()
    assert np.array_equal(none.noisy_labels(LABELS, 10, seed=0), LABELS)
    assert np.array_equal(none.kept_rows(np.arange(1000), LABELS, seed=0), np.arange(1000))
    assert np.array_equal(none.outlying_targets(np.arange(5.0), seed=0), np.arange(5.0))


def test_inputs_stay_as_they_were():
    labels, targets = LABELS.copy(), np.arange(100.0)
    Hardships(label_noise=0.5).noisy_labels(labels, 10, seed=0)
    Hardships(outliers=0.5).outlying_targets(targets, seed=0)
    assert np.array_equal(labels, LABELS)
    assert np.array_equal(targets, np.arange(100.0))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"label_noise": 1.1}, "label_noise must be a share of 0 to 1 but got 1.1"),
        ({"outliers": -0.1}, "outliers must be a share of 0 to 1 but got -0.1"),
        ({"imbalance": 0}, "imbalance must be a share above 0 and at most 1 but got 0"),
        ({"fraction": 2}, "fraction must be a share above 0 and at most 1 but got 2"),
        ({"label_noise": True}, "label_noise must be a share of 0 to 1 but got True"),
        ({"imbalance": True}, "imbalance must be a share above 0 and at most 1 but got True"),
        ({"asymmetric": "no"}, "asymmetric must be True or False but got 'no'"),
    ],
)
def test_bad_shares(options, sentence):
    with pytest.raises(InputError, match=sentence):
        Hardships(**options)


def test_hardships_of_the_wrong_kind():
    with pytest.raises(InputError, match="outliers are defined for regression only"):
        Hardships(outliers=0.1).noisy_labels(LABELS, 10, seed=0)
    with pytest.raises(InputError, match="label noise is defined for classes only"):
        Hardships(label_noise=0.1).outlying_targets(np.arange(5.0), seed=0)
    with pytest.raises(InputError, match="imbalance is defined for classes only"):
        Hardships(imbalance=0.1).kept_rows(np.arange(5), None, seed=0)
