"""What a model takes, tried while its task is made: nothing that models share may be changed by it."""

import numpy as np
import torch
from torch import nn

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
