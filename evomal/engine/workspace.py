"""Objects that optimise and train candidates, created when first needed and kept, as CUDA graphs belong to them."""

import functools
import math
from collections.abc import Sequence

import torch

from evomal.engine.engine_settings import EngineSettings
from evomal.engine.forest import FILLER
from evomal.engine.forest.programs import fitting_width
from evomal.engine.plans import Plan
from evomal.engine.stacked import LoopedTraining, PopulationTraining, StackedTraining
from evomal.engine.task_data import TaskData
from evomal.engine.training import TrainingSetup
from evomal.engine.weight_optimisation import NetworkLosses, TreeWeights, WeightOptimisation
from evomal.expression import Expression
from evomal.losses.neural import HIDDEN, weight_count

_FIRST_WIDTH = 64  # most trees of a search fit; a larger one means a new capture
_SIZES = 5  # of captured populations: more sizes mean more captures, fewer mean more unused places


class Workspace:
    """For each stage and number of candidates, the object that optimises or trains them."""

    def __init__(
        self, tasks: Sequence[TaskData], plans: Sequence[Plan], *, seed: int, settings: EngineSettings,
        device: torch.device,
    ) -> None:  # fmt: skip
        self._tasks, self._plans = tasks, plans
        self._seed, self._settings, self._device = seed, settings, device
        self._width = _FIRST_WIDTH
        self._optimisers: dict[int, TreeWeights] = {}
        self._trainings: dict[tuple[int, int], PopulationTraining] = {}

    @property
    def meta_chunk(self) -> int:
        """How many candidates are optimised together."""
        return min(plan.meta_chunk for plan in self._plans)

    def optimiser(self, expressions: Sequence[Expression]) -> TreeWeights:
        """Returns an optimiser with room for the expressions."""
        self._make_room(expressions)
        count = self._count(len(expressions), self.meta_chunk)
        if count not in self._optimisers:
            self._drop_other_sizes()
            stacked = all(plan.mode == "stacked" for plan in self._plans)
            self._optimisers[count] = TreeWeights(
                self._tasks, self._settings, count=count, width=self._width, seed=self._seed,
                mode="stacked" if stacked else "looped",
            )  # fmt: skip
        return self._optimisers[count]

    @functools.cached_property
    def network_optimiser(self) -> WeightOptimisation:
        """The optimiser of one loss network of ML³."""
        losses = [
            NetworkLosses(kind=data.task.kind, outputs=data.capabilities.outputs, hidden=HIDDEN) for data in self._tasks
        ]
        width = weight_count(HIDDEN)
        return WeightOptimisation(
            self._tasks, losses, self._settings, count=1, width=width, seed=self._seed, mode="looped"
        )

    def training(self, index: int, expressions: Sequence[Expression], seed: int | None = None) -> PopulationTraining:
        """Returns a training of one task's model with room for the expressions.

        One with another seed than the engine's is used once, so it is not kept.
        """
        self._make_room(expressions)
        count = self._count(len(expressions), self._plans[index].training_chunk)
        if seed is not None and seed != self._seed:
            return self._new_training(index, count, seed)
        if (index, count) not in self._trainings:
            self._drop_other_sizes()
            self._trainings[index, count] = self._new_training(index, count, seed)
        return self._trainings[index, count]

    def _new_training(self, index: int, count: int, seed: int | None) -> PopulationTraining:
        setup, data = self.training_setup(index, seed), self._tasks[index]
        if self._plans[index].mode == "looped":
            return LoopedTraining(setup, data.forest([FILLER], width=self._width))
        return StackedTraining(setup, data.forest([FILLER] * count, width=self._width))

    def training_setup(self, index: int, seed: int | None = None) -> TrainingSetup:
        """Returns the setup of every training of one task; the seed is the engine's unless given."""
        settings, data = self._settings, self._tasks[index]
        return TrainingSetup(
            data.task, data.recipe, self._seed if seed is None else seed, self._device, settings.optimizer,
            settings.precision, settings.channels_last, settings.graphs, settings.dtype, (data.train, data.validation),
        )  # fmt: skip

    def _count(self, candidates: int, chunk: int) -> int:
        """Returns the number of places: on CUDA one of few numbers, so that few graphs are captured."""
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

    def _drop_other_sizes(self) -> None:
        # On a CPU these objects are created quickly, and the same size rarely comes again.
        if self._device.type != "cuda":
            self._optimisers.clear()
            self._trainings.clear()
