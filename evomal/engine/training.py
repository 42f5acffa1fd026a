"""The training loop: one model, one loss, batches that are row numbers, steps that CUDA may replay."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.precision import Precision, autocast
from evomal.engine.resolve import check_model, initial_model, make_optimizer
from evomal.randomness import derived_seed, reseed_torch
from evomal.tasks.batches import Batches
from evomal.tasks.metrics import Metric
from evomal.tasks.task import Part, Recipe, Task

STEPS_BETWEEN_CHECKS = 50  # looking at a loss waits for the device, so divergence is noticed a little late
_EVALUATION_BATCH = 1024
_DECAY = 0.1  # of the learning rate at a milestone


@dataclass(frozen=True)
class ExecutionOptions:
    """How a training runs, beyond what it computes."""

    device: torch.device
    precision: Precision = "float32"
    channels_last: bool = False
    graphs: bool = True
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Divergence:
    """Where a training was noticed to have diverged."""

    step: int
    sentence: str


class Training:
    """A model on its way from the seed's weights; it can be sent back to the start, as often as there are losses.

    To be used inside `isolated_torch`: dropout draws from torch's global generators, which are seeded at the start.
    """

    def __init__(
        self, task: Task, criterion: nn.Module, recipe: Recipe, optimizer: str, seed: int, execution: ExecutionOptions,
        *, parts: tuple[Part, Part] | None = None,
    ) -> None:  # fmt: skip
        """`parts`: training and validation data that lie on the device already, for those who share them."""
        device, dtype = execution.device, execution.dtype
        self.task, self.criterion, self.recipe, self.seed, self.execution = task, criterion, recipe, seed, execution
        self.model = initial_model(task, seed).to(device, dtype)
        if execution.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        check_model(self.model, task, device, dtype)
        self._initial = {name: value.detach().clone() for name, value in self._state().items()}
        self._data, self._validation = parts or (task.train.to(device, dtype), task.validation.to(device, dtype))
        self._trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self._batches = Batches(len(self._data), recipe.batch_size, seed=seed, purpose="training", device=device)
        self._optimizer = make_optimizer(optimizer, self._trained, recipe, device)
        self._augmenting = torch.Generator(device)
        self._rows = torch.empty(self._batches.size, dtype=torch.int64, device=device)
        self.value = torch.zeros((), dtype=dtype, device=device)
        self._sum = torch.zeros_like(self.value)  # of all losses: once one was not finite, neither is it
        generators = (self._augmenting,) if task.augmentation else ()
        self.step = GraphedStep(self._step, device=device, generators=generators, enabled=execution.graphs)
        self._begin()

    def restart(self) -> None:
        """Back to the initial weights, with everything in the memory it is in."""
        with torch.no_grad():
            for name, value in self._state().items():
                value.copy_(self._initial[name])
        self._sum.zero_()
        reset_optimizer(self._optimizer)
        if set_learning_rate(self._optimizer, self.recipe.lr):
            self.step.forget()
        self._begin()

    def advance(self, steps: Iterable[int], on_step: Callable[[int], None] | None = None) -> Divergence | None:
        """Take the steps of these numbers; `on_step` is called after each with the number of steps done."""
        self.model.train()
        done = 0
        for index in steps:
            if set_learning_rate(self._optimizer, learning_rate_at(self.recipe, index)):
                self.step.forget()
            self._rows.copy_(self._batches[index])
            self.step()
            done = index + 1
            if on_step is not None:
                on_step(done)
            if done % STEPS_BETWEEN_CHECKS == 0 and (divergence := self._divergence(done)):
                return divergence
        return self._divergence(done)

    def validated(self) -> float:
        """The task's metric on the validation split, as things stand; NaN where the outputs are not finite."""
        return measured(self.task.metric, *self.validation_outputs())

    def validation_outputs(self) -> tuple[Tensor, Tensor]:
        """What the model gives for the validation split, as things stand, and the targets."""
        return evaluate_model(self.model, self._validation.inputs), self._validation.targets

    def _state(self) -> dict[str, Tensor]:
        """All that training may change; unlike a state dictionary it has every buffer."""
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def _begin(self) -> None:
        reseed_torch(derived_seed(self.seed, "dropout"), self.execution.device)
        self._augmenting.manual_seed(derived_seed(self.seed, "augmentation"))

    def _divergence(self, done: int) -> Divergence | None:
        finite = math.isfinite(self._sum.item())
        return None if finite else Divergence(done, f"the training loss was not finite by step {done}")

    def _step(self) -> None:
        # index_select is several times faster than indexing with a tensor.
        inputs = self._data.inputs.index_select(0, self._rows)
        if self.task.augmentation is not None:
            inputs = self.task.augmentation(inputs, generator=self._augmenting)
        if self.execution.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with autocast(self.execution.precision, self.execution.device):
            outputs = self.model(inputs)
        value = self.criterion(outputs.to(self.execution.dtype), self._data.targets.index_select(0, self._rows))
        self._optimizer.zero_grad(set_to_none=True)
        # Only the model's: a loss may have parameters of its own, which are not to be trained here.
        torch.autograd.backward(value, inputs=self._trained)
        self._optimizer.step()
        self.value.copy_(value.detach())
        self._sum.add_(self.value)


def measured(metric: Metric, outputs: Tensor, targets: Tensor) -> float:
    """The metric, or NaN for outputs that are not finite: some metrics would find a number all the same."""
    return metric(outputs, targets) if bool(torch.isfinite(outputs).all()) else math.nan


def learning_rate_at(recipe: Recipe, step: int) -> float:
    """The learning rate of that step: divided by ten at each milestone."""
    passed = sum(milestone <= step for milestone in recipe.milestones)
    return recipe.lr * _DECAY**passed


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> bool:
    """Set the learning rate; whether it is another than before."""
    changed = bool(optimizer.param_groups[0]["lr"] != rate)
    if changed:
        for group in optimizer.param_groups:
            group["lr"] = rate
    return changed


def reset_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Momenta, averages and step counts back to zero, where they lie: what a new optimizer would begin with."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


def evaluate_model(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's outputs on all inputs, in evaluation mode."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(batch) for batch in torch.split(inputs, _EVALUATION_BATCH)])
    model.train(was_training)
    return outputs
