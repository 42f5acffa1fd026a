"""The weights φ of many losses tuned together: Adam on the exact meta-gradient (EvoMAL, Algorithm 1)."""

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.forest import FILLER, Forest
from evomal.engine.meta_gradient import LossPopulation, Tangent, meta_gradients
from evomal.engine.task_data import TaskData
from evomal.engine.unrolled import unrolled_meta_gradients
from evomal.engine.vectorise import Masks, Mode, vectorised
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.progress import StepsDone
from evomal.randomness import derived_seed
from evomal.tasks.task import Recipe

_BETAS, _EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Optimised:
    """A candidate's tuned weights, and how its meta-gradient was."""

    weights: list[float]
    """Those that a candidate of its form has, in its order."""
    diverged_at: int | None
    """The meta step at which its gradient or task loss was not finite; the weights are those of before."""
    mean_gradient_norm: float
    share_of_zero_gradients: float
    final_task_loss: float
    """NaN where not even the first step was finite."""


class WeightOptimisation:
    """Meta steps for P candidates with N weights each, over one or several tasks.

    Step i uses the same initial weights, batches and masks for every candidate of any population. One object serves
    a whole search: other weights are copied into the same memory, so that a captured step stays captured.
    """

    def __init__(
        self, sides: Sequence[TaskData], losses: Sequence[LossPopulation], *, count: int, width: int,
        recipes: Sequence[Recipe], seed: int, meta_lr: float, mode: Mode, tangent: Tangent | None = None,
        graphs: bool = True,
    ) -> None:  # fmt: skip
        """`losses`: the candidates as each task sees them."""
        self._sides, self._recipes, self._meta_lr, self._mode, self._seed = sides, recipes, meta_lr, mode, seed
        self._populations = losses
        first = sides[0].model
        device, dtype = first.device, first.flat.dtype
        self._tangents = [_resolve_tangent(tangent, side) for side in sides]
        shape = (count, width)
        self._weights = torch.ones(shape, dtype=dtype, device=device)
        self._first, self._second = torch.zeros_like(self._weights), torch.zeros_like(self._weights)
        self._tuned = torch.ones(shape, dtype=torch.bool, device=device)
        self._step_count = torch.zeros((), dtype=dtype, device=device)
        self._alive = torch.ones(count, dtype=torch.bool, device=device)
        self._lasted, self._norms, self._zeros, self._losses = torch.zeros(
            4, count, dtype=dtype, device=device
        ).unbind()
        draws = any(side.capabilities.draws for side in sides)
        captured = graphs and device.type == "cuda" and (mode == "stacked" or count == 1) and sides[0].inner_steps == 1
        self._masks = Masks(drawn=draws, captured=captured, device=device, seed=seed, purpose="meta")
        self._over = vectorised(mode, self._masks)
        generators = [side.augmenting for side in sides if side.task.augmentation is not None]
        self.step = GraphedStep(self._step, device=device, generators=generators, enabled=captured)

    def run(
        self, weights: Tensor, tuned: Tensor, *, steps: int, first: int = 0, report: StepsDone | None = None
    ) -> list[Optimised]:  # fmt: skip
        """Tune the rows `[P, N]` where `tuned`, and give them back whole.

        Steps are numbered from `first`; the number determines initial weights, batches and masks. All candidates take
        the steps from 0, so the initial weights of those are kept.
        """
        self._load(weights, tuned)
        with contextlib.ExitStack() as kernels:
            for side in self._sides:
                kernels.enter_context(side.model.differentiable_twice())
            for step in range(first, first + steps):
                for side in self._sides:
                    side.begin_step(step, keep=first == 0)
                    side.augmenting.manual_seed(derived_seed(self._seed, "augmentation", "meta", step))
                self._masks.begin_step(step)
                self.step()
                if report is not None:
                    report(1)
        return self._found(steps)

    def _load(self, weights: Tensor, tuned: Tensor) -> None:
        self._weights.copy_(weights)
        self._tuned.copy_(tuned)
        for tensor in (
            self._first,
            self._second,
            self._step_count,
            self._lasted,
            self._norms,
            self._zeros,
            self._losses,
        ):
            tensor.zero_()
        self._alive.fill_(True)

    def _step(self) -> None:
        gradients, losses = torch.zeros_like(self._weights), torch.zeros_like(self._losses)
        for side, losses_here, recipe, tangent in zip(
            self._sides, self._populations, self._recipes, self._tangents, strict=True
        ):
            batch = side.batch()
            self._masks.begin("inner 0")
            arguments = (side.model, losses_here, self._weights, batch, side.task_loss, recipe, self._over)
            found, values = (
                meta_gradients(*arguments, tangent) if len(batch.inner) == 1 else unrolled_meta_gradients(*arguments)
            )
            gradients += found
            losses += values
        self._update(gradients, losses)

    def _update(self, gradients: Tensor, losses: Tensor) -> None:
        """Adam (Kingma and Ba, 2015) for each candidate alone; one whose numbers are not finite stays where it is."""
        norms = torch.linalg.vector_norm(gradients, dim=1)
        self._alive &= torch.isfinite(norms) & torch.isfinite(losses)
        moving = self._alive.unsqueeze(1) & self._tuned
        gradients = torch.where(moving, gradients, 0)
        self._step_count += 1
        self._first.lerp_(gradients, 1 - _BETAS[0])
        self._second.lerp_(gradients * gradients, 1 - _BETAS[1])
        mean = self._first / (1 - _BETAS[0] ** self._step_count)
        scale = (self._second / (1 - _BETAS[1] ** self._step_count)).sqrt_().add_(_EPSILON)
        self._weights.sub_(torch.where(moving, self._meta_lr * mean / scale, 0))
        self._lasted += self._alive
        self._norms += torch.where(self._alive, norms, 0)
        self._zeros += self._alive & (norms == 0)
        self._losses.copy_(torch.where(self._alive, losses, self._losses))

    def _found(self, steps: int) -> list[Optimised]:
        columns = (self._weights, self._lasted, self._norms, self._zeros, self._losses)
        return [
            Optimised(
                weights=row,
                # A last step may still have gone too far, which no further one would notice.
                diverged_at=None if lasted == steps and all(map(math.isfinite, row)) else min(int(lasted), steps - 1),
                mean_gradient_norm=norms / max(1.0, lasted),
                share_of_zero_gradients=zeros / max(1.0, lasted),
                final_task_loss=loss if lasted else math.nan,
            )
            for row, lasted, norms, zeros, loss in zip(*(column.tolist() for column in columns), strict=True)
        ]


def _resolve_tangent(wanted: Tangent | None, side: TaskData) -> Tangent:
    """Transposing is faster for matrices, forward mode for convolutions, whose second derivatives are slow.

    Forward mode runs the model again, so one that draws would see another mask there.
    """
    facts = side.capabilities
    forward = facts.forward_mode and not facts.draws and side.inner_steps == 1
    if wanted == "forward" and not forward:
        raise InputError(
            "tangent forward needs a model that has forward-mode derivatives and draws nothing, and one inner step"
        )
    if wanted == "forward" or (wanted is None and forward and (facts.convolves or not facts.transposable)):
        return "forward"
    if not facts.transposable:
        raise InputError(
            "this model's derivative cannot be differentiated, and forward mode does not do for it: "
            "no loss can be meta-trained with it"
        )
    return "transposed"


class TreeWeights:
    """Room for so many expressions of so many nodes."""

    def __init__(
        self, sides: Sequence[TaskData], *, count: int, width: int, activation: str = "identity", **manner: Any
    ) -> None:
        """`manner`: how `WeightOptimisation` goes about it."""
        self._dtype = sides[0].model.flat.dtype
        self._forests = [
            Forest(
                [FILLER] * count, kind=side.task.kind, outputs=side.capabilities.outputs, activation=activation,
                device=side.model.device, width=width,
            )
            for side in sides
        ]  # fmt: skip
        self._optimisation = WeightOptimisation(sides, self._forests, count=count, width=width, **manner)

    def run(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]], *, steps: int,
        report: StepsDone | None = None,
    ) -> list[Optimised]:  # fmt: skip
        """Tune the weights of as many expressions as there is room for, or fewer."""
        for forest in self._forests:
            forest.replace(expressions)
        programs = self._forests[0].programs
        rows = self._optimisation.run(
            programs.packed(weights, dtype=self._dtype), programs.edges(), steps=steps, report=report
        )
        # The root comes first and has no edge; behind the last node there is room to spare.
        return [
            dataclasses.replace(row, weights=row.weights[1 : expression.size])
            for expression, row in zip(expressions, rows, strict=False)
        ]
