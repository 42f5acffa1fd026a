"""A recipe: how a model is trained on a task."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from evomal.checks import MOST_STEPS, finite_number, unknown_name, whole_number
from evomal.errors import InputError
from evomal.tasks.optimizers import (
    OptimizerFactory,
    ScheduleFactory,
    function_name,
    optimizer_named,
    rate_of_factory,
    schedule_named,
)
from evomal.text import short_repr

if TYPE_CHECKING:
    from evomal.settings import SearchSettings

_DEFAULT_RATE = 0.01
_OF_A_FACTORY = ("momentum", "nesterov", "weight_decay")


@dataclass(frozen=True)
class Recipe:
    """How a model is trained on a task: the values that `train`, `search` and `compare` use unless others are given.

    Args:
        steps: The number of steps of a full training.
        lr: The learning rate; None: 0.01, or that of the optimizer which a function makes. It is the highest one of
            the schedule, and the one that searches and comparisons tune. A group of parameters with a learning rate
            of its own keeps its ratio to that of its optimizer.
        momentum: The momentum of SGD.
        nesterov: Whether the momentum is Nesterov's.
        weight_decay: The weight decay.
        batch_size: The number of samples in a batch.
        milestones: The steps at which the schedule `step` divides the learning rate by ten.
        optimizer: The name of a torch optimizer in lower case, with options as in `adamw:beta2=0.98,eps=1e-6`, or
            a function from the list of trained parameters to an optimizer; if its argument is called `model`, it is
            given the model. The function decides on momentum and weight decay.
        schedule: `step`, `constant`, `linear`, `cosine` (both with the option `end`, a share of the learning rate),
            `one-cycle`, or a function from an optimizer to a torch scheduler, which is stepped after every training
            step; if it has an argument called `steps`, it is given the number of steps that it lasts.
        warmup: The number of steps, or as a float the share of all steps, in which the learning rate rises linearly;
            the schedule begins after them. A shorter training has a shorter warm-up.
        clip: The norm to which the gradient by all parameters is clipped; None: it is not clipped.

    Raises:
        InputError: If a number is out of range, or there is no such optimizer or schedule.

    Example:
        >>> Recipe(steps=3_000, lr=0.1, milestones=(2_000,)).for_steps(300).milestones
        (200,)
        >>> Recipe(optimizer="adamw", lr=3e-4, schedule="cosine", warmup=0.1, clip=1.0).warmup_steps(300)
        30
    """

    steps: int = 10_000
    lr: float = cast("float", None)  # a number after __post_init__
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    batch_size: int = 128
    milestones: tuple[int, ...] = ()
    optimizer: str | OptimizerFactory = "sgd"
    schedule: str | ScheduleFactory = "step"
    warmup: int | float = 0
    clip: float | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            whole_number(name, getattr(self, name), at_least=1, at_most=MOST_STEPS)
        if not isinstance(self.milestones, Sequence):
            raise InputError(f"milestones must be a list of steps but got {short_repr(self.milestones)}")
        for milestone in self.milestones:
            whole_number("milestones", milestone, at_least=1, at_most=MOST_STEPS)
        for name in ("momentum", "weight_decay"):
            finite_number(name, getattr(self, name), at_least=0)
        _check("optimizer", self.optimizer, optimizer_named)
        _check("schedule", self.schedule, schedule_named)
        if self.milestones and self.schedule != "step":
            given = short_repr(self.schedule)
            raise InputError(f"milestones are for the schedule step, but the schedule is {given}")
        if isinstance(self.warmup, float):
            finite_number("warmup", self.warmup, at_least=0, below=1)
        else:
            whole_number("warmup", self.warmup, at_least=0, at_most=self.steps - 1)
        if self.warmup and isinstance(self.schedule, str) and self.schedule.startswith("one-cycle"):
            raise InputError(
                f"warmup must be 0 for the schedule one-cycle, which rises by itself, but got {self.warmup}: set its "
                "rise, as in one-cycle:rise=0.1"
            )
        if self.clip is not None:
            finite_number("clip", self.clip, above=0)
        if self.lr is None:
            found = _DEFAULT_RATE if isinstance(self.optimizer, str) else rate_of_factory(self.optimizer)
            object.__setattr__(self, "lr", found)
        finite_number("lr", self.lr, above=0)

    @property
    def is_stepwise(self) -> bool:
        """Whether the learning rate changes at milestones only."""
        return self.schedule in ("step", "constant") and not self.warmup

    @property
    def words(self) -> str:
        """What sets the recipe apart from SGD with milestones, in words; empty if nothing does.

        Example:
            >>> Recipe(optimizer="adamw", schedule="cosine", warmup=0.1, clip=1.0).words
            'adamw, cosine schedule, warm-up of 10 %, gradients clipped at 1'
        """
        return ", ".join([*([] if self.optimizer == "sgd" else [function_name(self.optimizer)]), *self._further])

    @property
    def summary(self) -> str:
        """What a training needs besides its steps and its learning rate, in words.

        Example:
            >>> Recipe(clip=1.0).summary
            'sgd, momentum 0.9 (Nesterov), weight decay 0.0005, batches of 128, gradients clipped at 1'
        """
        found = [function_name(self.optimizer)]
        if self.optimizer == "sgd" and self.momentum:
            found.append(f"momentum {self.momentum:g}{' (Nesterov)' if self.nesterov else ''}")
        if isinstance(self.optimizer, str) and self.weight_decay:  # a function decides itself
            found.append(f"weight decay {self.weight_decay:g}")
        found.append(f"batches of {self.batch_size}")
        if self.milestones:
            found.append(f"learning rate divided by ten at steps {', '.join(map(str, self.milestones))}")
        return ", ".join([*found, *self._further])

    @property
    def _further(self) -> list[str]:
        """Schedule, warm-up and clipping, where there are any."""
        found = []
        if self.schedule != "step":
            found.append(f"{function_name(self.schedule)} schedule")
        if self.warmup:
            share = self.warmup if isinstance(self.warmup, float) else self.warmup / self.steps
            found.append(f"warm-up of {100 * share:.3g} %")
        if self.clip is not None:
            found.append(f"gradients clipped at {self.clip:g}")
        return found

    def warmup_steps(self, steps: int) -> int:
        """Return the number of warm-up steps of a training of that many steps."""
        whole_number("steps", steps, at_least=1, at_most=MOST_STEPS)
        if not isinstance(self.warmup, float) and steps == self.steps:
            return self.warmup
        share = self.warmup if isinstance(self.warmup, float) else self.warmup / self.steps
        return min(steps - 1, round(share * steps))

    def for_steps(self, steps: int | None, milestones: tuple[int, ...] | None = None) -> "Recipe":
        """Return the recipe for a training of another length.

        Args:
            steps: The number of steps; None: the recipe's own.
            milestones: The milestones; None: the recipe's, at the same fractions of the training.
        """
        steps = self.steps if steps is None else whole_number("steps", steps, at_least=1, at_most=MOST_STEPS)
        if milestones is None:
            milestones = tuple(max(1, round(milestone * steps / self.steps)) for milestone in self.milestones)
        warmup = self.warmup if steps == self.steps or isinstance(self.warmup, float) else self.warmup / self.steps
        return dataclasses.replace(self, steps=steps, milestones=milestones, warmup=warmup)

    @property
    def has_decay(self) -> bool:
        """Whether there is a weight decay that trials can multiply; a function that makes an optimizer has its own."""
        return isinstance(self.optimizer, str) and self.weight_decay > 0

    def with_decay(self, multiple: float) -> "Recipe":
        """Return the recipe with a multiple of its weight decay.

        Raises:
            InputError: If the multiple is negative, or is not 1 although a function makes the optimizer.
        """
        multiple = finite_number("multiple", multiple, at_least=0)
        return self if multiple == 1 else self.changed(weight_decay=self.weight_decay * multiple)

    def changed(self, **changes: Any) -> "Recipe":
        """Return the recipe with some values changed.

        Another schedule than `step` has no milestones, and a function that makes an optimizer decides on the learning
        rate where none is given.

        Raises:
            InputError: If a value is out of range, or belongs to the optimizer that a function makes.
        """
        for name in changes:
            if name not in (known := [field.name for field in dataclasses.fields(self)]):
                raise unknown_name("value of a recipe", name, known)
        if not isinstance(changes.get("optimizer", self.optimizer), str):
            for name in _OF_A_FACTORY:
                if name in changes:
                    raise InputError(
                        f"{name} cannot be changed to {changes[name]}, as a function makes the recipe's optimizer and "
                        "decides on it"
                    )
        if not isinstance(changes.get("optimizer", "sgd"), str):
            changes = {"lr": None, **changes}
        if changes.get("schedule", self.schedule) != "step":
            changes = {"milestones": (), **changes}
        return dataclasses.replace(self, **changes)


def final_recipe(recipe: Recipe, settings: "SearchSettings") -> Recipe:
    """Return the recipe of full trainings: the task's with the changes of the settings."""
    changes = settings.recipe_changes()
    for name in ("optimizer", "milestones"):
        if getattr(settings, name) is not None:
            changes[name] = getattr(settings, name)
    return recipe.for_steps(settings.final_steps).changed(**changes)


def _check(name: str, value: Any, check_name: Any) -> None:
    """Raise unless the value is a known name or a function."""
    if isinstance(value, str):
        check_name(value)
    elif not callable(value):
        raise InputError(f"{name} must be a name or a function that makes one but got {short_repr(value)}")
