"""What a model takes, tried while its task is made: nothing that models share may be changed by it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from evomal.engine.full_training import train
from evomal.errors import InputError
from evomal.tasks.task import Task

BACKBONE = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.5)).requires_grad_(False)


class Reader(nn.Module):
    """A fresh head on a frozen backbone that all models share."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = BACKBONE, nn.Linear(4, 2)

    def forward(self, ids):
        return self.head(self.backbone(ids).mean(1))


def test_layers_that_models_share_stay_in_the_mode_that_the_user_has_set():
    ids, y = np.arange(120).reshape(40, 3) % 9, np.arange(40) % 2
    for mode in (True, False):
        BACKBONE.train(mode)
        task = Task.from_arrays(ids, y, model=Reader)
        assert task.train.inputs.dtype == torch.int64
        assert [layer.training for layer in BACKBONE.modules()] == [mode] * 3


class ReaderOfTables(nn.Module):
    """Token ids beside a table of counts and a mask, as a user's model takes them."""

    def __init__(self):
        super().__init__()
        self.embedding, self.counts, self.head = nn.Embedding(9, 4), nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, ids, counts, mask):
        words = self.embedding(ids).masked_fill(~mask.unsqueeze(-1), 0)
        return self.head(words.mean(1) + self.counts(counts))


def mixed(number=40, largest=9):
    own = np.random.default_rng(0)
    return {
        "ids": own.integers(0, largest, (number, 3)),
        "counts": own.integers(0, 100, (number, 5)),
        "mask": own.random((number, 3)) < 0.8,
    }


def test_each_input_is_what_the_model_takes():
    inputs, y = mixed(), np.arange(40) % 2
    expected = {"ids": torch.int64, "counts": torch.float32, "mask": torch.bool}
    task = Task.from_arrays(inputs, y, model=ReaderOfTables)
    for part in (task.train, task.validation, task.test):
        assert {name: own.dtype for name, own in part.inputs.items()} == expected
    items = [{name: own[row] for name, own in inputs.items()} | {"label": int(y[row])} for row in range(40)]
    for cached in (True, False):
        read = Task.from_datasets(items, items, items, model=ReaderOfTables, cached=cached)
        assert {name: own.dtype for name, own in read.train.inputs.items()} == expected
        assert math.isfinite(train(read, "ce", steps=2, batch_size=8, device="cpu").validation)


def test_the_range_of_what_stays_whole_is_tried_beside_what_is_converted():
    y = np.arange(40) % 2
    parts = {"train": (mixed(), y), "validation": (mixed(), y), "test": (mixed(largest=12), y)}
    with pytest.raises(InputError, match="the model cannot take all inputs of the test split, whose whole numbers"):
        Task.from_arrays(model=ReaderOfTables, **parts)
