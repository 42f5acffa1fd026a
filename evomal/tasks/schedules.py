"""Schedules of learning rates: torch's schedulers by name, with options, or made by a function."""

import math
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from evomal.checks import named, options_in
from evomal.errors import InputError
from evomal.tasks.optimizers import arguments_of
from evomal.text import short_repr
from evomal.users_code import users_code

ScheduleFactory = Callable[..., LRScheduler]
"""Makes a scheduler of an optimizer and, where it has an argument called `steps`, of the steps that it lasts."""

_DECAY = 0.1  # of the learning rate at a milestone
_OPTIONS: dict[str, dict[str, float]] = {
    "step": {},
    "constant": {},
    "linear": {"end": 0.0},
    "cosine": {"end": 0.0},
    "one-cycle": {"rise": 0.3},
}

SCHEDULES = tuple(_OPTIONS)
"""The names of schedules: `step` divides the learning rate by ten at each milestone; `linear` and `cosine` lower it to
the share `end`; `one-cycle` raises it from a 25th for the share `rise` of the steps, then lowers it to almost zero."""


def schedule_named(spec: str) -> tuple[str, dict[str, float]]:
    """Returns the name and the options of a schedule written as `cosine` or `cosine:end=0.1`.

    Raises:
        InputError: There is no such schedule, it has no such option, or the option is not between 0 and 1.

    Example:
        >>> schedule_named("cosine:end=0.1")
        ('cosine', {'end': 0.1})
    """
    name = spec.partition(":")[0]
    options = {**named("schedule", name, _OPTIONS), **options_in(spec, _OPTIONS[name])}
    for option, value in options.items():
        if not 0 <= value <= 1:
            raise InputError(f"{name}: {option} must be from 0 to 1 but got {value:g}")
    return name, options


def step_factor(milestones: tuple[int, ...], step: int) -> float:
    """Returns what the learning rate is multiplied by at that step, because of milestones before it."""
    return _DECAY ** sum(milestone <= step for milestone in milestones)


def make_scheduler(schedule: str | ScheduleFactory, optimizer: Optimizer, steps: int) -> LRScheduler:
    """Returns torch's scheduler for an optimizer that has its highest learning rates now.

    Args:
        schedule: A name other than `step` and `constant`, or a function that makes a scheduler.
        optimizer: The optimizer.
        steps: The number of steps that the schedule lasts.
    """
    if not isinstance(schedule, str):
        return _made_by(schedule, optimizer, steps)
    name, options = schedule_named(schedule)
    if name == "linear":
        return LinearLR(optimizer, start_factor=1.0, end_factor=options["end"], total_iters=steps)
    if name == "cosine" and not options["end"]:
        return CosineAnnealingLR(optimizer, T_max=steps)
    if name == "cosine":  # every group ends at a share of its own rate, for which torch's class has no argument
        end = options["end"]
        return LambdaLR(optimizer, lambda step: end + (1 - end) * (1 + math.cos(math.pi * step / steps)) / 2)
    rates, total = [float(group["lr"]) for group in optimizer.param_groups], max(2, steps)
    rise = max(options["rise"], 2 / total)  # torch divides by zero where the rise ends with the first step
    return OneCycleLR(optimizer, rates, total_steps=total, pct_start=rise, cycle_momentum=False)


def _made_by(factory: ScheduleFactory, optimizer: Optimizer, steps: int) -> LRScheduler:
    with users_code("the schedule of the recipe"):
        found = factory(optimizer, steps=steps) if "steps" in arguments_of(factory) else factory(optimizer)
    given: Any = found
    if not isinstance(given, LRScheduler):
        raise InputError(f"the schedule of a recipe must make a scheduler of torch but made a {short_repr(given)}")
    if isinstance(found, ReduceLROnPlateau):
        raise InputError("a schedule must follow from the number of steps, but ReduceLROnPlateau needs a metric")
    if found.optimizer is not optimizer:
        raise InputError("the schedule of a recipe must make a scheduler of the optimizer that it is given")
    return found
