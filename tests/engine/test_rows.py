"""Targets and outputs of any shape as rows of the loss."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from evomal.engine import Engine, EngineSettings, train
from evomal.engine.resolve import class_priors, initial_model
from evomal.engine.rows import RowRule, without_row_outputs
from evomal.errors import InputError
from evomal.tasks.inputs import called
from evomal.tasks.task import Task
from tests.engine.position_tasks import (
    LENGTH,
    TAGS,
    TOKENS,
    Tagger,
    image_regression,
    images,
    reading,
    segmentation,
    tagging,
)

CPU = torch.device("cpu")


def rows_of(task, **options):
    return RowRule(task, CPU, torch.float32).of_loss(task.train, **options)


def test_weights_of_samples_classes_and_ignored_positions_are_multiplied():
    task = tagging(sample_weight=np.linspace(0.5, 2, 60), class_weight=[1.0, 2.0, 3.0])
    rows, judged = rows_of(task), RowRule(task, CPU, torch.float32).of_metric(task.train)
    for row, (sample, position) in enumerate(np.ndindex(*task.train.targets.shape)):
        target = int(task.train.targets[sample, position])
        own = 0.0 if target == -100 else float(task.train.weights[sample])
        assert judged.weights[row].item() == pytest.approx(own)
        assert rows.weights[row].item() == pytest.approx(own * max(target + 1, 1))
        assert rows.targets[row].item() == max(target, 0)


def test_a_row_for_each_sample_costs_nothing():
    task = reading()
    rows = rows_of(task)
    assert rows.targets is task.train.targets
    assert rows.weights is None


@pytest.mark.parametrize("task", [tagging(), tagging(classes_last=False), segmentation(), image_regression()])
def test_outputs_are_rows_in_the_order_of_the_targets(task):
    model = initial_model(task, 0)
    outputs, own = called(model, task.train.inputs), called(without_row_outputs(model), task.train.inputs)
    rows = rows_of(task)
    assert len(outputs) == len(rows.targets)
    if task.kind == "regression":
        assert torch.equal(outputs.flatten(), own.flatten())
        assert torch.equal(rows.targets.flatten(), task.train.targets.flatten())
        return
    as_in_torch = own if own.shape[1] == TAGS else own.movedim(-1, 1)
    found = F.cross_entropy(outputs, torch.where(rows.weights > 0, rows.targets, -100))
    torch.testing.assert_close(found, F.cross_entropy(as_in_torch, task.train.targets))


class Shaped(nn.Module):
    """Outputs of any shape."""

    def __init__(self, *shape):
        super().__init__()
        self.shape, self.head = shape, nn.Parameter(torch.ones(1))

    def forward(self, ids):
        return self.head * torch.zeros(len(ids), *self.shape)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((LENGTH + 1, TAGS), r"must have shape \(2, 3, 5\) or \(2, 5, 3\) for 2 samples but have \[2, 6, 3\]"),
        ((LENGTH, 2), r"must have shape \(2, 3, 5\) or \(2, 5, 3\) for 2 samples but have \[2, 5, 2\]"),
        ((LENGTH,), r"the model gives \[2, 5\] for 2 samples: if the targets are one-hot, give their argmax\(1\)"),
        ((TAGS,), r"must have shape \(2, 3, 5\) or \(2, 5, 3\) for 2 samples but have \[2, 3\]"),
    ],
)
def test_outputs_that_do_not_fit_the_positions_are_refused(shape, sentence):
    task = Task.from_arrays(np.zeros((20, 5)), np.arange(100).reshape(20, 5) % TAGS, model=lambda: Shaped(*shape))
    with pytest.raises(InputError, match=sentence):
        initial_model(task, 0)


@pytest.mark.parametrize("classes_last", [True, False])
def test_as_many_classes_as_positions_are_told_apart_by_shorter_sequences(classes_last):
    ids, tags = np.arange(60).reshape(20, 3) % TOKENS, np.arange(60).reshape(20, 3) % TAGS
    task = Task.from_arrays(ids, tags, model=lambda: Tagger(classes_last=classes_last))
    assert initial_model(task, 0).class_dim == (-1 if classes_last else 1)


def test_as_many_classes_as_positions_are_read_as_torch_does_if_in_doubt():
    task = Task.from_arrays(np.zeros((20, 3)), np.arange(60).reshape(20, 3) % 3, model=lambda: Shaped(3, 3))
    assert initial_model(task, 0).class_dim == 1


def test_values_in_another_order_than_the_targets_are_refused():
    x = images()
    targets = np.arange(len(x) * 72.0).reshape(len(x), 2, 6, 6)
    task = Task.from_arrays(x, targets, model=lambda: Shaped(6, 6, 2), kind="regression")
    with pytest.raises(
        InputError, match=r"the shape of the targets, \[2, 2, 6, 6\] for 2 samples, but have \[2, 6, 6,"
    ):
        initial_model(task, 0)


def test_priors_leave_out_ignored_positions_and_samples_without_weight():
    weights = np.ones(60)
    weights[::2] = 0
    task = tagging(sample_weight=weights)
    counted = task.train.targets[task.train.weights > 0]
    counts = torch.bincount(counted[counted >= 0], minlength=TAGS).double()
    torch.testing.assert_close(class_priors(task), counts / counts.sum())


class Answering(nn.Module):
    """Gives anything for a batch of two."""

    def __init__(self, answer):
        super().__init__()
        self.answer, self.head = answer, nn.Linear(1, 1)

    def forward(self, x):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (torch.zeros(2), r"gave \[2\]: keep the dimension of the outputs, as in \(samples, 1\)$"),
        ((torch.zeros(2, 2), None), "gave a tuple: return the tensor of outputs alone$"),
        (SimpleNamespace(logits=torch.zeros(2, 2)), "gave a SimpleNamespace: return its logits$"),
        (torch.zeros(3, 2), r"for each of 2 samples but gave \[3, 2\]$"),
    ],
)
def test_a_search_and_a_training_say_what_a_model_must_give(answer, sentence):
    task = Task.from_arrays(np.zeros((20, 1)), np.arange(20) % 2, model=lambda: Answering(answer))
    with pytest.raises(InputError, match=sentence):
        train(task, "ce", steps=1, device="cpu")
    with pytest.raises(InputError, match=sentence):
        Engine(task, seed=0, settings=EngineSettings(device="cpu"))
