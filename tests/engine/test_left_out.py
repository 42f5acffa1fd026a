"""Metrics without some of the samples, and what they tell about other samples."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import evomal
from evomal.engine.left_out import error_of_rows, left_out_metrics
from evomal.engine.scores import Evaluated
from evomal.randomness import generator
from evomal.tasks.metrics import worst_group
from tests.engine.blocks import left_out
from tests.engine.populations import classification, regression
from tests.engine.position_tasks import segmentation


def test_each_value_is_the_metric_without_one_block_of_samples():
    task = regression(rows=150)
    outputs, targets = torch.zeros(30, 1), torch.arange(30.0).view(-1, 1)
    found = left_out_metrics(task, Evaluated(outputs, targets))
    assert len(found) == 20
    # The blocks have one or two samples, each sample is in one block.
    total = float((targets**2).sum())
    left = [round(total - value * (30 - size)) for value, size in zip(found, [2] * 10 + [1] * 10, strict=True)]
    assert sum(left) == round(total)
    assert found == left_out_metrics(task, Evaluated(outputs, targets))


def test_blocks_of_few_samples_are_single_samples():
    task = regression(rows=25)
    targets = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    found = left_out_metrics(task, Evaluated(torch.zeros(5, 1), targets))
    assert sorted(found) == pytest.approx([(55 - square) / 4 for square in (25, 16, 9, 4, 1)])


def test_the_positions_of_a_sample_are_in_one_block():
    task = segmentation()
    samples = len(task.test)
    positions = 4
    # An error in every position of one sample: without its block there is none.
    outputs = torch.tensor([[1.0, 0.0]]).repeat(samples * positions, 1)
    targets = torch.zeros(samples * positions, dtype=torch.long)
    targets[:positions] = 1
    found = left_out_metrics(task, Evaluated(outputs, targets))
    assert found.count(0.0) == 1
    assert len(found) == min(20, samples)


def own_metric(outputs, targets):
    assert len(targets) == 30  # as one that looks up something for every row
    return float(((outputs - targets) ** 2).mean())


@pytest.mark.parametrize(
    "task",
    [
        regression(rows=150).judged_by(evomal.Metric(own_metric, "own", higher_is_better=False)),
        dataclasses.replace(regression(rows=150), record={"split_by": "groups"}),
    ],
)
def test_metrics_of_the_users_and_samples_that_depend_on_each_other_have_none(task):
    assert left_out_metrics(task, Evaluated(torch.zeros(30, 1), torch.ones(30, 1))) == ()


def test_a_metric_that_is_not_defined_without_some_block_has_none():
    task = classification().judged_by("auroc")
    targets = torch.zeros(len(task.test), dtype=torch.long)
    outputs = torch.randn(len(targets), task.outputs, generator=torch.Generator().manual_seed(0))
    targets[0], targets[1] = 1, 2
    assert left_out_metrics(task, Evaluated(outputs, targets)) == ()
    targets = torch.arange(len(targets)) % task.outputs
    assert len(left_out_metrics(task, Evaluated(outputs, targets))) == 20
    more_outputs = torch.cat((outputs, torch.zeros(len(targets), 2)), 1)
    assert len(left_out_metrics(task, Evaluated(more_outputs, targets))) == 20


def test_a_part_that_is_read_anew_has_more_samples_than_are_kept():
    task = loaded()
    samples, kept = task.test.rows, len(task.test)
    assert kept < samples
    assert not samples % kept
    targets = torch.arange(samples) % task.outputs
    outputs = torch.eye(task.outputs)[targets]
    outputs[0] = -outputs[0]  # one error: it is in one block
    found = left_out_metrics(task, Evaluated(outputs, targets))
    assert len(set(found)) == 2
    assert found.count(0.0) == 1
    # Several rows of each sample, of which nobody says how many.
    twice = Evaluated(outputs.repeat(2, 1), targets.repeat(2))
    assert left_out_metrics(task, twice) == ()


def loaded():
    """A task from loaders whose batches differ in shape, so that some batches stand for all."""

    def batches(count, first):
        draws = torch.Generator().manual_seed(first)
        return [
            (torch.randn(25, 4 + number % 20, generator=draws), torch.randint(3, (25,), generator=draws))
            for number in range(count)
        ]

    parts = [batches(8, 0), batches(4, 1), batches(40, 2)]
    return evomal.Task.from_loaders(*(lambda seed, part=part: part for part in parts), model=Pooled)


class Pooled(torch.nn.Module):
    """Takes samples of any length."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(2, 3)

    def forward(self, x):
        return self.last(torch.stack((x.mean(1), x.amax(1)), 1))


def test_rows_of_weight_zero_do_not_count():
    task = regression(rows=150)
    targets, weights = torch.ones(30, 1), torch.ones(30)
    targets[:5], weights[:5] = np.inf, 0.0
    assert left_out_metrics(task, Evaluated(torch.zeros(30, 1), targets, weights)) == (1.0,) * 20


def test_a_sum_of_metrics_has_values_and_a_worst_group_of_rows_has_none():
    task = classification()
    targets = torch.arange(len(task.test)) % task.outputs
    evaluated = Evaluated(torch.eye(task.outputs)[targets], targets)
    assert len(left_out_metrics(task.judged_by("0.5*error_rate+0.5*ece"), evaluated)) == 20
    nested = task.judged_by("0.5*error_rate+0.5*worst_class:error_rate")
    assert len(left_out_metrics(nested, evaluated)) == 20
    groups = {part: np.arange(len(getattr(task, part))) % 2 for part in ("validation", "test")}
    assert left_out_metrics(task.judged_by(worst_group("error_rate", groups=groups)), evaluated) == ()


def test_the_error_of_rows_that_all_seeds_share_is_that_of_a_mean():
    rows = generator(0, "rows").normal(size=60)
    base = left_out(np.zeros((5, 60)), 60)
    expected = rows.std(ddof=1) / math.sqrt(60)
    assert error_of_rows([left_out(np.tile(rows, (5, 1)), 60)], base) == pytest.approx(expected)
    # Blocks of three rows give an estimate of the same error.
    assert error_of_rows([left_out(np.tile(rows, (5, 1)), 20)], base=left_out(np.zeros((5, 60)), 20)) == pytest.approx(
        expected, rel=0.35
    )


def test_the_error_of_several_searches_is_that_of_their_mean():
    draws = generator(0, "searches")
    own, base = draws.normal(size=(3, 5, 40)), np.zeros((5, 40))
    mean = error_of_rows([left_out(own.mean(axis=0), 20)], left_out(base, 20))
    assert error_of_rows([left_out(one, 20) for one in own], left_out(base, 20)) == pytest.approx(mean, abs=1e-12)


def test_what_rows_and_seeds_decide_together_is_left_to_the_seeds():
    noise = generator(0, "noise").normal(size=(400, 5, 40))
    base = left_out(np.zeros((5, 40)), 20)
    found = [error_of_rows([left_out(one, 20)], base) ** 2 for one in noise]
    whole = 1 / (5 * 40)  # the variance of the mean, which the differences between seeds show
    assert np.mean(found) < whole / 3
    assert np.median(found) < whole / 10


@pytest.mark.parametrize(
    ("own", "base"),
    [
        ([[()]], [(1.0, 2.0)] * 5),  # a search that found nothing
        ([[(1.0, 2.0)] * 4 + [()]], [(1.0, 2.0)] * 5),  # a training that diverged
        ([[(1.0, 2.0)] * 5], [()] * 5),  # a log of before
        ([[(1.0, 2.0)]], [(1.0, 3.0)]),  # one seed
        ([[(1.0, 2.0)] * 5], [(1.0, 2.0, 3.0)] * 5),
        ([[(1e200, -1e200)] * 5], [(1.0, 2.0)] * 5),
        ([], []),
    ],
)
def test_an_error_of_rows_that_cannot_be_known_is_none(own, base):
    assert error_of_rows(own, base) is None
