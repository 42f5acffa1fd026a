"""The exact gradient of the task loss by the weights of many losses, through one inner step (EvoMAL, section 3.3.1).

With z = f(θ0), J = ∂z/∂θ at θ0, g = ∂M_φ/∂z and θ' = θ0 − α·(Jᵀg + λθ0), where α includes Nesterov's factor 1 + μ:

    v = ∇_θ L_task(θ')        a gradient at θ'
    u = J v                   one Jacobian-vector product at θ0
    dL/dφ = −α ∂/∂φ ⟨u, g(φ)⟩  a derivative of the small expression alone

No second derivative of the network is needed, and z and its pull-back are shared by all candidates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.func import jvp, vjp

from evomal.engine.functional_model import ONCE, FunctionalModel, Parameters, PullBack
from evomal.engine.repeatable_layers import forget, running
from evomal.engine.rows import Rows
from evomal.engine.vectorise import Vectorise
from evomal.tasks.inputs import Inputs
from evomal.tasks.recipe import Recipe

PushForward = Callable[[Parameters], Tensor]
"""v ↦ J v: a direction of the parameters to the change of the outputs."""
TaskLoss = Callable[[Tensor, Rows], Tensor]
Tangent = Literal["forward", "transposed"]
"""How J v is computed: by forward mode, or by transposing the pull-back, u = ∂/∂c ⟨Jᵀc, v⟩. The transpose exists for
any model whose derivative can be differentiated, and uses the dropout mask of the pull-back, as it is the same pass."""


class LossPopulation(Protocol):
    """Many losses over shared or separate outputs, such as a `Forest`."""

    def gradients(
        self, outputs: Tensor, targets: Tensor, weights: Tensor, row_weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...

    def mixed_gradients(
        self, outputs: Tensor, targets: Tensor, tangents: Tensor, weights: Tensor, row_weights: Tensor | None = None
    ) -> Tensor: ...

    def curvatures(
        self, outputs: Tensor, targets: Tensor, tangents: Tensor, weights: Tensor, row_weights: Tensor | None = None
    ) -> Tensor: ...


class InputRows(NamedTuple):
    """The inputs of a batch, and the rows that the model's outputs for them have."""

    inputs: Inputs
    rows: Rows


@dataclass(frozen=True)
class MetaBatch:
    """Data of a meta step: a training batch for each inner step, and a validation batch for the task loss."""

    inner: tuple[InputRows, ...]
    validation: InputRows


def meta_gradients(
    model: FunctionalModel,
    losses: LossPopulation,
    weights: Tensor,
    batch: MetaBatch,
    task_loss: TaskLoss,
    recipe: Recipe,
    vectorise: Vectorise,
    tangent: Tangent,
) -> tuple[Tensor, Tensor]:
    """`[P, N]` gradients of the task loss by the weights, and its `[P]` values after one inner step."""
    ((inputs, rows),) = batch.inner
    start = model.copied(model.parameters, cast=True)
    rate = recipe.lr * (1 + recipe.momentum if recipe.nesterov else 1)  # the first step of SGD with Nesterov momentum

    decayed, _ = model.views(model.flat * (1 - rate * recipe.weight_decay))
    with running(model.module, "first" if tangent == "forward" else "only"):
        outputs, pull = model.linearised(start, inputs)
    _, cotangents = losses.gradients(outputs, rows.targets, weights, rows.weights)
    push = transposed(pull, outputs) if tangent == "transposed" else forward_mode_jvp(model, start, inputs)

    def validate(parameters: Parameters) -> tuple[Parameters, Tensor]:
        found = vjp(lambda own: task_loss(model(own, batch.validation.inputs), batch.validation.rows), parameters)
        value, pull_value = found[:2]
        # Not `grad`, which keeps what a second derivative would need.
        return pull_value(torch.ones_like(value), **ONCE)[0], value

    def moved_by(pulled: Parameters) -> Parameters:
        return {name: torch.add(value, pulled[name], alpha=-rate) for name, value in decayed.items()}

    def tangent_at(moved: Parameters) -> tuple[Tensor, Tensor]:
        direction, value = validate(moved)
        return push(direction), value

    if tangent == "forward" and len(weights) == 1:
        # The pass at θ0 is not needed any more: its activations are freed before those at θ' need memory.
        pulled = model.copied(pull(cotangents[0], **ONCE), cast=False)
        del pull
        torch._foreach_add_([*decayed.values()], [pulled[name] for name in decayed], alpha=-rate)
        moved = {name: value.unsqueeze(0) for name, value in model.copied(decayed, cast=True).items()}
        del pulled, decayed
        tangents, values = vectorise(tangent_at, "validation")(moved)
    else:
        tangents, values = vectorise(lambda cotangent: tangent_at(model.cast(moved_by(pull(cotangent)))), "validation")(
            cotangents
        )
    forget(model.module)
    return losses.mixed_gradients(outputs, rows.targets, tangents, weights, rows.weights).mul_(-rate), values


def transposed(pull: PullBack, outputs: Tensor) -> PushForward:
    """v ↦ J v from c ↦ Jᵀc, which is linear: its own pull-back at any point, which serves every v."""
    push = vjp(pull, torch.zeros_like(outputs))[1]

    def along(direction: Parameters) -> Tensor:
        result: Tensor = push(direction)[0]
        return result

    return along


def forward_mode_jvp(model: FunctionalModel, start: Parameters, inputs: Inputs) -> PushForward:
    """v ↦ J v at the parameters `start` by forward mode, which runs the model again."""

    def along(direction: Parameters) -> Tensor:
        with running(model.module, "second"):
            result: Tensor = jvp(lambda parameters: model(parameters, inputs), (start,), (direction,))[1]
        return result

    return along
