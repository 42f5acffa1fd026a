"""Tasks with too few rows: what cannot mean anything is refused, and what is mostly chance is warned of once."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import evomal
from evomal.errors import InputError
from evomal.tasks.task import Task

FAST = {"steps": 2, "device": "cpu"}
RNG = np.random.default_rng(0)


def rows(count, labels=(0, 1)):
    return RNG.normal(size=(count, 3)), np.resize(labels, count)


def task(validation, test, **options):
    return Task.from_arrays(train=rows(30), validation=validation, test=test, model=lambda: nn.Linear(3, 2), **options)


@pytest.mark.parametrize(
    ("validation", "test", "few"),
    [
        (7, 8, "7 rows for validation"),
        (8, 7, "7 rows for test"),
        (4, 2, "4 rows for validation and 2 rows for test"),
    ],
)
def test_few_rows_are_warned_of_once_for_a_task(validation, test, few):
    small = task(rows(validation), rows(test))
    sentence = f"^own has {few}: with fewer than 8, differences between losses are mostly chance$"
    with pytest.warns(UserWarning, match=sentence) as seen:
        evomal.train(small, "ce", **FAST)
    assert len(seen) == 1
    evomal.train(small, "focal", seed=1, **FAST)  # a warning would be an error here


def test_eight_rows_and_many_positions_of_few_samples_are_not_warned_of():
    evomal.train(task(rows(8), rows(8)), "ce", **FAST)
    x, y = RNG.normal(size=(6, 1, 4, 4)), RNG.integers(2, size=(6, 4, 4))
    evomal.train(Task.from_arrays(x, y, model=lambda: nn.Conv2d(1, 2, 1)), "ce", **FAST)


def test_training_rows_that_stand_for_the_other_parts_are_not_warned_of():
    few = rows(5)
    one = Task.from_arrays(train=few, validation=few, test=few, model=lambda: nn.Linear(3, 2))
    evomal.train(one, "ce", **FAST)


@pytest.mark.parametrize("part", ["validation", "test"])
def test_rows_of_one_class_are_warned_of(part):
    parts = {"validation": rows(12), "test": rows(12), part: rows(12, [1])}
    small = task(**parts)
    with pytest.warns(UserWarning, match=f"^the 12 {part} rows of own are of one class, so that they do not show"):
        evomal.train(small, "ce", **FAST)


def test_batches_of_which_some_rows_are_known_are_judged_by_their_number_only():
    def texts(count):
        lengths = range(3, 3 + count)
        return [(torch.zeros(1, length, 2), torch.tensor([length % 2])) for length in lengths]

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x.mean(1))

    def read(count):
        return DataLoader(texts(count), batch_size=None)

    many = Task.from_loaders(train=read(12), validation=read(9), test=read(8), model=Mean)
    evomal.train(many, "ce", **FAST)  # a warning would be an error here: one row of each length is known
    few = Task.from_loaders(train=read(12), validation=read(7), test=read(8), model=Mean)
    with pytest.warns(UserWarning, match="^own has 7 rows for validation: with fewer than 8"):
        evomal.train(few, "ce", **FAST)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_one_training_row_is_refused(kind):
    with pytest.raises(InputError, match=r"^the train split must have at least two samples but has one$"):
        Task.from_arrays(
            RNG.normal(size=(3, 2)), np.array([[0.0], [1.0], [1.0]]), model=lambda: nn.Linear(2, 1), kind=kind
        )
