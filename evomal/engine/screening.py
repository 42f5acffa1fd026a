"""Properties of untrained losses on a few samples, by which a search filters candidates (EvoMAL, section 3.5)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from evomal.engine.resolve import initial_model
from evomal.engine.task_data import TaskData
from evomal.expression import Expression
from evomal.forest import Forest
from evomal.randomness import generator, isolated_torch

Weights = Sequence[Sequence[float]]


class Screening:
    """The untrained model's outputs on some training samples, and what losses do with them."""

    def __init__(self, data: TaskData, *, samples: int, seed: int) -> None:
        self._data, self._metric = data, data.task.metric
        model, train = data.model, data.train
        chosen = generator(seed, "filter samples").choice(len(train), min(samples, len(train)), replace=False)
        rows = torch.from_numpy(chosen).to(model.device)
        if self._metric.needs_every_class:
            rows = _with_every_class(rows, train.targets)
        self._targets = train.targets.index_select(0, rows)
        parameters, constants = model.views(model.flattened(initial_model(data.task, seed)).to(model.device))
        with torch.no_grad(), isolated_torch(seed, "filter dropout", device=model.device):
            self._outputs = model(parameters, train.inputs.index_select(0, rows), constants)

    def gradient_norms(self, expressions: Sequence[Expression], weights: Weights) -> Tensor:
        """`[P, B]`: the norm of each sample's gradient at the untrained outputs."""
        forest, packed = self._forest(expressions, weights)
        return forest.gradient_norms(self._outputs, self._targets, packed).cpu()

    def gains(self, expressions: Sequence[Expression], weights: Weights, *, steps: int, lr: float) -> list[float]:
        """Returns by how much the metric's cost falls when the outputs themselves are optimised; −∞ for divergence."""
        forest, packed = self._forest(expressions, weights)
        descended = forest.descended(self._outputs, self._targets, packed, steps=steps, lr=lr)
        before = self._cost(self._outputs)
        finite = torch.isfinite(descended).all(2).all(1).tolist()
        pairs = zip(descended, finite, strict=True)
        costs = [self._cost(outputs) if is_finite else math.inf for outputs, is_finite in pairs]
        return [before - cost if math.isfinite(cost) else -math.inf for cost in costs]

    def _cost(self, outputs: Tensor) -> float:
        cost = self._metric.cost(self._metric(outputs, self._targets))
        return cost if math.isfinite(cost) else math.inf

    def _forest(self, expressions: Sequence[Expression], weights: Weights) -> tuple[Forest, Tensor]:
        forest = self._data.forest(expressions)
        return forest, forest.programs.packed(weights, dtype=self._outputs.dtype)


def _with_every_class(rows: Tensor, targets: Tensor) -> Tensor:
    """Returns the rows, and the first row of each class, or of each label present and absent, that they lack."""
    columns = targets[:, None] if targets.dim() == 1 else targets
    added = []
    for column in columns.unbind(1):
        for value in torch.unique(column):
            if not bool((column[rows] == value).any()):
                added.append((column == value).nonzero()[0])
    return torch.cat((rows, torch.cat(added))) if added else rows
