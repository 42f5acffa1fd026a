import dataclasses

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from evomal.errors import InputError
from evomal.randomness import generator
from evomal.tasks import Task, dataset_parts
from evomal.tasks.metrics import worst_group
from evomal.tasks.task import with_final_rows

ROWS = 10_000  # of which 2 000 are for validation


def task(targets=None, *, rows=ROWS, outputs=2, **options):
    draws = np.random.default_rng(0)
    x = draws.normal(size=(rows, 3)).astype(np.float32)
    y = (draws.random(rows) < 0.1).astype(int) if targets is None else targets
    return Task.from_arrays(x, y, model=lambda: torch.nn.Linear(3, outputs), **options)


def kept(given, share=0.5, *, seed=0):
    return with_final_rows(given, share, generator=generator(seed, "final rows", 0))


def pairs_of(part):
    return [
        (*row, *target.reshape(-1).tolist()) for row, target in zip(part.inputs.tolist(), part.targets, strict=True)
    ]


@pytest.mark.parametrize(("share", "final"), [(0.5, 1000), (0.25, 500)])
def test_every_validation_row_is_in_one_of_two_parts(share, final):
    whole = task()
    found = kept(whole, share)
    assert (len(found.validation), len(found.final)) == (2000 - final, final)
    assert sorted(pairs_of(found.validation) + pairs_of(found.final)) == sorted(pairs_of(whole.validation))
    assert pairs_of(found.train) == pairs_of(whole.train)
    assert pairs_of(found.test) == pairs_of(whole.test)


def test_both_parts_have_the_same_shares_of_classes():
    found = kept(task())
    counts = [int(part.targets.sum()) for part in (found.validation, found.final)]
    assert abs(counts[0] - counts[1]) <= 1


def test_both_parts_have_the_same_quantiles_of_targets():
    found = kept(task(np.random.default_rng(1).normal(size=ROWS), outputs=1, kind="regression"))
    shares = torch.linspace(0.1, 0.9, 9)
    first, second = (part.targets.flatten().quantile(shares) for part in (found.validation, found.final))
    assert float((first - second).abs().max()) < 0.01


def test_targets_of_several_numbers_are_drawn_plainly():
    found = kept(task(np.random.default_rng(1).normal(size=(ROWS, 2)), kind="regression"))
    assert (len(found.validation), len(found.final)) == (1000, 1000)


def test_the_seed_decides_which_rows():
    assert pairs_of(kept(task()).final) == pairs_of(kept(task()).final)
    assert pairs_of(kept(task()).final) != pairs_of(kept(task(), seed=1).final)


def datasets():
    return [TensorDataset(torch.randn(2000, 3), torch.arange(2000) % 2) for _ in range(3)]


def test_training_data_may_be_read_in_batches():
    whole = Task.from_datasets(*datasets(), model=lambda: torch.nn.Linear(3, 2), cached=False)
    assert whole.train.source is not None
    found = kept(whole)
    assert (len(found.validation), len(found.final)) == (1000, 1000)


def streamed():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dataset_parts, "MOST_BYTES", 1000)
        return Task.from_datasets(*datasets(), model=lambda: torch.nn.Linear(3, 2))


def with_groups():
    return task(metric=worst_group("error_rate", groups=np.arange(ROWS) % 2))


def with_a_class_of_one_validation_row():
    found = task(np.arange(ROWS) % 2, metric="auroc")
    targets = torch.zeros_like(found.validation.targets)
    targets[7] = 1
    return dataclasses.replace(found, validation=dataclasses.replace(found.validation, targets=targets))


@pytest.mark.parametrize(
    ("given", "share"),
    [
        (lambda: task(rows=9990), 0.5), (task, 0.0), (streamed, 0.5), (with_groups, 0.5),
        (with_a_class_of_one_validation_row, 0.5),
    ],
    ids=["few rows", "no share", "streamed", "groups of rows", "a rare class"],
)  # fmt: skip
def test_a_task_that_cannot_spare_rows_stays_as_it_is(given, share):
    whole = given()
    assert (whole.validation.source is not None) is (given is streamed)
    assert kept(whole, share) is whole


def test_a_part_for_the_final_is_checked_as_the_others_are():
    whole = kept(task())
    with pytest.raises(InputError, match="the final split"):
        dataclasses.replace(whole, final=dataclasses.replace(whole.final, targets=whole.final.targets + 7))
    with pytest.raises(InputError, match="final must be None for a metric with groups of rows"):
        dataclasses.replace(with_groups(), final=whole.final)
