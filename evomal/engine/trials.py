"""Any list of trials of one task, run as few stacks or one after the other, with results at several horizons.

The result of a trial depends on the trial alone: on a CPU it has the same bits alone, among others and in another order
(as far as `evomal.reproducible` can arrange it), on CUDA with the setting `deterministic`.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from evomal.engine.looped import LoopedTrials
from evomal.engine.resolve import class_priors, loss_for_task
from evomal.engine.scores import Fitness, diverged_fitness
from evomal.engine.stack_losses import StackLosses
from evomal.engine.stacked import FEWEST_MEMBERS, Group, Member, TrialStack
from evomal.engine.training import TrainingSetup
from evomal.engine.trial import Reached, Trial
from evomal.forest import FILLER, Forest
from evomal.forest.programs import fitting_width
from evomal.forest.programs import is_extended as has_extensions
from evomal.forest.terminals import uses_priors
from evomal.losses import Loss
from evomal.losses.loss import WeightedTree
from evomal.progress import StepsDone
from evomal.tasks.task import Task

_STEPS_BETWEEN_PACKINGS = 250
_FIRST_WIDTH = 64  # most trees of a search fit; a larger one means a new capture

Choose = Callable[[int, Sequence[Fitness]], Sequence[int]]
"""From a horizon and the fitness of every trial that reached it to the places, among those, of the trials to keep."""
Watch = Callable[[int, int, Reached], None]
"""Called with the place of a trial, a horizon, and what the trial has reached there, with its outputs."""


@dataclass(frozen=True)
class TrialPlan:
    """How trials of a task are run; it follows from the task's `Plan`, which is recorded."""

    is_stacked: bool
    chunk: int
    """Most trials in one stack."""
    step: int = 1
    """Numbers of places are multiples of it, so that few sizes of stacks are captured as CUDA graphs."""
    is_padded: bool = False
    """Whether every stack has one group of `chunk` places, so that CUDA computes each of them alike."""
    is_recurring: bool = False
    """Whether lists of the same sizes come again and again, so that stacks and their CUDA graphs are kept."""
    evaluated_rows: int = 1024
    is_random: bool = False
    """Whether the model draws random numbers, so that only trials of one seed can be stacked."""
    activation: str = "identity"
    """The output activation that the forest applies to every expression."""
    is_extended: bool = False
    """Whether the forest takes other tokens than the paper's."""


class TrialBatch(Protocol):
    """Trials that advance together."""

    def advance(
        self, steps: int, report: StepsDone | None, *, is_last: bool, test: bool, validation: bool = False
    ) -> list[Reached]:
        """Train until that number of steps is done, and return the result of each trial.

        `is_last`: nothing needs to be kept for further steps. `test`: also evaluate on the test split. `validation`:
        also return the outputs on the validation split.
        """

    def keep(self, places: Sequence[int]) -> None:
        """Continue with only some of the trials."""


class TrialRunner:
    """Runs lists of trials of one task; stacks and their CUDA graphs are kept from call to call.

    Args:
        setup: What all trials have in common; its seed and learning rate are not used.
        plan: How they are run.
        forest: Makes a forest for the task's outputs, from expressions and a width.
    """

    def __init__(self, setup: TrainingSetup, plan: TrialPlan, forest: Callable[..., Forest]) -> None:
        self._setup, self._plan, self._forest = setup, plan, forest
        self._stacks: dict[tuple[int, int, int], TrialStack] = {}

    @property
    def is_padded(self) -> bool:
        """Whether stacks keep their size, whatever becomes of their trials."""
        return self._plan.is_padded

    def run(
        self, trials: Sequence[Trial], *, horizons: Sequence[int], choose: Choose | None = None, test: bool = False,
        watch: Watch | None = None, report: StepsDone | None = None,
    ) -> list[list[Reached]]:  # fmt: skip
        """Train, and return the result of each trial at every horizon that it reached.

        Args:
            trials: The trials, in any order.
            horizons: Numbers of steps at which the trials are compared, increasing.
            choose: Called at every horizon but the last, returns which trials continue; None: all.
            test: Whether to evaluate on the test split at the last horizon, with `watch` at every one.
            watch: Called for every trial at every horizon; what it is given is not kept.
            report: Called with the number of steps done since the last call, of all trials together.
        """
        # Trials that share a loss share what is made of it, so that a stack computes their losses together.
        losses = {id(loss): loss for loss in (trial.loss for trial in trials)}
        setup, activation = self._setup, self._plan.activation
        modules = {
            key: prepared_loss(loss, setup.task, setup.device, activation, is_extended=self._plan.is_extended)
            for key, loss in losses.items()
        }
        prepared = [dataclasses.replace(trial, loss=modules[id(trial.loss)]) for trial in trials]
        parts = self._parts(prepared)
        results: list[list[Reached]] = [[] for _ in trials]
        options: dict[str, Any] = {"test": test, "watch": watch, "report": report}
        if choose is None:  # one part after the other, so that only one is in memory
            if len(horizons) > 1 and not self._plan.is_stacked:  # one model at a time, which goes on as it is
                parts = [[[place]] for place in range(len(trials))]
            for part in parts:
                self._run_all([part], prepared, horizons, None, results, **options)
        else:
            self._run_all(parts, prepared, horizons, choose, results, **options)
        return results

    def _run_all(
        self, parts: Sequence[list[list[int]]], trials: Sequence[Trial], horizons: Sequence[int], choose: Choose | None,
        results: list[list[Reached]], *, test: bool, watch: Watch | None, report: StepsDone | None,
    ) -> None:  # fmt: skip
        running = [([*itertools.chain(*groups)], self._batch(groups, trials, horizons[-1])) for groups in parts]
        for horizon in horizons:
            is_last = horizon == horizons[-1]
            for places, batch in running:
                is_watched = watch is not None
                found = batch.advance(
                    horizon, report, is_last=is_last, test=test and (is_last or is_watched), validation=is_watched
                )
                for place, reached in zip(places, found, strict=True):
                    if watch is not None:
                        watch(place, horizon, reached)
                    results[place].append(Reached(reached.fitness) if is_watched else reached)
            if choose is None or is_last:
                continue
            open_places = [place for places, _ in running for place in places]
            chosen = choose(horizon, [results[place][-1].fitness for place in open_places])
            continuing = {open_places[index] for index in chosen}
            kept = []
            for places, batch in running:
                own = [index for index, place in enumerate(places) if place in continuing]
                if own and len(own) < len(places):
                    batch.keep(own)
                if own:
                    kept.append(([places[index] for index in own], batch))
            running = kept

    def _parts(self, trials: Sequence[Trial]) -> list[list[list[int]]]:
        """Returns the batches: the places of their trials, in groups of one seed and split.

        Groups of other splits than the task's own form their own batches, as they are evaluated on different rows.
        """
        groups: dict[tuple[bool, int, int], list[int]] = {}
        for place, trial in enumerate(trials):
            groups.setdefault((trial.split != 0, trial.seed, trial.split), []).append(place)
        if not self._plan.is_stacked:
            return [list(groups.values())] if trials else []
        parts: list[list[list[int]]] = []
        was_other_split: bool | None = None
        for (is_other_split, *_), places in sorted(groups.items(), key=lambda entry: entry[0][0]):
            for first in range(0, len(places), self._plan.chunk):
                piece = places[first : first + self._plan.chunk]
                together = [*parts[-1], piece] if parts and is_other_split is was_other_split else []
                if together and self._fits(together):
                    parts[-1] = together
                else:
                    parts.append([piece])
                was_other_split = is_other_split
        return parts

    def _fits(self, groups: Sequence[Sequence[int]]) -> bool:
        if self._plan.is_random or self._plan.is_padded:
            return len(groups) == 1
        return len(groups) * self._members(max(map(len, groups))) <= self._plan.chunk

    def _members(self, count: int) -> int:
        """Returns the number of places for that many trials of a group."""
        if self._plan.is_padded:
            return self._plan.chunk
        step = self._plan.step
        return max(FEWEST_MEMBERS, min(self._plan.chunk, step * math.ceil(count / step)))

    def _batch(self, groups: Sequence[Sequence[int]], trials: Sequence[Trial], steps: int) -> TrialBatch:
        """Returns the trials of one batch, which are to be trained for that number of steps in the end."""
        grouped = [[trials[place] for place in places] for places in groups]
        if self._plan.is_stacked:
            return StackedTrials(self, grouped, members=self._members(max(map(len, groups))), steps=steps)
        flat = [*itertools.chain(*grouped)]
        return LoopedTrials(self._setup, flat, self._forest([FILLER], width=self._width(flat)), steps=steps)

    def _width(self, trials: Sequence[Trial]) -> int:
        sizes = (trial.loss.expression.size for trial in trials if isinstance(trial.loss, WeightedTree))
        return max(_FIRST_WIDTH, fitting_width(max(sizes, default=1)))

    def take_stack(self, trials: Sequence[Trial], *, groups: int, members: int) -> TrialStack:
        """Returns a stack for the trials; `give_stack` makes it available again."""
        setup, plan, width = self._setup, self._plan, self._width(trials)
        key = (groups, members, width)
        if key in self._stacks and _are_trees(trials):
            return self._stacks.pop(key)

        def losses(places: int) -> StackLosses:
            return StackLosses(self._forest([FILLER] * places, width=width), dtype=setup.dtype)

        return TrialStack(
            setup, losses, groups=groups, members=members, evaluated_rows=plan.evaluated_rows, is_random=plan.is_random
        )

    def give_stack(self, stack: TrialStack, trials: Sequence[Trial]) -> None:
        """Keep a stack of expressions for later trials; a captured step has other modules in it."""
        if self._plan.is_recurring and _are_trees(trials):
            self._stacks[stack.groups, stack.members, self._width(trials)] = stack


def _are_trees(trials: Sequence[Trial]) -> bool:
    return all(isinstance(trial.loss, WeightedTree) for trial in trials)


class StackedTrials:
    """A batch of trials in one stack; trials that diverge leave it when they are half of it."""

    def __init__(self, runner: TrialRunner, groups: Sequence[Sequence[Trial]], *, members: int, steps: int) -> None:
        self._runner, self._trials = runner, [*itertools.chain(*groups)]
        self._stack = runner.take_stack(self._trials, groups=len(groups), members=members)
        numbers = itertools.count()
        self._places = [[next(numbers) for _ in group] for group in groups]
        """The places in the batch of the members of each group of the stack."""
        self._order = [*itertools.chain(*self._places)]
        """The places in the batch of the trials that continue, in order."""
        self._ended: dict[int, Fitness] = {}
        self._stack.start([_group(trials, self._stack.setup) for trials in groups], steps=steps)
        self._is_whole = True

    def advance(
        self, steps: int, report: StepsDone | None, *, is_last: bool, test: bool, validation: bool = False
    ) -> list[Reached]:
        while self._places and self._stack.steps_done < steps:
            span = min(steps, self._stack.steps_done + _STEPS_BETWEEN_PACKINGS)
            count = sum(map(len, self._places))
            self._stack.advance(span, None if report is None else _times(count, report))
            if span < steps:
                self._drop_diverged(report, steps - span)
        if is_last and self._is_whole:
            self._runner.give_stack(self._stack, self._trials)
        found = {place: Reached(fitness) for place, fitness in self._ended.items()}
        tested = self._stack.test_outputs() if test and self._places else None
        validated = self._stack.validated() if self._places else []
        for group, (places, own) in enumerate(zip(self._places, validated, strict=True)):
            for member, (place, (fitness, outputs)) in enumerate(zip(places, own, strict=True)):
                of_test = None if tested is None else tested[group][member]
                found[place] = Reached(fitness, of_test, outputs if validation else None)
        return [found[place] for place in self._order]

    def keep(self, places: Sequence[int]) -> None:
        self._order = [self._order[index] for index in places]
        continuing = set(self._order)
        self._keep([[place for place in own if place in continuing] for own in self._places])

    def _drop_diverged(self, report: StepsDone | None, steps_left: int) -> None:
        pairs = zip(itertools.chain(*self._places), itertools.chain(*self._stack.diverged()), strict=True)
        lost = {place: sentence for place, sentence in pairs if sentence}
        if 2 * len(lost) < self._stack.groups * self._stack.members or self._runner.is_padded:
            return
        self._ended |= {place: diverged_fitness(sentence) for place, sentence in lost.items()}
        self._keep([[place for place in own if place not in self._ended] for own in self._places])
        if report is not None:
            report(len(lost) * steps_left)  # the remaining steps are not taken

    def _keep(self, chosen: Sequence[list[int]]) -> None:
        if list(chosen) == self._places:
            return
        members = [
            [places.index(place) for place in own] for places, own in zip(self._places, chosen, strict=True)
        ]  # fmt: skip
        self._places, self._is_whole = [own for own in chosen if own], False
        if self._places:
            self._stack.keep(members)


def _times(count: int, report: StepsDone) -> StepsDone:
    """Count a step of a stack as one step of each of its trials."""
    return lambda steps: report(count * steps)


def _group(trials: Sequence[Trial], setup: TrainingSetup) -> Group:
    members = tuple(Member(trial.loss, trial.lr, trial.factor) for trial in trials)
    split = trials[0].split
    if not split:
        return Group(trials[0].seed, members)
    return Group(trials[0].seed, members, setup.resplit(split))


def prepared_loss(
    loss: nn.Module | WeightedTree, task: Task, device: torch.device, activation: str, *, is_extended: bool = False
) -> nn.Module | WeightedTree:
    """Returns the loss for use on the task and the device, as a tree where it is one.

    `is_extended`: whether the tree may use the extended space.
    """
    if isinstance(loss, WeightedTree):
        return loss
    module = loss_for_task(loss, task)
    tree = tree_of(module, activation, is_extended=is_extended)
    if tree is not None and uses_priors(tree.expression) and module.priors != tuple(class_priors(task).tolist()):
        tree = None  # the forest has the priors of the task
    return tree or module.to(device)


def tree_of(loss: nn.Module, activation: str = "identity", *, is_extended: bool = False) -> WeightedTree | None:
    """Returns the loss as an expression that costs the same, or None if it is not one, or has options of its own.

    `activation`: what a forest will apply to the expression; a loss with another one cannot be computed by it.
    `is_extended`: whether the forest takes other tokens than the paper's.
    """
    if not isinstance(loss, Loss) or loss.weight is not None or loss.reduction != "mean":
        return None
    if loss.ignore_index != -100 or loss.units is not None:  # an expression has neither
        return None
    found = loss.tree()
    if found is not None and not is_extended and has_extensions(found.expression):
        return None
    return found if found is not None and found.activation == activation else None
