"""The weights of many expressions tuned together, in memory that other expressions can take."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from evomal.engine.forest import FILLER, Forest
from evomal.engine.task_side import TaskSide
from evomal.engine.weight_optimisation import Optimised, WeightOptimisation
from evomal.expression import Expression
from evomal.progress import StepsDone


class TreeWeights:
    """Room for so many expressions of so many nodes."""

    def __init__(
        self, sides: Sequence[TaskSide], *, count: int, width: int, activation: str = "identity", **manner: Any
    ) -> None:
        """`manner`: how `WeightOptimisation` goes about it."""
        self._dtype = sides[0].model.flat.dtype
        self._forests = [
            Forest(
                [FILLER] * count, kind=side.task.kind, outputs=side.capabilities.outputs, activation=activation,
                device=side.model.device, width=width,
            )
            for side in sides
        ]  # fmt: skip
        self._optimisation = WeightOptimisation(sides, self._forests, count=count, width=width, **manner)

    def run(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, steps: int,
        report: StepsDone | None = None,
    ) -> list[Optimised]:  # fmt: skip
        """Tune the weights of as many expressions as there is room for, or fewer."""
        for forest in self._forests:
            forest.replace(expressions)
        programs = self._forests[0].programs
        rows = self._optimisation.run(
            programs.packed(weights, dtype=self._dtype), programs.edges(), steps=steps, report=report
        )
        # The root comes first and has no edge; behind the last node there is room to spare.
        return [
            dataclasses.replace(row, weights=row.weights[1 : expression.size])
            for expression, row in zip(expressions, rows, strict=False)
        ]
