"""Small tasks and expressions that the engine's tests share."""

import numpy as np
import torch

from evomal.expression import Expression
from evomal.losses.expression_loss import starting_weights
from evomal.tasks.metrics import Metric
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task

SMOOTH = [
    Expression.parse(text)
    for text in (
        "square(sub(y, f))",
        "abs(sub(f, y))",
        "tanh(square(sub(f, y)))",
        "aq(square(sub(f, y)), y)",
        "add(square(sub(y, f)), mul(f, 1))",
    )
]
EXPLOSIVE = Expression.parse("square(square(square(square(square(sub(mul(f, -1), y))))))")
"""Overflows within a few steps of any training."""


def weights_of(expressions, seed=0):
    rng = np.random.default_rng(seed)
    return [starting_weights(expression, generator=rng) for expression in expressions]


def regression(model=None, *, seed=0, recipe=None, rows=200):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    y = np.sin(x @ [1.0, -2.0, 0.5, 0.3]) + 0.1 * rng.normal(size=rows)
    task = Task.from_arrays(x, y, model=model or network, kind="regression")
    return with_recipe(task, recipe or Recipe(lr=0.05, batch_size=32))


def classification(model=None, *, seed=0, recipe=None):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, 4))
    task = Task.from_arrays(x, x[:, :3].argmax(1), model=model or (lambda: torch.nn.Linear(4, 3)))
    return with_recipe(task, recipe or Recipe(lr=0.05, batch_size=32))


def with_recipe(task, recipe):
    fields = {name: getattr(task, name) for name in task.__dataclass_fields__}
    return Task(**{**fields, "recipe": recipe})


def network():
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def dropping():
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))


def normalised():
    return torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )


def as_cost(measure):
    """A metric of which less is better."""
    return Metric(measure, higher_is_better=False)


class ScaledLoss(torch.nn.Module):
    """factor · loss: under plain SGD, the same as multiplying the learning rate by the factor."""

    def __init__(self, loss, factor):
        super().__init__()
        self.loss, self.factor = loss, factor

    def forward(self, output, target):
        return self.factor * self.loss(output, target)
