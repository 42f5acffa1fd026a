"""The optimizer of one training: it can be started again, and be saved and restored between two steps."""

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evomal.engine.optimizers import (
    Schedule,
    make_optimizer,
    option_in_schedule,
    set_options,
    starts_from_zeros,
    trained_parameters,
)
from evomal.tasks.recipe import Recipe


class SavedState(NamedTuple):
    """What an optimizer knows about the steps it has taken."""

    of_parameters: list[dict[str, tuple[Any, torch.device | None]]]
    """For each parameter the values of its state, tensors as copies in the memory of the host, and where they were."""
    of_groups: list[dict[str, Any]]
    """The options of each group, which some optimizers change in their steps; none for those of torch that do not."""


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
            for group in self._optimizer.param_groups:  # numbers that a captured step reads
                group["lr"] = torch.tensor(float(group["lr"]), device=device)
        self._options = self._options_of_groups() if self._is_kept else []
        self._set_schedule(recipe.lr, recipe.steps)

    def _set_schedule(self, lr: float, steps: int) -> None:
        self.lr, self.steps = lr, steps
        self._schedule = Schedule(self._recipe, self._model, self._device, lr=lr, steps=steps)
        # A schedule sets the options that it changes, and an earlier training may have ended with other ones.
        self._is_reset = set_options(self._optimizer, self._options) if self._is_kept else False

    def _options_of_groups(self) -> list[dict[str, Any]]:
        """Returns the options of each group but the learning rate, which is set for every step."""
        groups = self._optimizer.param_groups
        return [{name: value for name, value in group.items() if name not in ("params", "lr")} for group in groups]

    def start(self, lr: float | None, steps: int | None) -> None:
        """Begin a training; None: with the learning rate and the number of steps of the recipe."""
        self._set_schedule(self._recipe.lr if lr is None else lr, self._recipe.steps if steps is None else steps)
        if not self._is_kept:
            self._optimizer = make_optimizer(self._recipe, self._model, self._device)
        for state in self._optimizer.state.values() if self._is_kept else ():
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

    def saved(self) -> SavedState:
        """Returns a copy of the state, for `restore`."""
        of_parameters: list[dict[str, tuple[Any, torch.device | None]]] = [
            {
                name: (value.to("cpu", copy=True), value.device)
                if isinstance(value, Tensor)
                else (copy.deepcopy(value), None)
                for name, value in self._optimizer.state[parameter].items()
            }
            for parameter in self._trained
        ]
        return SavedState(of_parameters, [] if self._is_kept else copy.deepcopy(self._options_of_groups()))

    def restore(self, saved: SavedState, *, lr: float, steps: int) -> None:
        """Continue a training; tensors that exist already keep their memory."""
        self._set_schedule(lr, steps)
        for parameter, values in zip(self._trained, saved.of_parameters, strict=True):
            state = self._optimizer.state[parameter]
            for name, (value, device) in values.items():
                if isinstance(value, Tensor) and isinstance(state.get(name), Tensor):
                    state[name].copy_(value)
                else:
                    state[name] = copy.deepcopy(value) if device is None else value.to(device, copy=True)
        for group, options in zip(self._optimizer.param_groups, saved.of_groups, strict=False):
            group.update(copy.deepcopy(options))
