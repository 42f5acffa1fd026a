"""What a generation's work is done with: the numbers of the paper's sections 3 and 4, and how they are worked on."""

import math
from dataclasses import dataclass, field
from typing import Any, get_args

import torch

from evomal.engine.meta_gradient import Tangent
from evomal.engine.plans import PopulationMode
from evomal.engine.precision import Precision
from evomal.errors import InputError
from evomal.losses.expression_loss import ACTIVATIONS

_CHOICES: dict[str, tuple[Any, ...]] = {
    "activation": tuple(ACTIVATIONS),
    "tangent": (None, *get_args(Tangent)),
    "dtype": (torch.float32, torch.float64),
}


@dataclass(frozen=True)
class EngineSettings:
    """What the paper's sections 3 and 4 fix, and how it is worked on."""

    population: int = 25
    meta_steps: int = 250
    meta_lr: float = 1e-3
    inner_steps: int = 1
    training_steps: int = 500
    optimizer: str = "sgd"
    filter_steps: int = 1000
    filter_samples: int = 100
    activation: str = "identity"
    recipe: dict[str, Any] = field(default_factory=dict)
    """Changes to the task's own recipe: lr, momentum, nesterov, weight_decay, batch_size."""
    device: str = "auto"
    precision: Precision = "float32"
    channels_last: bool = False
    population_mode: PopulationMode = "auto"
    chunk: int | None = None
    graphs: bool = True
    tangent: Tangent | None = None
    """How Jacobian-vector products are had; None: what the model allows and measured best."""
    dtype: torch.dtype = torch.float32
    deterministic: bool = False
    """Whether CUDA must repeat its bits, which takes time; a CPU always does."""

    def __post_init__(self) -> None:
        for name in ("population", "meta_steps", "inner_steps", "training_steps", "filter_steps", "filter_samples"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number, at least 1, but got {value!r}")
        if not 0 < self.meta_lr < math.inf:
            raise InputError(f"meta_lr must be more than 0 but got {self.meta_lr}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                choices = ", ".join(map(str, known))
                raise InputError(f"{name} must be one of {choices} but got {getattr(self, name)!r}")
        if "steps" in self.recipe:
            raise InputError("a recipe's steps are given by training_steps here")
