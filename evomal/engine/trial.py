"""One training of a task's model, and its result."""

from dataclasses import dataclass

from torch import Tensor, nn

from evomal.engine.scores import Fitness
from evomal.losses.loss import WeightedTree


@dataclass(frozen=True)
class Trial:
    """One training: a loss, a learning rate, a seed and a split.

    Args:
        loss: A module, or an expression with its weights.
        lr: The learning rate.
        seed: Determines initial weights, batches, augmentation and dropout.
        factor: What the loss is multiplied by.
        split: The number of another split of training and validation rows; 0 is the task's own.
    """

    loss: nn.Module | WeightedTree
    lr: float
    seed: int
    factor: float = 1.0
    split: int = 0


@dataclass(frozen=True)
class Reached:
    """The result of a trial after some steps."""

    fitness: Fitness
    tested: tuple[Tensor, Tensor] | None = None
    """Outputs and targets of the test split, where asked for."""
