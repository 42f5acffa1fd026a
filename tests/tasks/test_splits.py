"""Splits are disjoint, complete, stratified where asked, and the same for the same seed."""

import numpy as np
import pytest

from evomal.errors import InputError
from evomal.tasks.splits import shared_content, split_groups, split_in_order, split_rows


@pytest.mark.parametrize(
    ("rows", "sizes"), [(442, (266, 88, 88)), (506, (304, 101, 101)), (20640, (12384, 4128, 4128))]
)
def test_sixty_twenty_twenty(rows, sizes):
    split = split_rows(rows, validation=0.2, test=0.2, seed=0)
    assert tuple(map(len, (split.train, split.validation, split.test))) == sizes
    assert np.array_equal(np.sort(np.concatenate((split.train, split.validation, split.test))), np.arange(rows))


def test_stratified_parts_keep_the_shares_of_the_classes():
    labels = np.repeat([0, 1, 2], [700, 200, 100])
    split = split_rows(1000, validation=0.1, test=0, labels=labels, seed=3)
    assert np.bincount(labels[split.validation]).tolist() == [70, 20, 10]
    assert len(split.test) == 0


def test_the_seed_decides():
    first, again, other = (split_rows(300, validation=0.2, test=0.2, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.test, again.test)
    assert not np.array_equal(first.test, other.test)


def test_rows_of_equal_content_are_counted():
    features = np.arange(10.0).reshape(10, 1)
    split = split_rows(10, validation=0.2, test=0.2, seed=0)
    parts = [split.train, split.validation, split.test]
    assert shared_content(*([features[rows]] for rows in parts)) == 0
    features[split.test[0]] = features[split.train[0]]
    features[split.validation[1]] = features[split.validation[0]]
    assert shared_content(*([features[rows]] for rows in parts)) == 1


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        (10, {"validation": 1.0, "test": 0.1}, "validation must be a share of at least 0 and less than 1 but got 1.0"),
        (10, {"validation": 0.2, "test": -0.1}, "test must be a share of at least 0 and less than 1 but got -0.1"),
        (10, {"validation": 0.5, "test": 0.5}, "every part of the data needs a row"),
        (3, {"validation": 0.1, "test": 0.3}, "every part of the data needs a row"),
        (10, {"validation": 0.2, "test": 0.2, "labels": np.arange(10)}, "the test split cannot hold every class"),
    ],
)
def test_bad_shares(rows, options, sentence):
    with pytest.raises(InputError, match=sentence):
        split_rows(rows, seed=0, **options)


def parts_of(split):
    return split.train, split.validation, split.test


def test_no_group_is_in_two_parts_and_classes_keep_their_shares():
    rng = np.random.default_rng(0)
    groups, labels = rng.integers(0, 50, 1000), (rng.random(1000) < 0.1).astype(int)
    split = split_groups(groups, validation=0.2, test=0.2, labels=labels, seed=0)
    assert np.array_equal(np.sort(np.concatenate(parts_of(split))), np.arange(1000))
    seen = [set(groups[rows]) for rows in parts_of(split)]
    assert not seen[0] & seen[1] | seen[0] & seen[2] | seen[1] & seen[2]
    for rows, share in zip(parts_of(split), (0.6, 0.2, 0.2), strict=True):
        assert len(rows) == pytest.approx(1000 * share, abs=25)
        assert labels[rows].mean() == pytest.approx(labels.mean(), abs=0.02)
    again, other = (split_groups(groups, validation=0.2, test=0.2, labels=labels, seed=seed) for seed in (0, 1))
    assert np.array_equal(split.test, again.test)
    assert not np.array_equal(split.test, other.test)


def test_every_part_gets_a_group_even_if_each_group_is_a_class():
    split = split_groups(np.array([0, 0, 0, 1, 2]), validation=0.2, test=0.2, labels=np.array([2, 2, 2, 0, 1]), seed=0)
    assert list(map(len, parts_of(split))) == [3, 1, 1]
    without_test = split_groups(np.array([0, 0, 0, 1]), validation=0.25, test=0, seed=0)
    assert list(map(len, parts_of(without_test))) == [3, 1, 0]
    with pytest.raises(InputError, match=r"^groups must hold at least 3 groups, one for each part, but hold 2$"):
        split_groups(np.arange(10) % 2, validation=0.2, test=0.2, seed=0)


def test_the_latest_rows_are_the_test():
    times = np.random.default_rng(0).permutation(np.arange("2020-01-01", "2020-04-10", dtype="datetime64[D]"))
    split = split_in_order(times, validation=0.2, test=0.1)
    assert list(map(len, parts_of(split))) == [70, 20, 10]
    assert times[split.train].max() < times[split.validation].min()
    assert times[split.validation].max() < times[split.test].min()


def test_rows_of_equal_time_stay_together():
    split = split_in_order(np.repeat(np.arange(10), 10), validation=0.17, test=0.24)
    assert list(map(len, parts_of(split))) == [60, 20, 20]
    with pytest.raises(InputError, match="order leaves the test split empty, as rows of equal time stay"):
        split_in_order(np.repeat([0, 1], 50), validation=0.2, test=0.2)
