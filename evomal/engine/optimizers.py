"""The optimizer of a recipe on a model, its learning rates at every step, and what a record says about both."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from evomal.engine.rows import without_row_outputs
from evomal.errors import InputError
from evomal.tasks.optimizers import function_name, make_scheduler, optimizer_named, step_factor, takes_model
from evomal.tasks.recipe import Recipe
from evomal.text import short_repr
from evomal.users_code import users_code

_PROBED_STEPS = 100
_PLAIN_OPTIONS: dict[str, Any] = {"amsgrad": False, "maximize": False, "dampening": 0}
"""Options of optimizers that stacks do not have, with the value that leaves them out."""
_DIGITS = 16  # of a digest, as in the digests of data
LATER_FIELDS = ("optimizer", "schedule", "warmup", "clip")
"""Fields of recipes that older records do not have: they are recorded if they differ from their defaults."""


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters that a training may change."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def make_optimizer(recipe: Recipe, model: nn.Module, device: torch.device) -> Optimizer:
    """Returns the recipe's optimizer for the model; one given by its name is fused where torch has a fused form."""
    if not isinstance(recipe.optimizer, str):
        return _made_by_factory(recipe.optimizer, model, device)
    kind, options = optimizer_named(recipe.optimizer)
    options |= {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if kind in (SGD, Adam, AdamW) and device.type in ("cpu", "cuda"):
        options["fused"] = True
    if kind is SGD:
        # torch refuses Nesterov momentum of zero.
        options |= {"momentum": recipe.momentum, "nesterov": recipe.nesterov and recipe.momentum > 0}
    elif kind in (Adam, AdamW) and device.type == "cuda":
        options["capturable"] = True
    try:
        return kind(trained_parameters(model), **options)
    except ValueError as error:  # such as Muon's, which is for matrices only
        raise InputError(f"the optimizer {recipe.optimizer} cannot train this model: {error}") from None


def _made_by_factory(factory: Callable[..., Optimizer], model: nn.Module, device: torch.device) -> Optimizer:
    with users_code("the optimizer of the recipe"):
        found: Any = factory(without_row_outputs(model) if takes_model(factory) else trained_parameters(model))
    if not isinstance(found, Optimizer):
        raise InputError(f"the optimizer of a recipe must return an optimizer of torch but got {short_repr(found)}")
    if isinstance(found, torch.optim.LBFGS):
        raise InputError("the optimizer of a recipe must take a step without a closure, but LBFGS needs one")
    if type(found) in (SGD, Adam, AdamW) and device.type == "cuda":
        for group in found.param_groups:  # as for a name: other forms wait for the device, which cannot be captured
            group |= {"fused": True, "foreach": False}
            if "capturable" in group:
                group["capturable"] = True
    return found


def starts_from_zeros(optimizer: Optimizer) -> bool:
    """Whether its initial state is a state of zeros, so that it can be restarted in the memory it is in.

    Such an optimizer can be captured as a part of a CUDA graph. Others are made anew for each training.
    """
    plain = all(not group.get("dampening") for group in optimizer.param_groups)
    return type(optimizer) in (SGD, Adam, AdamW) and plain


class Schedule:
    """The learning rates, and other options, of an optimizer's groups at every step of a training.

    The scheduler belongs to an optimizer that takes no steps, so that the options can be had for any step, and for the
    many learning rates of a stack.

    Args:
        recipe: Schedule and warm-up.
        model: The model that is trained.
        device: Where it is.
        lr: The learning rate of the training.
        steps: The number of steps of a whole training.
    """

    def __init__(self, recipe: Recipe, model: nn.Module, device: torch.device, *, lr: float, steps: int) -> None:
        self._recipe = recipe
        self._make = functools.partial(make_optimizer, recipe, model, device)
        self._rates = [lr]
        if not isinstance(recipe.optimizer, str):
            made = self._make()
            own = float(made.defaults.get("lr") or recipe.lr)
            self._rates = [lr * (float(group["lr"]) / own) for group in made.param_groups]
        self._warmup = recipe.warmup_steps(steps)
        self._steps = steps
        self._scheduled: tuple[Optimizer, LRScheduler] | None = None
        self._initial: list[dict[str, Any]] = []
        self._changed: set[str] = {"lr"}
        self._position = 0

    @property
    def scheduler(self) -> LRScheduler | None:
        """The scheduler of torch, once it was needed."""
        return None if self._scheduled is None else self._scheduled[1]

    def at(self, step: int) -> list[dict[str, Any]]:
        """Returns for each group the options of the step that follows `step` steps."""
        recipe = self._recipe
        factor = (step + 1) / (self._warmup + 1) if step < self._warmup else 1.0
        if step < self._warmup or recipe.schedule in ("step", "constant"):
            factor *= step_factor(recipe.milestones, step)
            return [{"lr": rate * factor} for rate in self._rates]
        return self._scheduled_options(step - self._warmup)

    def _scheduled_options(self, step: int) -> list[dict[str, Any]]:
        if self._scheduled is None or step < self._position:
            optimizer, self._position = self._make(), 0
            for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate
            self._initial = _options_of_groups(optimizer)
            scheduler = make_scheduler(self._recipe.schedule, optimizer, self._steps - self._warmup)
            optimizer._opt_called = True  # type: ignore[attr-defined]  # or the scheduler would warn
            self._scheduled = optimizer, scheduler
            self._note_changes(optimizer)
        optimizer, scheduler = self._scheduled
        with users_code("the schedule of the recipe"):
            for _ in range(step - self._position):
                scheduler.step()
                self._note_changes(optimizer)
        self._position = step
        return [
            {name: value for name, value in group.items() if name in self._changed} for group in optimizer.param_groups
        ]

    def _note_changes(self, optimizer: Optimizer) -> None:
        """Note the options that the scheduler has ever changed: others may be changed by an optimizer that steps."""
        for group, initial in zip(optimizer.param_groups, self._initial, strict=True):
            self._changed |= {name for name, value in initial.items() if _differs(group[name], value)}


def _options_of_groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Returns the options of each group but the learning rate, which is set for every step."""
    groups = optimizer.param_groups
    return [{name: value for name, value in group.items() if name not in ("params", "lr")} for group in groups]


def changes_rates(recipe: Recipe, step: int) -> bool:
    """Whether the learning rate of a step may differ from that of the step before it."""
    if not recipe.is_stepwise or step == 0:
        return True
    return step_factor(recipe.milestones, step) != step_factor(recipe.milestones, step - 1)


def set_options(optimizer: Optimizer, options: list[dict[str, Any]]) -> bool:
    """Set the options of each group; returns whether a captured step has the old value of one as a constant."""
    changed = False
    for group, own in zip(optimizer.param_groups, options, strict=True):
        for name, value in own.items():
            current = group[name]
            if isinstance(current, Tensor) and name == "lr":
                current.fill_(value)
            elif _differs(current, value):
                group[name], changed = value, True
    return changed


def _differs(current: Any, value: Any) -> bool:
    return current is not value and not isinstance(value, Tensor) and bool(current != value)


class TrainingOptimizer:
    """Clips gradients and updates the parameters of a model, at the learning rates of a recipe.

    Args:
        recipe: Optimizer, schedule, warm-up and clipping.
        model: The model, on the device.
        device: The device.
        graphs: Whether steps are to be captured as CUDA graphs.
    """

    def __init__(self, recipe: Recipe, model: nn.Module, device: torch.device, *, graphs: bool) -> None:
        self._recipe, self._model, self._device = recipe, model, device
        self._optimizer = make_optimizer(recipe, model, device)
        self._trained = trained_parameters(model)
        self._is_kept = starts_from_zeros(self._optimizer)
        self.can_be_captured = graphs and self._is_kept and not option_in_schedule(recipe, model, device)
        """Whether a step may be captured: others count their steps, or change their options, in Python."""
        if self.can_be_captured and device.type == "cuda" and not recipe.is_stepwise:
            for group in self._optimizer.param_groups:  # tensors, which a captured step reads again
                group["lr"] = torch.tensor(float(group["lr"]), device=device)
        self._options = _options_of_groups(self._optimizer)

    def start(self, lr: float, steps: int) -> None:
        """Begin a training of that number of steps."""
        self._schedule = Schedule(self._recipe, self._model, self._device, lr=lr, steps=steps)
        if not self._is_kept:
            self._optimizer, self._is_reset = make_optimizer(self._recipe, self._model, self._device), False
            return
        # A schedule sets the options that it changes, and an earlier training may have ended with other ones.
        self._is_reset = set_options(self._optimizer, self._options)
        for state in self._optimizer.state.values():
            for value in state.values():
                value.zero_()

    def prepare(self, step: int) -> bool:
        """Set the options of the step; returns whether a captured step must be captured again."""
        changed = set_options(self._optimizer, self._schedule.at(step)) or self._is_reset
        self._is_reset = False
        return changed

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Clip the gradients, and update the parameters by them."""
        if self._recipe.clip is not None:
            nn.utils.clip_grad_norm_(self._trained, self._recipe.clip)
        self._optimizer.step()


def why_not_stacked(recipe: Recipe, model: nn.Module, device: torch.device) -> str:
    """Returns why models cannot be trained as one with this recipe, each at a learning rate of its own; else ""."""
    optimizer = make_optimizer(recipe, model, device)
    kind = type(optimizer)
    if kind not in (SGD, Adam, AdamW):
        return f"the optimizer {kind.__name__} is not one of SGD, Adam and AdamW"
    for group in optimizer.param_groups:
        for name, plain in _PLAIN_OPTIONS.items():
            if group.get(name, plain) != plain:
                return f"the optimizer has the option {name}"
        if any(isinstance(value, Tensor) for name in ("weight_decay", "betas") for value in _several(group.get(name))):
            return "options of the optimizer are tensors"
    name = option_in_schedule(recipe, model, device)
    return f"the schedule changes the optimizer's {name}" if name else ""


def option_in_schedule(recipe: Recipe, model: nn.Module, device: torch.device) -> str:
    """Returns the name of an option other than the learning rate that a function's schedule changes, or ""."""
    if isinstance(recipe.schedule, str):
        return ""
    optimizer = make_optimizer(recipe, model, device)
    schedule = Schedule(recipe, model, device, lr=recipe.lr, steps=_PROBED_STEPS)
    names = (changed_option(optimizer, schedule.at(step)) for step in range(_PROBED_STEPS))
    return next(filter(None, names), "")


def changed_option(optimizer: Optimizer, options: list[dict[str, Any]]) -> str:
    """Returns the name of an option other than the learning rate that differs from the optimizer's, or ""."""
    for group, own in zip(optimizer.param_groups, options, strict=True):
        for name, value in own.items():
            if name != "lr" and value != group[name]:
                return name
    return ""


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def recipe_record(recipe: Recipe, model: nn.Module) -> dict[str, Any]:
    """Returns the recipe for a record.

    A function is recorded by its name and a digest of what it makes for the model.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        if field.name in LATER_FIELDS and value == field.default:
            continue
        found[field.name] = value
    if not isinstance(recipe.optimizer, str):
        made = make_optimizer(recipe, model, torch.device("cpu"))
        groups = [
            {**group, "params": [tuple(parameter.shape) for parameter in group["params"]]}
            for group in made.param_groups
        ]
        found["optimizer"] = _identity(recipe.optimizer, made, [made.defaults, groups])
    if not isinstance(recipe.schedule, str):
        schedule = Schedule(recipe, model, torch.device("cpu"), lr=recipe.lr, steps=_PROBED_STEPS)
        options = [schedule.at(step) for step in range(_PROBED_STEPS)]
        found["schedule"] = _identity(recipe.schedule, schedule.scheduler, options)
    return found


def _identity(factory: Callable[..., Any], made: object, content: object) -> dict[str, str]:
    text = hashlib.sha256(repr(_plain(content)).encode()).hexdigest()
    return {"function": function_name(factory), "makes": type(made).__qualname__, "digest": text[:_DIGITS]}


def _plain(value: Any) -> Any:
    """Returns the value without objects whose text differs from process to process."""
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Tensor):
        return value.tolist()
    return value if isinstance(value, str | int | float | None) else type(value).__qualname__
