"""Arrays, labels and models that the tests of builders share."""

import numpy as np
import pytest
from torch import nn

from evomal.errors import InputError
from evomal.tasks.task import Task

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = np.arange(60) % 3
IDS = RNG.integers(0, 9, (60, 7))
TEXTS = np.array(["ant", "bee", "cat"])[Y]
PAIR = (X, Y)


def net():
    return nn.Linear(4, 3)


class Reader(nn.Module):
    """A model of token ids, with a mask or without."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, ids, mask=None):
        found = self.embedding(ids)
        return self.head((found if mask is None else found * mask[..., None]).mean(1))


def refused(x=X, y=Y, model=net, **options):
    with pytest.raises(InputError) as caught:
        Task.from_arrays(x, y, model=model, **options)
    return str(caught.value)
