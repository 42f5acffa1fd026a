"""The settings of an engine: numbers of the paper's sections 3 and 4, and how the work is executed."""

from dataclasses import dataclass, field
from typing import Any

import torch

from evomal.engine.meta_gradient import Tangent
from evomal.engine.plans import PopulationMode
from evomal.engine.precision import Precision


@dataclass(frozen=True)
class EngineSettings:
    """Settings of an `Engine`. They are not checked here: those of a user come from `SearchSettings`, which does."""

    population: int = 25
    meta_steps: int = 250
    meta_lr: float = 1e-3
    inner_steps: int = 1
    training_steps: int = 500
    optimizer: str | None = None
    """The name of an optimizer; None: that of the task's recipe."""
    filter_steps: int = 1000
    filter_samples: int = 100
    activation: str = "identity"
    space: tuple[str, ...] = ("paper",)
    """Names of the operators and terminals that expressions may have: see `Space.of`."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """Changes to the task's own recipe beside the optimizer, such as lr, batch_size, milestones, schedule."""
    device: str = "auto"
    precision: Precision = "float32"
    channels_last: bool = False
    population_mode: PopulationMode = "auto"
    chunk: int | None = None
    graphs: bool = True
    tangent: Tangent | None = None
    """How Jacobian-vector products are computed; None: the fastest way that the model allows."""
    dtype: torch.dtype = torch.float32
    threads: int | None = None
    """Threads of torch and of compiled kernels; None: by a fixed rule on the work of a training step."""
    deterministic: bool = False
    """Whether CUDA must repeat its bits, which takes time; a CPU always does."""

    @property
    def is_extended(self) -> bool:
        """Whether expressions may have other tokens than the paper's; the kernels for those are compiled apart."""
        return self.space != ("paper",)
