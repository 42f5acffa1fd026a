"""Optimisation of the weights φ of many losses together: Adam on the exact meta-gradient (EvoMAL, Algorithm 1)."""

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.meta_gradient import LossPopulation, Tangent, meta_gradients, unrolled_meta_gradients
from evomal.engine.plans import EngineSettings
from evomal.engine.task_data import TaskData
from evomal.engine.vectorise import Masks, Mode, vectorised
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.forest import FILLER
from evomal.forest.codes import Link
from evomal.forest.programs import dense_targets, mean_scale, row_shares
from evomal.losses.neural import layers_of, network_value
from evomal.progress import StepsDone
from evomal.randomness import derived_seed

_BETAS, _EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Optimised:
    """A candidate's optimised weights, and whether it diverged."""

    weights: list[float]
    """In the order of the candidate's weights."""
    diverged_at: int | None
    """The meta step at which gradient or task loss was not finite; the weights are those before it."""


class WeightOptimisation:
    """Meta steps for P candidates with N weights each, on one or several tasks.

    Step i uses the same initial weights, batches and masks for every candidate of any population. One object serves
    a whole search: other weights are copied into the same memory, so that a captured step stays captured.
    """

    def __init__(
        self, tasks: Sequence[TaskData], losses: Sequence[LossPopulation], settings: EngineSettings, *, count: int,
        width: int, seed: int, mode: Mode,
    ) -> None:  # fmt: skip
        """`losses`: the candidates as losses of each task."""
        self._tasks, self._populations, self._meta_lr, self._seed = tasks, losses, settings.meta_lr, seed
        first = tasks[0].model
        device, dtype = first.device, first.flat.dtype
        self._tangents = [_resolve_tangent(settings.tangent, data) for data in tasks]
        shape = (count, width)
        self._weights = torch.ones(shape, dtype=dtype, device=device)
        self._first, self._second = torch.zeros_like(self._weights), torch.zeros_like(self._weights)
        self._tuned = torch.ones(shape, dtype=torch.bool, device=device)
        self._step_count = torch.zeros((), dtype=dtype, device=device)
        self._alive = torch.ones(count, dtype=torch.bool, device=device)
        self._survived = torch.zeros(count, dtype=dtype, device=device)
        is_small = (mode == "stacked" or count == 1) and tasks[0].inner_steps == 1
        captured = settings.graphs and device.type == "cuda" and is_small
        captured &= not any(data.is_varying for data in tasks)
        is_random = any(data.capabilities.is_random for data in tasks)
        self._masks = Masks(enabled=is_random, captured=captured, device=device, seed=seed)
        self._vectorise = vectorised(mode, self._masks)
        generators = [data.augmenting for data in tasks if data.task.augmentation is not None]
        self.step = GraphedStep(self._step, device=device, generators=generators, enabled=captured)

    def run(
        self, weights: Tensor, tuned: Tensor, *, steps: int, first: int = 0, report: StepsDone | None = None
    ) -> list[Optimised]:
        """Optimise the weights `[P, N]` where the mask `tuned` is set, and return all of them.

        Steps are numbered from `first`; the number determines initial weights, batches and masks. All candidates take
        the steps from 0, so the initial weights of those are kept.
        """
        self._weights.copy_(weights)
        self._tuned.copy_(tuned)
        for tensor in (self._first, self._second, self._step_count, self._survived):
            tensor.zero_()
        self._alive.fill_(True)
        with contextlib.ExitStack() as kernels:
            for data in self._tasks:
                kernels.enter_context(data.model.differentiable_twice())
            for step in range(first, first + steps):
                for data in self._tasks:
                    data.begin_step(step, keep=first == 0)
                    data.augmenting.manual_seed(derived_seed(self._seed, "augmentation", "meta", step))
                self._masks.begin_step(step)
                self.step()
                if report is not None:
                    report(1)
        return self._results(steps)

    def _step(self) -> None:
        gradients, task_losses = torch.zeros_like(self._weights), torch.zeros_like(self._survived)
        for data, losses, tangent in zip(self._tasks, self._populations, self._tangents, strict=True):
            batch = data.batch()
            self._masks.begin("inner 0")
            arguments = (data.model, losses, self._weights, batch, data.task_loss, data.recipe, self._vectorise)
            found, values = (
                meta_gradients(*arguments, tangent) if len(batch.inner) == 1 else unrolled_meta_gradients(*arguments)
            )
            gradients += found
            task_losses += values
        self._update(gradients, task_losses)

    def _update(self, gradients: Tensor, task_losses: Tensor) -> None:
        """Adam (Kingma and Ba, 2015) for each candidate alone; a candidate whose numbers are not finite is frozen."""
        self._alive &= torch.isfinite(torch.linalg.vector_norm(gradients, dim=1)) & torch.isfinite(task_losses)
        moving = self._alive.unsqueeze(1) & self._tuned
        gradients = torch.where(moving, gradients, 0)
        self._step_count += 1
        self._first.lerp_(gradients, 1 - _BETAS[0])
        self._second.lerp_(gradients * gradients, 1 - _BETAS[1])
        mean = self._first / (1 - _BETAS[0] ** self._step_count)
        scale = (self._second / (1 - _BETAS[1] ** self._step_count)).sqrt_().add_(_EPSILON)
        self._weights.sub_(torch.where(moving, self._meta_lr * mean / scale, 0))
        self._survived += self._alive

    def _results(self, steps: int) -> list[Optimised]:
        results = []
        for row, survived in zip(self._weights.tolist(), self._survived.tolist(), strict=True):
            # The last step may have made weights infinite, which no further step would notice.
            is_sound = survived == steps and all(map(math.isfinite, row))
            results.append(Optimised(row, diverged_at=None if is_sound else min(int(survived), steps - 1)))
        return results


def _resolve_tangent(wanted: Tangent | None, data: TaskData) -> Tangent:
    """Transposing is faster for matrices, forward mode for convolutions, whose second derivatives are slow.

    Forward mode runs the model again, so the model must be able to repeat the masks of its dropout.
    """
    facts = data.capabilities
    tried = wanted == "forward" or (wanted is None and (facts.has_convolutions or not facts.transposable))
    forward = tried and facts.is_repeatable and data.inner_steps == 1 and facts.forward_mode
    if wanted == "forward" and not forward:
        raise InputError(
            "tangent forward needs one inner step, and a model that has forward-mode derivatives and repeats what it "
            "draws"
        )
    if forward:
        return "forward"
    if not facts.transposable:
        raise InputError(
            "no loss can be meta-trained with this model: its derivative cannot be differentiated, and forward mode "
            "cannot be used for it"
        )
    return "transposed"


class TreeWeights:
    """Optimises the weights of expressions, up to `count` of up to `width` nodes."""

    def __init__(
        self, tasks: Sequence[TaskData], settings: EngineSettings, *, count: int, width: int, **options: Any
    ) -> None:
        """`options`: seed and mode, for `WeightOptimisation`."""
        self._forests = [data.forest([FILLER] * count, width=width) for data in tasks]
        self._optimisation = WeightOptimisation(tasks, self._forests, settings, count=count, width=width, **options)
        self._dtype = settings.dtype

    def run(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, steps: int,
        report: StepsDone | None = None,
    ) -> list[Optimised]:  # fmt: skip
        """Returns the optimised weights of each expression."""
        for forest in self._forests:
            forest.replace(expressions)
        programs = self._forests[0].programs
        rows = self._optimisation.run(
            programs.packed(weights, dtype=self._dtype), programs.edges(), steps=steps, report=report
        )
        # The root comes first and has no edge; places after the last node are unused.
        return [
            dataclasses.replace(row, weights=row.weights[1 : expression.size])
            for expression, row in zip(expressions, rows, strict=False)
        ]


class NetworkLosses:
    """Losses of ML³: P networks of two hidden layers, each equal to `NeuralLoss` reduced by `mean`.

    Outputs are `[P, B, K]` or `[B, K]`; weights are `[P, N]`, layer by layer.
    """

    def __init__(self, *, kind: str, outputs: int, hidden: int) -> None:
        self._kind, self._outputs, self._hidden = kind, outputs, hidden
        self._link = Link.of(kind, outputs)

    def gradients(
        self, outputs: Tensor, targets: Tensor, weights: Tensor, row_weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`[P]` losses, and `[P, B, K]` their gradients by the outputs."""
        dense, shares = self._dense(targets, outputs), self._shares(outputs, row_weights)
        found = vmap(grad_and_value(lambda own, row: self._loss(own, dense, row, shares)))
        gradients, losses = found(self._own(outputs, weights), weights)
        return losses, gradients

    def mixed_gradients(
        self, outputs: Tensor, targets: Tensor, tangents: Tensor, weights: Tensor, row_weights: Tensor | None = None
    ) -> Tensor:
        """`[P, N]`: the gradient by the weights of Σ tangents · ∂loss/∂outputs."""
        dense, shares = self._dense(targets, outputs), self._shares(outputs, row_weights)
        along = grad(lambda row, own, tangent: self._slope(own, dense, row, tangent, shares))
        result: Tensor = vmap(along)(weights, self._own(outputs, weights), tangents)
        return result

    def curvatures(
        self, outputs: Tensor, targets: Tensor, tangents: Tensor, weights: Tensor, row_weights: Tensor | None = None
    ) -> Tensor:
        """`[P, B, K]`: the second derivatives of each loss by the outputs, times the tangents."""
        dense, shares = self._dense(targets, outputs), self._shares(outputs, row_weights)
        along = grad(lambda own, row, tangent: self._slope(own, dense, row, tangent, shares))
        result: Tensor = vmap(along)(self._own(outputs, weights), weights, tangents)
        return result

    def _loss(self, outputs: Tensor, dense: Tensor, row: Tensor, shares: Tensor | None) -> Tensor:
        values = network_value(layers_of(row, self._hidden), self._link.predictions(outputs), dense)
        if shares is not None:
            return (values.sum(-1) * shares).sum()
        return values.sum() * mean_scale(self._kind, outputs)

    def _slope(self, outputs: Tensor, dense: Tensor, row: Tensor, tangent: Tensor, shares: Tensor | None) -> Tensor:
        gradient: Tensor = grad(self._loss)(outputs, dense, row, shares)
        return torch.sum(gradient * tangent)

    def _shares(self, outputs: Tensor, row_weights: Tensor | None) -> Tensor | None:
        return None if row_weights is None else row_shares(self._kind, outputs, row_weights)

    def _dense(self, targets: Tensor, outputs: Tensor) -> Tensor:
        return dense_targets(targets, self._link, self._outputs, outputs.dtype)

    def _own(self, outputs: Tensor, weights: Tensor) -> Tensor:
        return outputs.expand(len(weights), *outputs.shape[-2:])
