"""Optimizers and schedules of trainings: torch's own by name, with options, or those that a function makes."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from evomal.checks import named, options_in
from evomal.errors import InputError
from evomal.text import short_repr
from evomal.users_code import described, users_code

OptimizerFactory = Callable[..., Optimizer]
"""Makes an optimizer from the list of trained parameters, or from the model if its first argument is called `model`."""

_OF_THE_RECIPE = ("lr", "weight_decay")
_HOW_IT_IS_COMPUTED = ("foreach", "fused", "capturable", "differentiable", "maximize")


def _by_name() -> dict[str, type[Optimizer]]:
    """Torch's optimizers that take a weight decay, as recipes have one, and need no closure."""
    classes = (value for value in vars(torch.optim).values() if isinstance(value, type))
    found = {
        kind.__name__.lower(): kind
        for kind in classes
        if issubclass(kind, Optimizer) and "weight_decay" in inspect.signature(kind).parameters
    }
    first = ("sgd", "adam", "adamw")
    return {name: found[name] for name in (*first, *sorted(found.keys() - first))}


OPTIMIZERS = _by_name()
"""The optimizers of trainings by name."""


def optimizer_named(spec: str) -> tuple[type[Optimizer], dict[str, Any]]:
    """Returns the class and the options of an optimizer written as `adamw` or `adamw:beta2=0.98,eps=1e-6`.

    Args:
        spec: The name and, after a colon, numbers that torch's class takes; `betas` are `beta1` and `beta2`.

    Raises:
        InputError: There is no such optimizer, it has no such option, or torch refuses its value.

    Example:
        >>> optimizer_named("adam:beta2=0.98,amsgrad=true")[1]
        {'betas': (0.9, 0.98), 'amsgrad': True}
    """
    name = spec.partition(":")[0]
    kind = named("optimizer", name, OPTIMIZERS)
    defaults = _options_of(kind)
    if kind is torch.optim.SGD:  # the recipe has them
        defaults = {option: value for option, value in defaults.items() if option not in ("momentum", "nesterov")}
    given: dict[str, Any] = dict(options_in(spec, defaults))
    betas = {option: given.pop(option, defaults[option]) for option in ("beta1", "beta2") if option in defaults}
    if any(value != defaults[option] for option, value in betas.items()):
        given = {"betas": tuple(betas.values()), **given}
    try:
        kind([torch.zeros(2, 2, requires_grad=True)], **given)
    except ValueError as error:
        raise InputError(f"the options of the optimizer {spec} are refused by torch: {error}") from None
    return kind, given


def _options_of(kind: type[Optimizer]) -> dict[str, float]:
    """Returns the numbers that an optimizer takes beside those of every recipe, with their defaults."""
    found: dict[str, float] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        default = parameter.default
        if name in (*_OF_THE_RECIPE, *_HOW_IT_IS_COMPUTED):
            continue
        if name == "betas":
            found |= {"beta1": default[0], "beta2": default[1]}
        elif isinstance(default, bool) or parameter.annotation in (int, "int"):
            found[name] = default
        elif isinstance(default, int | float):
            found[name] = float(default)
    return found


def takes_model(factory: OptimizerFactory) -> bool:
    """Whether the function makes the optimizer from the model, not from its parameters."""
    return next(iter(arguments_of(factory)), "") == "model"


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Returns the names of a function's arguments; none if Python does not know its signature."""
    try:
        return [*inspect.signature(function).parameters]
    except (TypeError, ValueError):
        return []


def function_name(given: str | Callable[..., Any]) -> str:
    """Returns the name of a function, that of the wrapped one for a `functools.partial`; a text as it is."""
    while isinstance(given, functools.partial):
        given = given.func
    return given if isinstance(given, str) else str(getattr(given, "__qualname__", type(given).__qualname__))


def rate_of_factory(factory: OptimizerFactory) -> float:
    """Returns the learning rate of the optimizer that the function makes, found by calling it with two parameters."""
    if takes_model(factory):
        raise InputError("lr must be given for an optimizer that is made from the model but got none")
    parameters = [nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))]
    try:
        return float(factory(parameters).defaults["lr"])
    except (Exception, SystemExit) as error:  # a user's function may raise anything
        raise InputError(
            f"lr must be given, as it cannot be read from the function that makes the optimizer: {described(error)}"
        ) from error


ScheduleFactory = Callable[..., LRScheduler]
"""Makes a scheduler from an optimizer and, if it has an argument called `steps`, the number of steps that it lasts."""

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
        raise InputError(f"the schedule of a recipe must make a torch scheduler but made {short_repr(given)}")
    if isinstance(found, ReduceLROnPlateau):
        raise InputError("a schedule must follow from the number of steps, but ReduceLROnPlateau needs a metric")
    if found.optimizer is not optimizer:
        raise InputError("the schedule of a recipe must make a scheduler for the optimizer that it is given")
    return found
