"""Any list of trials of one task, run in stacks or one after the other, with results at several horizons.

The result of a trial depends on the trial alone: on a CPU it has the same bits alone, among others and in another order
(as far as `evomal.reproducible` can arrange it), on CUDA with the setting `deterministic`.
"""

import dataclasses
import gc
import itertools
import math
import warnings
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evomal.engine.device_memory import is_out_of_memory
from evomal.engine.resolve import copied, is_own
from evomal.engine.row_losses import LoadedLoss, StackLosses, prepared_loss
from evomal.engine.scores import Fitness, Reached, Trial, diverged_fitness
from evomal.engine.stacked import FEWEST_MEMBERS, Group, Member, TrialStack
from evomal.engine.training import Training, TrainingSetup
from evomal.errors import UserCodeError
from evomal.forest import FILLER, Forest
from evomal.forest.programs import fitting_width
from evomal.losses.loss import WeightedTree
from evomal.progress import StepsDone
from evomal.tasks.parts import joined_parts
from evomal.text import one_line

_STEPS_BETWEEN_PACKINGS = 250
FIRST_WIDTH = 64
"""Nodes that most trees of a search fit into; a larger one means a new capture."""

Watch = Callable[[int, int, Reached], None]
"""Called with the place of a trial, a horizon, and what the trial has reached there, with its outputs."""


@dataclass(frozen=True)
class TrialPlan:
    """How trials of a task are run: by the task's `Plan`, which is recorded, in the memory that there is."""

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
    trial_bytes: int = 0
    """Predicted memory of one trial in a stack."""


class KeptStacks:
    """Stacks that are not in use, with their CUDA graphs, for later trials; the oldest make room for others.

    `room`: the bytes that they may take together.
    """

    def __init__(self, room: int) -> None:
        self._room, self._stacks = room, dict[Hashable, tuple[TrialStack, int]]()

    def take(self, key: Hashable) -> TrialStack | None:
        """Returns a stack that was kept under the key and is no longer kept; None if there is none."""
        stack, _ = self._stacks.pop(key, (None, 0))
        return stack

    def keep(self, key: Hashable, stack: TrialStack, size: int) -> None:
        """Keep a stack of that many bytes, unless it is larger than all room."""
        self._stacks.pop(key, None)
        self._stacks[key] = stack, size
        while sum(each for _, each in self._stacks.values()) > self._room:
            del self._stacks[next(iter(self._stacks))]

    def __bool__(self) -> bool:
        return bool(self._stacks)

    def clear(self) -> None:
        """Keep none of them."""
        self._stacks.clear()


class TrialRunner:
    """Runs lists of trials of one task; stacks and their CUDA graphs are kept from call to call.

    Args:
        setup: What all trials have in common; its seed and learning rate are not used.
        plan: How they are run.
        forest: Makes a forest for the task's outputs, from expressions and a width.
        kept: Where stacks are kept, which other runners may use, too.
    """

    def __init__(
        self, setup: TrainingSetup, plan: TrialPlan, forest: Callable[..., Forest], kept: KeptStacks
    ) -> None:  # fmt: skip
        self._setup, self._plan, self._forest, self._kept = setup, plan, forest, kept

    @property
    def is_padded(self) -> bool:
        """Whether stacks keep their size, whatever becomes of their trials."""
        return self._plan.is_padded

    def run(
        self, trials: Sequence[Trial], *, horizons: Sequence[int], test: bool = False, watch: Watch | None = None,
        report: StepsDone | None = None,
    ) -> list[list[Reached]]:  # fmt: skip
        """Train, and return the result of each trial at every horizon.

        Where memory is short, as other programs may use the device, stacks that wait for later trials are given up;
        if there are none, those in use are halved. Then the trials are begun again.

        Args:
            trials: The trials, in any order.
            horizons: Numbers of steps at which the trials are evaluated, increasing.
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
        results: list[list[Reached]] = [[] for _ in trials]
        waiting = self._parts(prepared, range(len(prepared)))
        steps, has_room = _CountedSteps(report), False
        while waiting:
            groups = waiting.pop(0)
            short_of_memory, before = "", steps.reported
            # Not twice in a row: a stack is kept before it is evaluated, so the one that failed may be there itself.
            can_make_room = bool(self._kept) and not has_room
            try:
                self._run_part(groups, prepared, horizons, results, test=test, watch=watch, report=steps)
            except (RuntimeError, MemoryError, UserCodeError) as error:
                is_known = any(results[place] for group in groups for place in group)
                if not is_out_of_memory(error) or is_known or not (can_make_room or self._can_halve(groups)):
                    raise
                short_of_memory = one_line(error)
            has_room = bool(short_of_memory)
            if short_of_memory:  # outside the handler, as the error's frames hold the stack
                steps.repeat(steps.reported - before)
                self._kept.clear()
                gc.collect()  # a stack and its step refer to each other
                if not can_make_room:
                    self._halve(len(groups) * self._members(max(map(len, groups))), short_of_memory)
                left = [place for some in (groups, *waiting) for group in some for place in group]
                waiting = self._parts(prepared, sorted(left))
        return results

    def _can_halve(self, groups: Sequence[Sequence[int]]) -> bool:
        """Whether the part can be run in smaller ones: its size may be fixed, or the smallest."""
        is_fixed = not self._plan.is_stacked or self._plan.is_padded
        return not is_fixed and len(groups) * self._members(max(map(len, groups))) > FEWEST_MEMBERS

    def _halve(self, places: int, reason: str) -> None:
        """From now on, let stacks have half of those places."""
        chunk = max(FEWEST_MEMBERS, places // 2)
        self._plan = dataclasses.replace(self._plan, chunk=chunk, step=min(self._plan.step, chunk))
        warnings.warn(f"memory is short, so at most {chunk} trials run together: {reason}", stacklevel=3)

    def _run_part(
        self, groups: Sequence[Sequence[int]], trials: Sequence[Trial], horizons: Sequence[int],
        results: list[list[Reached]], *, test: bool, watch: Watch | None, report: StepsDone | None,
    ) -> None:  # fmt: skip
        """Run the trials of one batch; it is in memory only until this method returns."""
        grouped = [[_with_own_loss(trials[place]) for place in places] for places in groups]
        places = [*itertools.chain(*groups)]
        options: dict[str, Any] = {
            "tested": set(horizons[-1:] if watch is None else horizons) if test else set(),
            "validation": watch is not None,
        }
        if self._plan.is_stacked:
            members = self._members(max(map(len, groups)))
            found = StackedTrials(self, grouped, members=members, steps=horizons[-1]).run(horizons, report, **options)
        else:
            flat = [*itertools.chain(*grouped)]
            forest = self._forest([FILLER], width=self._width(flat))
            found = looped_trials(self._setup, flat, forest, horizons, report, **options)
        for index, steps, reached in found:
            if watch is not None:
                watch(places[index], steps, reached)
                reached = Reached(reached.fitness)
            results[places[index]].append(reached)

    def _parts(self, trials: Sequence[Trial], chosen: Sequence[int]) -> list[list[list[int]]]:
        """Returns the batches of the trials at the chosen places: these, in groups of one seed and split.

        Groups of other splits than the task's own form their own batches, as they are evaluated on different rows.
        """
        groups: dict[tuple[bool, int, int], list[int]] = {}
        for place in chosen:
            trial = trials[place]
            groups.setdefault((trial.split != 0, trial.seed, trial.split), []).append(place)
        if not self._plan.is_stacked:
            return [list(groups.values())] if groups else []
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

    def _width(self, trials: Sequence[Trial]) -> int:
        sizes = (trial.loss.expression.size for trial in trials if isinstance(trial.loss, WeightedTree))
        return max(FIRST_WIDTH, fitting_width(max(sizes, default=1)))

    def take_stack(self, trials: Sequence[Trial], *, groups: int, members: int) -> TrialStack:
        """Returns a stack for the trials; `give_stack` makes it available again."""
        setup, plan, width = self._setup, self._plan, self._width(trials)
        stack = self._kept.take((self, groups, members, width)) if _are_trees(trials) else None
        if stack is not None:
            return stack

        def losses(places: int) -> StackLosses:
            return StackLosses(self._forest([FILLER] * places, width=width), dtype=setup.dtype)

        return TrialStack(
            setup, losses, groups=groups, members=members, evaluated_rows=plan.evaluated_rows, is_random=plan.is_random
        )

    def give_stack(self, stack: TrialStack, trials: Sequence[Trial]) -> None:
        """Keep a stack for later trials, if its losses are expressions: modules are part of its captured step."""
        if self._plan.is_recurring and _are_trees(trials):
            key = self, stack.groups, stack.members, self._width(trials)
            self._kept.keep(key, stack, stack.groups * stack.members * self._plan.trial_bytes)


def _with_own_loss(trial: Trial) -> Trial:
    """Returns the trial with a copy of its loss, if that may keep a state, as it was before any training."""
    if isinstance(trial.loss, WeightedTree) or not is_own(trial.loss):
        return trial
    return dataclasses.replace(trial, loss=copied(trial.loss, shares_parameters=True))


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
        self._ended: dict[int, Fitness] = {}
        self._steps = steps
        self._stack.start([_group(trials, self._stack.setup) for trials in groups], steps=steps)
        self._is_whole = True

    def run(
        self, horizons: Sequence[int], report: StepsDone | None, *, tested: Collection[int], validation: bool
    ) -> Iterator[tuple[int, int, Reached]]:
        """Train, and yield the place of a trial, a horizon and what the trial has reached there.

        `tested`: horizons at which to evaluate on the test split, too. `validation`: whether to return the outputs on
        the validation split.
        """
        for steps in horizons:
            self._advance(steps, report)
            if steps == horizons[-1] and self._is_whole:
                self._runner.give_stack(self._stack, self._trials)
            for place, reached in self._reached(steps in tested, validation):
                yield place, steps, reached

    def _advance(self, steps: int, report: StepsDone | None) -> None:
        while self._places and self._stack.steps_done < steps:
            span = min(steps, self._stack.steps_done + _STEPS_BETWEEN_PACKINGS)
            count = sum(map(len, self._places))
            self._stack.advance(span, None if report is None else _times(count, report))
            if span < steps:
                self._drop_diverged(report)

    def _reached(self, test: bool, validation: bool) -> Iterator[tuple[int, Reached]]:
        for place, fitness in self._ended.items():
            yield place, Reached(fitness)
        tested = self._stack.test_outputs() if test and self._places else None
        validated = self._stack.validated() if self._places else []
        for group, (places, own) in enumerate(zip(self._places, validated, strict=True)):
            for member, (place, (fitness, outputs)) in enumerate(zip(places, own, strict=True)):
                of_test = None if tested is None else tested[group][member]
                yield place, Reached(fitness, of_test, outputs if validation else None)

    def _drop_diverged(self, report: StepsDone | None) -> None:
        pairs = zip(itertools.chain(*self._places), itertools.chain(*self._stack.diverged()), strict=True)
        lost = {place: sentence for place, sentence in pairs if sentence}
        if 2 * len(lost) < self._stack.groups * self._stack.members or self._runner.is_padded:
            return
        self._ended |= {place: diverged_fitness(sentence) for place, sentence in lost.items()}
        members = [[member for member, place in enumerate(own) if place not in lost] for own in self._places]
        kept = ([place for place in places if place not in lost] for places in self._places)
        self._places, self._is_whole = [own for own in kept if own], False
        if self._places:
            self._stack.keep(members)
        if report is not None:
            report(len(lost) * (self._steps - self._stack.steps_done))  # the remaining steps are not taken


class _CountedSteps:
    """Reports steps, but not those that are taken again."""

    def __init__(self, report: StepsDone | None) -> None:
        self._report, self._repeated = report, 0
        self.reported = 0

    def repeat(self, steps: int) -> None:
        """So many steps will be taken again."""
        self.reported -= steps
        self._repeated += steps

    def __call__(self, steps: int) -> None:
        self.reported += steps
        known = min(steps, self._repeated)
        self._repeated -= known
        if self._report is not None and steps > known:
            self._report(steps - known)


def _times(count: int, report: StepsDone) -> StepsDone:
    """Count a step of a stack as one step of each of its trials."""
    return lambda steps: report(count * steps)


def _group(trials: Sequence[Trial], setup: TrainingSetup) -> Group:
    members = tuple(Member(trial.loss, trial.lr, trial.factor, trial.decay) for trial in trials)
    seed, split = trials[0].seed, trials[0].split
    return Group(seed, members, setup.resplit(split) if split else None)


def looped_trials(
    setup: TrainingSetup, trials: Sequence[Trial], forest: Forest, horizons: Sequence[int], report: StepsDone | None, *,
    tested: Collection[int], validation: bool,
) -> Iterator[tuple[int, int, Reached]]:  # fmt: skip
    """Train one trial after the other, each as `evomal.train` would; yield what `StackedTrials.run` yields.

    `forest`: room for one expression.
    """
    loss, whole = LoadedLoss(forest, dtype=setup.dtype), horizons[-1]
    training, last_key = None, None
    for place, trial in enumerate(trials):
        loss.load(trial.loss, trial.factor)
        key = trial.seed, trial.split, trial.decay, None if isinstance(trial.loss, WeightedTree) else trial.loss
        if training is None or key != last_key:  # else all that differs is in memory that can be written again
            training = None  # its memory is free before the next one needs some
            training, last_key = Training(_own_setup(setup, trial), loss), key
        training.start(trial.lr, whole)
        before_step = (lambda done: loss.set_progress(done / whole)) if loss.is_moving else None
        for steps in horizons:
            training.advance(steps, report, before_step=before_step)
            fitness, validated = training.validated()
            on_test = training.test_outputs() if steps in tested and not fitness.diverged else None
            yield place, steps, Reached(fitness, on_test, validated if validation else None)


def _own_setup(setup: TrainingSetup, trial: Trial) -> TrainingSetup:
    """Returns the setup with the seed, the weight decay and the split of a trial."""
    setup = dataclasses.replace(setup, seed=trial.seed, recipe=setup.recipe.with_decay(trial.decay))
    if not trial.split:
        return setup
    pool, rows = joined_parts(setup.data), setup.resplit(trial.split)
    return dataclasses.replace(setup, parts=(pool.select(rows[0]), pool.select(rows[1])))
