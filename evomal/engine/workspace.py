"""What an engine works with: made when first needed, kept from call to call, as graphs are captured with them."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from evomal.engine.engine_settings import EngineSettings
from evomal.engine.forest.programs import fitting_width
from evomal.engine.network_losses import NetworkLosses
from evomal.engine.plans import Plan
from evomal.engine.stacked import LoopedTraining, PopulationTraining, StackedTraining
from evomal.engine.task_data import TaskData
from evomal.engine.training import ExecutionOptions
from evomal.engine.weight_optimisation import TreeWeights, WeightOptimisation
from evomal.expression import Expression
from evomal.losses.neural import HIDDEN, weight_count
from evomal.tasks.task import Recipe

_FIRST_WIDTH = 64  # most trees of a search fit; a larger one means a new capture
_SIZES = 5  # of what CUDA captures: more would be captured more often, fewer be filled up with more that is no use


class Workspace:
    """For each stage and number of candidates, what optimises or trains them."""

    def __init__(
        self, sides: Sequence[TaskData], recipes: Sequence[Recipe], plans: Sequence[Plan], *, seed: int,
        settings: EngineSettings, device: torch.device,
    ) -> None:  # fmt: skip
        self._sides, self._recipes, self._plans = sides, recipes, plans
        self._seed, self._settings, self._device = seed, settings, device
        self._width = _FIRST_WIDTH
        self._optimisers: dict[int, TreeWeights] = {}
        self._trainings: dict[tuple[int, int], PopulationTraining] = {}

    @property
    def meta_chunk(self) -> int:
        """How many candidates are optimised together."""
        return min(plan.meta_chunk for plan in self._plans)

    def optimiser(self, expressions: Sequence[Expression]) -> TreeWeights:
        """What tunes the weights of so many expressions."""
        self._make_room(expressions)
        count = self._count(len(expressions), self.meta_chunk)
        if count not in self._optimisers:
            self._forget_other_sizes()
            stacked = all(plan.mode == "stacked" for plan in self._plans)
            self._optimisers[count] = TreeWeights(
                self._sides, count=count, width=self._width, activation=self._settings.activation,
                mode="stacked" if stacked else "looped", **self._meta_options(),
            )  # fmt: skip
        return self._optimisers[count]

    @functools.cached_property
    def network_optimiser(self) -> WeightOptimisation:
        """What tunes one network of ML³."""
        losses = [
            NetworkLosses(kind=side.task.kind, outputs=side.capabilities.outputs, hidden=HIDDEN) for side in self._sides
        ]
        width = weight_count(HIDDEN)
        return WeightOptimisation(
            self._sides, losses, count=1, width=width, mode="looped", **self._meta_options()
        )  # fmt: skip

    def training(
        self, index: int, expressions: Sequence[Expression], seed: int | None = None
    ) -> PopulationTraining:  # fmt: skip
        """What trains the model of one task with each of so many expressions.

        One of another seed than the engine's is used once, so it is not kept.
        """
        self._make_room(expressions)
        count = self._count(len(expressions), self._plans[index].training_chunk)
        if seed is not None and seed != self._seed:
            return self._new_training(index, count, seed)
        if (index, count) not in self._trainings:
            self._forget_other_sizes()
            self._trainings[index, count] = self._new_training(index, count, seed)
        return self._trainings[index, count]

    def _new_training(self, index: int, count: int, seed: int | None) -> PopulationTraining:
        common: dict[str, Any] = {
            "outputs": self._sides[index].capabilities.outputs, "width": self._width,
            "activation": self._settings.activation, **self.training_options(index, seed),
        }  # fmt: skip
        if self._plans[index].mode == "looped":
            return LoopedTraining(**common)
        return StackedTraining(count=count, **common)

    def training_options(self, index: int, seed: int | None = None) -> dict[str, Any]:
        """What every training with one task has in common, whatever the loss; the seed is the engine's unless given."""
        settings, side = self._settings, self._sides[index]
        return {
            "task": side.task, "recipe": self._recipes[index], "optimizer": settings.optimizer,
            "seed": self._seed if seed is None else seed, "parts": (side.train, side.validation),
            "execution": ExecutionOptions(
                self._device, settings.precision, settings.channels_last, settings.graphs, settings.dtype
            ),
        }  # fmt: skip

    def _count(self, candidates: int, chunk: int) -> int:
        """Places for so many candidates: on CUDA one of few numbers, so that few graphs are ever captured."""
        if self._device.type != "cuda":
            return candidates
        step = math.ceil(chunk / _SIZES)
        return min(chunk, step * math.ceil(candidates / step))

    def _make_room(self, expressions: Sequence[Expression]) -> None:
        width = fitting_width(max(expression.size for expression in expressions))
        if width > self._width:
            self._width = width
            self._optimisers.clear()
            self._trainings.clear()

    def _forget_other_sizes(self) -> None:
        # On a CPU a worker is quickly made and its size rarely comes again.
        if self._device.type != "cuda":
            self._optimisers.clear()
            self._trainings.clear()

    def _meta_options(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "recipes": self._recipes, "seed": self._seed, "meta_lr": settings.meta_lr, "graphs": settings.graphs,
            "tangent": settings.tangent,
        }  # fmt: skip
