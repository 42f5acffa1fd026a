"""Objects that optimise and train candidates, created when first needed and kept, as CUDA graphs belong to them."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import torch

from evomal.engine.device_memory import usable_bytes
from evomal.engine.plans import EngineSettings, Plan, room_for_stack
from evomal.engine.stacked import FEWEST_MEMBERS
from evomal.engine.task_data import TaskData
from evomal.engine.training import TrainingSetup
from evomal.engine.trials import FIRST_WIDTH, KeptStacks, TrialPlan, TrialRunner
from evomal.engine.weight_optimisation import NetworkLosses, TreeWeights, WeightOptimisation
from evomal.expression import Expression
from evomal.forest.programs import fitting_width
from evomal.losses.neural import HIDDEN, weight_count

_PADDED_PLACES = 64  # places of a stack whose bits must not depend on how many trials are in it
_SIZES = 5  # number of sizes of captured populations: more mean more captures, fewer mean more unused places
_KEPT_SHARE = 1 / 4  # of the memory that this process may use, for stacks that wait to be used again
_TRIALS_STEP = 32  # places by which stacks of trials at several learning rates differ in size


class Workspace:
    """For each stage and number of candidates, the object that optimises or trains them."""

    def __init__(
        self, tasks: Sequence[TaskData], plans: Sequence[Plan], *, seed: int, settings: EngineSettings,
        device: torch.device,
    ) -> None:  # fmt: skip
        self._tasks, self._plans = tasks, plans
        self._seed, self._settings, self._device = seed, settings, device
        self._width = FIRST_WIDTH
        self._optimisers: dict[int, TreeWeights] = {}
        self._runners: dict[tuple[int, bool, tuple[int, ...] | None, bool], TrialRunner] = {}
        self._room = room_for_stack(device, settings)
        self._kept_stacks = KeptStacks(int(_KEPT_SHARE * usable_bytes(device)) if device.type == "cuda" else 0)

    @property
    def meta_chunk(self) -> int:
        """Number of candidates that are optimised together."""
        return min(self._fitting(plan.meta_chunk, plan.meta_bytes, fewest=1) for plan in self._plans)

    def _fitting(self, chunk: int, each: int, *, fewest: int) -> int:
        """Returns how many of a chunk fit into the memory of this process, with that many bytes for each."""
        return chunk if self._room is None else min(chunk, max(fewest, self._room // each))

    def optimiser(self, expressions: Sequence[Expression]) -> TreeWeights:
        """Returns an optimiser with room for the expressions."""
        self._make_room(expressions)
        count = self._count(len(expressions), self.meta_chunk)
        if count not in self._optimisers:
            if self._device.type != "cuda":  # quickly made on a CPU, and the same size rarely comes again
                self._optimisers.clear()
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

    def trials(
        self, index: int, *, of_population: bool = False, milestones: tuple[int, ...] | None = None,
        is_final: bool = False,
    ) -> TrialRunner:  # fmt: skip
        """Returns the runner of one task's trials.

        Args:
            index: The number of the task.
            of_population: Whether trials come in lists of similar lengths, again and again, so stacks have few sizes.
            milestones: Steps at which the learning rate is divided by ten; None: those of the recipe, and then a list
                of a population has one trial per candidate.
            is_final: Whether trials are of the finals, which are judged on rows of their own where the task has some.
        """
        final = self._tasks[index].final if is_final else None
        key = index, of_population, milestones, final is not None
        if key not in self._runners:
            plan, data = self._plans[index], self._tasks[index]
            is_padded = self._settings.deterministic and self._device.type == "cuda"
            chunk = max(
                FEWEST_MEMBERS, plan.training_chunk if of_population and milestones is None else plan.trial_chunk
            )
            if is_padded:
                chunk = min(chunk, _PADDED_PLACES)
            else:
                chunk = self._fitting(chunk, plan.trial_bytes, fewest=FEWEST_MEMBERS)
            captured = of_population and self._device.type == "cuda"
            trial_plan = TrialPlan(
                is_stacked=plan.mode == "stacked", chunk=chunk,
                step=_step(chunk, is_population=milestones is None) if captured else 1, is_padded=is_padded,
                is_recurring=captured, evaluated_rows=plan.evaluated_rows,
                is_random=data.capabilities.is_random or data.is_varying, activation=self._settings.activation,
                is_extended=self._settings.is_extended, trial_bytes=plan.trial_bytes,
            )  # fmt: skip
            setup = self._training_setup(index)
            if final is not None:
                setup = dataclasses.replace(setup, parts=(data.train, final))
            if milestones is not None:
                setup = dataclasses.replace(setup, recipe=dataclasses.replace(setup.recipe, milestones=milestones))
            self._runners[key] = TrialRunner(setup, trial_plan, data.forest, self._kept_stacks)
        return self._runners[key]

    def _training_setup(self, index: int) -> TrainingSetup:
        """Returns what all trainings of one task have in common."""
        settings, data = self._settings, self._tasks[index]
        return TrainingSetup(
            data.task, data.recipe, self._seed, self._device, settings.precision,
            settings.channels_last, settings.graphs, settings.dtype, (data.train, data.validation),
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


def _step(chunk: int, *, is_population: bool) -> int:
    """Returns the difference between sizes of stacks, so that few are captured."""
    return math.ceil(chunk / _SIZES) if is_population else min(_TRIALS_STEP, chunk)
