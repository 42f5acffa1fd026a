"""One expression of a forest as a criterion for an ordinary training loop."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.forest import FILLER, Forest
from evomal.engine.precision import autocast
from evomal.engine.resolve import check_model, initial_model, make_optimizer
from evomal.engine.scores import Fitness
from evomal.engine.training import (
    ExecutionOptions,
    Training,
    learning_rate_at,
    measured,
    reset_optimizer,
    set_learning_rate,
)
from evomal.expression import Expression
from evomal.progress import StepsDone
from evomal.randomness import derived_seed, reseed_torch
from evomal.tasks.batches import Batches
from evomal.tasks.task import Part, Recipe, Task


class _Value(torch.autograd.Function):
    """The loss, whose gradient the forest's kernel has found along with it."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, targets: Tensor, forest: Forest, weights: Tensor) -> Tensor:
        losses, gradients = forest.gradients(outputs, targets, weights)
        ctx.save_for_backward(gradients[0])
        return losses[0]

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return above[0] * gradient, None, None, None


class TreeLoss(nn.Module):
    """Equal to `ExpressionLoss`, by the forest's kernels, for one expression after another in the same memory."""

    def __init__(self, forest: Forest, *, dtype: torch.dtype) -> None:
        super().__init__()
        self._forest = forest
        self._weights = torch.ones(1, forest.width, dtype=dtype, device=forest.programs.device)

    def load(self, expression: Expression, weights: Sequence[float]) -> None:
        """The loss to be from now on."""
        self._forest.replace([expression])
        self._weights.copy_(self._forest.programs.packed([weights], dtype=self._weights.dtype))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        value: Tensor = _Value.apply(output, target, self._forest, self._weights)  # type: ignore[no-untyped-call]
        return value


_EVALUATION_SAMPLES = 16_384  # of all models together in one forward pass
_STEPS_BETWEEN_REPORTS = 10

Gradients = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From outputs `[P, B, K]` and targets to losses `[P]` with their gradients `[P, B, K]`, each by its own outputs."""


class StackOptions(TypedDict, total=False):
    """What stacks of all kinds of losses have in common."""

    recipe: Recipe
    optimizer: str
    seed: int
    parts: tuple[Part, Part] | None


class StackedModels:
    """Copies of a task's model, all from the seed's weights; it can be trained anew as often as there are losses."""

    def __init__(
        self, task: Task, gradients: Gradients, *, count: int, recipe: Recipe, optimizer: str, seed: int,
        execution: ExecutionOptions, parts: tuple[Part, Part] | None = None,
    ) -> None:  # fmt: skip
        device, dtype = execution.device, execution.dtype
        self._task, self._gradients_of, self._count = task, gradients, count
        self._recipe, self._seed, self._manners = recipe, seed, execution
        self._module = initial_model(task, seed).to(device, dtype)
        check_model(self._module, task, device, dtype)
        trained = {name: value for name, value in self._module.named_parameters() if value.requires_grad}
        self._initial = {name: value.detach().clone() for name, value in trained.items()}
        self._parameters = {
            name: value.expand(count, *value.shape).clone().requires_grad_() for name, value in self._initial.items()
        }
        self._data, self._validation = parts or (task.train.to(device, dtype), task.validation.to(device, dtype))
        self._batches = Batches(len(self._data), recipe.batch_size, seed=seed, purpose="training", device=device)
        self._optimizer = make_optimizer(optimizer, self._parameters.values(), recipe, device)
        self._augmenting = torch.Generator(device)
        self._rows = torch.empty(self._batches.size, dtype=torch.int64, device=device)
        self._alive = torch.ones(count, dtype=torch.bool, device=device)
        self._lasted = torch.zeros(count, dtype=torch.int64, device=device)
        generators = (self._augmenting,) if task.augmentation else ()
        self.step = GraphedStep(self._step, device=device, generators=generators, enabled=execution.graphs)

    def train(self, count: int, report: StepsDone | None = None) -> list[Fitness]:
        """Train all from the start; the fitnesses of the first so many."""
        self._restart()
        on_step = None if report is None else every_ten_steps(report, self._recipe.steps)
        self._module.train()
        for index in range(self._recipe.steps):
            if set_learning_rate(self._optimizer, learning_rate_at(self._recipe, index)):
                self.step.forget()
            self._rows.copy_(self._batches[index])
            self.step()
            if on_step is not None:
                on_step(index + 1)
        return self._judged(count)

    def _restart(self) -> None:
        with torch.no_grad():
            for name, value in self._parameters.items():
                value.copy_(self._initial[name].expand_as(value))
        reset_optimizer(self._optimizer)
        self._alive.fill_(True)
        self._lasted.zero_()
        reseed_torch(derived_seed(self._seed, "dropout"), self._manners.device)
        self._augmenting.manual_seed(derived_seed(self._seed, "augmentation"))

    def _step(self) -> None:
        inputs = self._data.inputs.index_select(0, self._rows)
        if self._task.augmentation is not None:
            inputs = self._task.augmentation(inputs, generator=self._augmenting)
        targets = self._data.targets.index_select(0, self._rows)
        with autocast(self._manners.precision, self._manners.device):
            outputs = self._outputs(self._parameters, inputs)
        outputs = outputs.to(self._manners.dtype)
        losses, cotangents = self._gradients_of(outputs.detach(), targets)
        self._alive &= torch.isfinite(losses) & torch.isfinite(cotangents.sum((1, 2)))
        self._lasted += self._alive
        # A diverged member gets no further gradient; momentum may still move it, but its result is already fixed.
        cotangents = torch.where(self._alive[:, None, None], cotangents, 0)
        self._optimizer.zero_grad(set_to_none=True)
        # Not `torch.autograd.grad`: its gradients need not be laid out as the parameters, which fused updates rely on.
        torch.autograd.backward(outputs, cotangents)
        self._optimizer.step()

    def _outputs(self, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        def outputs_of_one(own: dict[str, Tensor]) -> Tensor:
            result: Tensor = functional_call(self._module, own, (inputs,))
            return result

        result: Tensor = vmap(outputs_of_one, randomness="same")(parameters)
        return result

    def outputs_on(self, inputs: Tensor) -> Tensor:
        """`[P, B, K]`: what the models give as they stand, in evaluation mode."""
        self._module.eval()
        size = max(1, _EVALUATION_SAMPLES // self._count)
        with torch.no_grad():
            return torch.cat([self._outputs(self._parameters, part) for part in torch.split(inputs, size)], dim=1)

    def _judged(self, count: int) -> list[Fitness]:
        outputs = self.outputs_on(self._validation.inputs)
        results = []
        for member, lasted in enumerate(self._lasted[:count].tolist()):
            if lasted < self._recipe.steps:
                sentence = f"the training loss or its gradient was not finite at step {lasted + 1}"
                results.append(Fitness(math.inf, "diverged", sentence))
            else:
                results.append(judged(self._task, outputs[member], self._validation.targets))
        return results


def gradients_of_modules(losses: Sequence[nn.Module]) -> Gradients:
    """Of losses of any kind, one a model, by autograd: each sees its own outputs as in an ordinary training loop."""

    def gradients(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            free = outputs.requires_grad_()
            values = torch.stack([loss(own, targets) for loss, own in zip(losses, free.unbind(), strict=True)])
            # The sum's gradient is each one's own, also where another is not finite.
            (found,) = torch.autograd.grad(values.sum(), free)
        return values.detach(), found

    return gradients


def judged(task: Task, outputs: Tensor, targets: Tensor) -> Fitness:
    """The fitness of a trained model's outputs; a metric that is not a finite number is as good as none."""
    metric = measured(task.metric, outputs, targets)
    cost = task.metric.cost(metric)
    if math.isfinite(cost):
        return Fitness(cost)
    is_undefined = bool(torch.isfinite(outputs).all())
    sentence = f"the validation {task.metric.name} was {metric}"
    return Fitness(math.inf, "diverged", sentence, is_undefined)


def every_ten_steps(report: StepsDone, steps: int) -> StepsDone:
    """Called after each step, it reports a few at a time."""

    def on_step(done: int) -> None:
        if done % _STEPS_BETWEEN_REPORTS == 0:
            report(_STEPS_BETWEEN_REPORTS)
        elif done == steps:
            report(done % _STEPS_BETWEEN_REPORTS)

    return on_step


class PopulationTraining(Protocol):
    """Trains as many candidates as it has room for, or fewer."""

    def run(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, report: StepsDone | None = None
    ) -> list[Fitness]: ...


class LoopedTraining:
    """One candidate after the other, each as `evomal.train` would."""

    def __init__(
        self, task: Task, *, outputs: int, width: int, recipe: Recipe, optimizer: str, seed: int,
        execution: ExecutionOptions, activation: str = "identity", parts: tuple[Part, Part] | None = None,
    ) -> None:  # fmt: skip
        forest = Forest(
            [FILLER], kind=task.kind, outputs=outputs, activation=activation, device=execution.device, width=width
        )
        self._loss = TreeLoss(forest, dtype=execution.dtype)
        self._training = Training(task, self._loss, recipe, optimizer, seed, execution, parts=parts)

    def run(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, report: StepsDone | None = None
    ) -> list[Fitness]:
        return [self._fitness(*candidate, report) for candidate in zip(expressions, weights, strict=True)]

    def _fitness(self, expression: Expression, weights: Sequence[float], report: StepsDone | None) -> Fitness:
        self._loss.load(expression, weights)
        self._training.restart()
        return trained(self._training, report)


class StackedTraining(StackedModels):
    """All candidates at once: their models stacked, their losses a forest."""

    def __init__(
        self, task: Task, *, outputs: int, count: int, width: int, execution: ExecutionOptions,
        activation: str = "identity", **options: Unpack[StackOptions],
    ) -> None:  # fmt: skip
        self._forest = Forest(
            [FILLER] * count,
            kind=task.kind,
            outputs=outputs,
            activation=activation,
            device=execution.device,
            width=width,
        )
        self._weights = torch.ones(count, width, dtype=execution.dtype, device=execution.device)
        super().__init__(task, self._gradients, count=count, execution=execution, **options)

    def run(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, report: StepsDone | None = None
    ) -> list[Fitness]:
        self._forest.replace(expressions)
        self._weights.copy_(self._forest.programs.packed(weights, dtype=self._weights.dtype))
        return self.train(len(expressions), report)

    def _gradients(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self._forest.gradients(outputs, targets, self._weights)


def trained(training: Training, report: StepsDone | None = None) -> Fitness:
    """All steps of a training at its start, and the fitness of what it came to."""
    steps = training.recipe.steps
    if divergence := training.advance(range(steps), None if report is None else every_ten_steps(report, steps)):
        if report is not None:
            report(steps - divergence.step)  # steps that will not be taken are over, too
        return Fitness(math.inf, "diverged", divergence.sentence)
    return judged(training.task, *training.validation_outputs())
