"""What need not be trained, seen from a hundred samples: for many expressions at once (EvoMAL, section 3.5)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from evomal.engine.forest import Forest
from evomal.engine.functional_model import FunctionalModel
from evomal.engine.resolve import initial_model
from evomal.engine.task_data import TaskData
from evomal.expression import Expression
from evomal.randomness import generator, isolated_torch
from evomal.tasks.task import Task


class Screening:
    """A task's untrained outputs on some training samples, and what expressions make of them."""

    def __init__(self, side: TaskData, *, samples: int, seed: int, activation: str = "identity") -> None:
        self._task: Task = side.task
        self._outputs_count, self._activation = side.capabilities.outputs, activation
        model: FunctionalModel = side.model
        count = min(samples, len(side.train))
        chosen = generator(seed, "filter samples").choice(len(side.train), count, replace=False)
        rows = torch.from_numpy(chosen).to(model.device)
        if self._task.metric.needs_every_class:
            rows = _with_every_class(rows, side.train.targets)
        self._targets = side.train.targets.index_select(0, rows)
        parameters, constants = model.views(model.flattened(initial_model(self._task, seed)).to(model.device))
        with torch.no_grad(), isolated_torch(seed, "filter dropout", device=model.device):
            self._outputs = model(parameters, side.train.inputs.index_select(0, rows), constants)

    def gradient_norms(self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]]) -> Tensor:
        """`[P, B]`: the norm of each sample's gradient at the untrained outputs, the loss's fingerprint."""
        forest, packed = self._forest(expressions, weights)
        return forest.gradient_norms(self._outputs, self._targets, packed).cpu()

    def gains(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, steps: int, lr: float
    ) -> list[float]:
        """How much each loss lowers the metric's cost when the outputs themselves descend it; −∞ where it diverges."""
        forest, packed = self._forest(expressions, weights)
        descended = forest.descended(self._outputs, self._targets, packed, steps=steps, lr=lr)
        before = self._cost(self._outputs)
        finite = torch.isfinite(descended).all(2).all(1).tolist()
        costs = [self._cost(outputs) if whole else math.inf for outputs, whole in zip(descended, finite, strict=True)]
        return [before - cost if math.isfinite(cost) else -math.inf for cost in costs]

    def _cost(self, outputs: Tensor) -> float:
        cost = self._task.metric.cost(self._task.metric(outputs, self._targets))
        return cost if math.isfinite(cost) else math.inf

    def _forest(self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]]) -> tuple[Forest, Tensor]:
        forest = Forest(
            expressions, kind=self._task.kind, outputs=self._outputs_count, activation=self._activation,
            device=self._outputs.device,
        )  # fmt: skip
        return forest, forest.programs.packed(weights, dtype=self._outputs.dtype)


def _with_every_class(rows: Tensor, targets: Tensor) -> Tensor:
    """The rows, and the first row of each class, or of each label present and absent, that is not among them."""
    columns = targets[:, None] if targets.dim() == 1 else targets
    added = []
    for column in columns.unbind(1):
        for value in torch.unique(column):
            if not bool((column[rows] == value).any()):
                added.append((column == value).nonzero()[0])
    return torch.cat((rows, torch.cat(added))) if added else rows
