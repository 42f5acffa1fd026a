"""Tasks with too few rows: what cannot mean anything is refused, and what is mostly chance is warned of once."""

import numpy as np
import pytest
from torch import nn

import evomal
from evomal.errors import InputError
from evomal.tasks.metrics import Metric
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


def test_validation_rows_of_one_class_are_refused_unless_the_metric_is_ones_own():
    sentence = "^the validation split must hold at least two classes but all 12 labels are 1$"
    for metric in ("error_rate", "balanced_error", "nll"):
        with pytest.raises(InputError, match=sentence):
            task(rows(12, [1]), rows(12), metric=metric)
    own = Metric(lambda outputs, targets: (outputs[:, 1] < 0).float().mean().item(), "missed", higher_is_better=False)
    kept = task(rows(12, [1]), rows(12), metric=own)
    with pytest.warns(UserWarning, match="^the 12 validation rows of own are of one class, so that they do not show"):
        evomal.train(kept, "ce", **FAST)


def test_test_rows_of_one_class_are_warned_of():
    with pytest.warns(UserWarning, match="^the 12 test rows of own are of one class, so that they do not show whether"):
        evomal.train(task(rows(12), rows(12, [0])), "ce", **FAST)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_one_training_row_is_refused(kind):
    with pytest.raises(InputError, match=r"^the train split must have at least two samples but has one$"):
        Task.from_arrays(
            RNG.normal(size=(3, 2)), np.array([[0.0], [1.0], [1.0]]), model=lambda: nn.Linear(2, 1), kind=kind
        )
