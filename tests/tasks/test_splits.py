"""Splits are disjoint, complete, stratified where asked, and the same for the same seed."""

import numpy as np
import pytest

from evomal.errors import InputError
from evomal.tasks.splits import shared_content, split_rows


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
    assert shared_content(*(features[rows] for rows in parts)) == 0
    features[split.test[0]] = features[split.train[0]]
    features[split.validation[1]] = features[split.validation[0]]
    assert shared_content(*(features[rows] for rows in parts)) == 1


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
