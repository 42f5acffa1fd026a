"""Fresh base weights θ0 for every meta step, the same for every candidate that takes that step."""

import torch
from torch import Tensor, nn

from evomal.engine.choices import initial_model
from evomal.engine.functional_model import FunctionalModel
from evomal.tasks.task import Task

_KEPT_BYTES = {"cuda": 8 * 2**30, "cpu": 2 * 2**30}  # what is beyond is made again in each generation


class Starts:
    """`starts[step]`: the parameters of that meta step as one vector on the device."""

    def __init__(self, task: Task, model: FunctionalModel, *, seed: int) -> None:
        self._task, self._model, self._seed = task, model, seed
        size = model.size * model.flat.element_size()
        self._room = _KEPT_BYTES.get(model.device.type, _KEPT_BYTES["cpu"]) // size
        self._kept: dict[int, Tensor] = {}
        self._module: nn.Module | None = None

    def __getitem__(self, step: int) -> Tensor:
        return self.at(step)

    def at(self, step: int, *, keep: bool = True) -> Tensor:
        """The parameters of that step, kept for the next who asks where there is room, unless nobody will."""
        if step in self._kept:
            return self._kept[step]
        self._module = initial_model(self._task, self._seed, "meta step", step, reuse=self._module)
        flat = self._model.flattened(self._module).to(self._model.device)
        if keep and len(self._kept) < self._room:
            self._kept[step] = flat
        return flat

    def bytes_of(self, steps: int) -> int:
        """Memory of the starts of so many steps, as far as they are kept."""
        return min(steps, self._room) * self._model.size * self._model.flat.element_size()

    def prepare(self, steps: int) -> None:
        """Make the first starts now, so that what comes after can be timed or captured without them."""
        with torch.no_grad():
            for step in range(min(steps, self._room)):
                self[step]
