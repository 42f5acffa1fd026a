"""A recipe: how a model is trained on a task."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from evomal.checks import MOST_STEPS, finite_number, whole_number
from evomal.errors import InputError
from evomal.text import short_repr


@dataclass(frozen=True)
class Recipe:
    """How a model is trained on a task: the values that `train`, `search` and `compare` use unless others are given.

    Args:
        steps: The number of steps of a full training.
        lr: The learning rate.
        momentum: The momentum of SGD.
        nesterov: Whether the momentum is Nesterov's.
        weight_decay: The weight decay.
        batch_size: The number of samples in a batch.
        milestones: The steps at which the learning rate is divided by ten.

    Raises:
        InputError: If a number is out of range.

    Example:
        >>> Recipe(steps=3_000, lr=0.1, milestones=(2_000,)).for_steps(300).milestones
        (200,)
    """

    steps: int = 10_000
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    batch_size: int = 128
    milestones: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            whole_number(name, getattr(self, name), at_least=1, at_most=MOST_STEPS)
        if not isinstance(self.milestones, Sequence):
            raise InputError(f"milestones must be a list of steps but got {short_repr(self.milestones)}")
        for milestone in self.milestones:
            whole_number("milestones", milestone, at_least=1, at_most=MOST_STEPS)
        for name in ("momentum", "weight_decay"):
            finite_number(name, getattr(self, name), at_least=0)
        finite_number("lr", self.lr, above=0)

    def for_steps(self, steps: int | None, milestones: tuple[int, ...] | None = None) -> "Recipe":
        """Return the recipe for a training of another length.

        Args:
            steps: The number of steps; None: the recipe's own.
            milestones: The milestones; None: the recipe's, at the same fractions of the training.
        """
        steps = self.steps if steps is None else steps
        if milestones is None:
            milestones = tuple(max(1, round(milestone * steps / self.steps)) for milestone in self.milestones)
        return dataclasses.replace(self, steps=steps, milestones=milestones)
