"""Training with many expressions: one after the other, or stacked, as one model with a leading dimension."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from evomal.engine.forest import Forest
from evomal.engine.precision import autocast
from evomal.engine.resolve import initial_model
from evomal.engine.scores import Fitness, Score, diverged_fitness, fitness_of_outputs, score_of
from evomal.engine.training import Training, TrainingLoop, TrainingSetup, report_steps
from evomal.expression import Expression
from evomal.progress import StepsDone


class _ForestLoss(torch.autograd.Function):
    """The loss, with the gradient that the forest's kernel computes along with it."""

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
    """An `ExpressionLoss` computed by the forest's kernels, whose expression can be replaced in the same memory."""

    def __init__(self, forest: Forest, *, dtype: torch.dtype) -> None:
        super().__init__()
        self._forest = forest
        self._weights = torch.ones(1, forest.width, dtype=dtype, device=forest.programs.device)

    def load(self, expression: Expression, weights: Sequence[float]) -> None:
        """Replace expression and weights."""
        self._forest.replace([expression])
        self._weights.copy_(self._forest.programs.packed([weights], dtype=self._weights.dtype))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        value: Tensor = _ForestLoss.apply(output, target, self._forest, self._weights)  # type: ignore[no-untyped-call]
        return value


_EVALUATION_SAMPLES = 16_384  # of all models together in one forward pass

Weights = Sequence[Sequence[float]]
Gradients = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From outputs `[P, B, K]` and targets to losses `[P]` and their gradients `[P, B, K]` by each model's own outputs."""


class PopulationTraining(Protocol):
    """Trains up to as many candidates as it has room for."""

    def run(
        self, expressions: Sequence[Expression], weights: Weights, *, report: StepsDone | None = None
    ) -> list[Fitness]: ...


class LoopedTraining:
    """Trains one candidate after the other, each as `evomal.train` would."""

    def __init__(self, setup: TrainingSetup, forest: Forest) -> None:
        """`forest`: room for one expression."""
        self._loss = TreeLoss(forest, dtype=setup.dtype)
        self._training = Training(setup, self._loss)

    def run(
        self, expressions: Sequence[Expression], weights: Weights, *, report: StepsDone | None = None
    ) -> list[Fitness]:
        """Returns the fitness of each expression."""
        results = []
        for expression, row in zip(expressions, weights, strict=True):
            self._loss.load(expression, row)
            results.append(self._training.run(report))
        return results


class StackedModels(TrainingLoop):
    """Copies of a task's model, all from the seed's initial weights, each trained with its own loss."""

    def __init__(self, setup: TrainingSetup, gradients: Gradients, *, count: int) -> None:
        model = initial_model(setup.task, setup.seed).to(setup.device, setup.dtype)
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._initial = {name: value.detach().clone() for name, value in trained.items()}
        self._parameters = {
            name: value.expand(count, *value.shape).clone().requires_grad_() for name, value in self._initial.items()
        }
        super().__init__(setup, model, self._parameters.values())
        self._gradients_of, self._count = gradients, count
        self._alive = torch.ones(count, dtype=torch.bool, device=setup.device)
        self._steps_survived = torch.zeros(count, dtype=torch.int64, device=setup.device)

    def train(self, count: int, report: StepsDone | None = None) -> list[Fitness]:
        """Train all models from the initial weights.

        Returns:
            The fitness of each of the first `count` models.
        """
        self._restart()
        self.model.train()
        steps = self.setup.recipe.steps
        for index in range(steps):
            self._take_step(index)
            report_steps(report, index + 1, steps)
        outputs = self._evaluate(self._validation.inputs)
        results = []
        for member, survived in enumerate(self._steps_survived[:count].tolist()):
            if survived < steps:
                sentence = f"the training loss or its gradient was not finite at step {survived + 1}"
                results.append(diverged_fitness(sentence))
            else:
                results.append(fitness_of_outputs(self.setup.task, outputs[member], self._validation.targets))
        return results

    def scores(self, fitnesses: Sequence[Fitness], *, test: bool) -> list[Score]:
        """Returns the scores of the first models as they are, given their fitness."""
        setup = self.setup
        part = setup.task.test.to(setup.device, setup.dtype) if test else None
        outputs = None if part is None else self._evaluate(part.inputs)
        scores = []
        for member, fitness in enumerate(fitnesses):
            tested = None if part is None or outputs is None else (outputs[member], part.targets)
            recipe = setup.recipe
            scores.append(
                score_of(setup.task, fitness, tested, seed=setup.seed, steps=recipe.steps, milestones=recipe.milestones)
            )
        return scores

    def _restart(self) -> None:
        with torch.no_grad():
            for name, value in self._parameters.items():
                value.copy_(self._initial[name].expand_as(value))
        self._alive.fill_(True)
        self._steps_survived.zero_()
        super()._restart()

    def _step(self) -> None:
        inputs, targets = self._batch()
        with autocast(self.setup.precision, self.setup.device):
            outputs = self._outputs(inputs)
        outputs = outputs.to(self.setup.dtype)
        losses, cotangents = self._gradients_of(outputs.detach(), targets)
        self._alive &= torch.isfinite(losses) & torch.isfinite(cotangents.sum((1, 2)))
        self._steps_survived += self._alive
        # A diverged member gets no further gradient; momentum may still move it, but its result is already fixed.
        cotangents = torch.where(self._alive[:, None, None], cotangents, 0)
        self._optimizer.zero_grad(set_to_none=True)
        # Not `torch.autograd.grad`: its gradients need not be laid out as the parameters, which fused updates rely on.
        torch.autograd.backward(outputs, cotangents)
        self._optimizer.step()

    def _outputs(self, inputs: Tensor) -> Tensor:
        def outputs_of_one(own: dict[str, Tensor]) -> Tensor:
            result: Tensor = functional_call(self.model, own, (inputs,))
            return result

        result: Tensor = vmap(outputs_of_one, randomness="same")(self._parameters)
        return result

    def _evaluate(self, inputs: Tensor) -> Tensor:
        """`[P, B, K]`: the outputs of the models in evaluation mode."""
        self.model.eval()
        size = max(1, _EVALUATION_SAMPLES // self._count)
        with torch.no_grad():
            return torch.cat([self._outputs(part) for part in torch.split(inputs, size)], dim=1)


class StackedTraining(StackedModels):
    """Trains all candidates at once: their models stacked, their losses a forest."""

    def __init__(self, setup: TrainingSetup, forest: Forest) -> None:
        self._forest = forest
        self._weights = torch.ones(forest.count, forest.width, dtype=setup.dtype, device=setup.device)
        super().__init__(setup, self._gradients, count=forest.count)

    def run(
        self, expressions: Sequence[Expression], weights: Weights, *, report: StepsDone | None = None
    ) -> list[Fitness]:
        """Returns the fitness of each expression."""
        self._forest.replace(expressions)
        self._weights.copy_(self._forest.programs.packed(weights, dtype=self._weights.dtype))
        return self.train(len(expressions), report)

    def _gradients(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self._forest.gradients(outputs, targets, self._weights)


def gradients_of_modules(losses: Sequence[nn.Module]) -> Gradients:
    """Returns the gradients of losses of any kind, one per model, computed by autograd."""

    def gradients(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            free = outputs.requires_grad_()
            values = torch.stack([loss(own, targets) for loss, own in zip(losses, free.unbind(), strict=True)])
            # The gradient of the sum is each loss's own, also where another is not finite.
            (found,) = torch.autograd.grad(values.sum(), free)
        return values.detach(), found

    return gradients
