"""Fresh base weights θ0 for every meta step, the same for every candidate that takes that step."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evomal.engine.functional_model import FunctionalModel
from evomal.engine.meta_gradient import MetaBatch, TaskLoss
from evomal.engine.plans import capabilities
from evomal.engine.precision import Precision
from evomal.engine.resolve import check_outputs, check_targets, initial_model
from evomal.errors import InputError
from evomal.tasks.batches import Batches
from evomal.tasks.task import Task

_KEPT_BYTES = {"cuda": 8 * 2**30, "cpu": 2 * 2**30}  # what is beyond is made again in each generation


class InitialWeights:
    """`initial_weights[step]`: the parameters of that meta step as one vector on the device."""

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
        """Bytes of the weights that are kept for that number of steps."""
        return min(steps, self._room) * self._model.size * self._model.flat.element_size()

    def prepare(self, steps: int) -> None:
        """Draw the weights of the first steps now, so that later steps can be timed or captured without it."""
        with torch.no_grad():
            for step in range(min(steps, self._room)):
                self[step]


class TaskData:
    """What step i reads, the same for every candidate; a captured step finds the next one's in the same place."""

    def __init__(
        self, task: Task, *, seed: int, inner_steps: int, batch_size: int, device: torch.device,
        dtype: torch.dtype, precision: Precision, channels_last: bool,
    ) -> None:  # fmt: skip
        self.task, self.inner_steps = task, inner_steps
        if task.model() is task.model():
            raise InputError("a task's model must make a fresh model at each call but made the same one twice")
        check_targets(task)
        module = initial_model(task, seed, "meta step", 0)
        self.model = FunctionalModel(
            module, device=device, dtype=dtype, precision=precision, channels_last=channels_last
        )
        self.initial_weights = InitialWeights(task, self.model, seed=seed)
        self.train, self.validation = task.train.to(device, dtype), task.validation.to(device, dtype)
        purposes = [f"meta training {step}" for step in range(inner_steps)]
        parts = [self.train] * inner_steps + [self.validation]
        self._batches = [
            Batches(len(part), batch_size, seed=seed, purpose=purpose, device=device)
            for part, purpose in zip(parts, [*purposes, "meta validation"], strict=True)
        ]
        self._rows = [torch.zeros(batches.size, dtype=torch.int64, device=device) for batches in self._batches]
        self.augmenting = torch.Generator(device)
        self.model.flat.copy_(self.initial_weights[0])
        self.capabilities = capabilities(self.model, module, self.train.inputs[:4])
        check_outputs(task, self.capabilities.outputs)
        self.task_loss = task_loss_of(task.kind, self.capabilities.outputs)

    def bytes_kept(self, steps: int) -> int:
        """Bytes of the data and of the initial weights of that number of steps."""
        tensors = (part.inputs for part in (self.train, self.validation))
        return self.initial_weights.bytes_of(steps) + sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def begin_step(self, step: int, *, keep: bool = True) -> None:
        """Copy the step's θ0 and rows to where the step reads them; `keep`: others will take the same step."""
        self.model.flat.copy_(self.initial_weights.at(step, keep=keep))
        for rows, batches in zip(self._rows, self._batches, strict=True):
            rows.copy_(batches[step])

    def batch(self) -> MetaBatch:
        """What the step sees: augmented where the task's training is, but not in validation."""
        inner = []
        for rows in self._rows[:-1]:
            inputs = self.train.inputs.index_select(0, rows)
            if self.task.augmentation is not None:
                inputs = self.task.augmentation(inputs, generator=self.augmenting)
            inner.append((inputs, self.train.targets.index_select(0, rows)))
        rows = self._rows[-1]
        validation = self.validation.inputs.index_select(0, rows), self.validation.targets.index_select(0, rows)
        return MetaBatch(tuple(inner), validation)


def task_loss_of(kind: str, outputs: int) -> TaskLoss:
    """The loss a task is meant to lower: squared error or cross-entropy."""
    if kind == "regression":
        return F.mse_loss
    if kind == "classification" and outputs > 1:
        return F.cross_entropy
    return lambda logits, bits: F.binary_cross_entropy_with_logits(logits, bits.to(logits.dtype).reshape(logits.shape))
