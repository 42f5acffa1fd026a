"""The exact gradient of the task loss by the weights of many losses, through inner steps (EvoMAL, section 3.3.1).

Through one inner step it is, with z = f(θ0), J = ∂z/∂θ at θ0, g = ∂M_φ/∂z and θ' = θ0 − α·(Jᵀg + λθ0), where α
includes Nesterov's factor 1 + μ:

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
from torch.func import grad, grad_and_value, jvp, vjp

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

        def tangent_of(cotangent: Tensor) -> tuple[Tensor, Tensor]:
            return tangent_at(model.cast(moved_by(pull(cotangent))))

        tangents, values = vectorise(tangent_of, "validation")(cotangents)
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


class _InnerStep(NamedTuple):
    """What the backward pass needs of a step: its parameters, outputs, and the gradient of the loss by the outputs."""

    parameters: Parameters
    outputs: Tensor
    cotangents: Tensor


def unrolled_meta_gradients(
    model: FunctionalModel,
    losses: LossPopulation,
    weights: Tensor,
    batch: MetaBatch,
    task_loss: TaskLoss,
    recipe: Recipe,
    vectorise: Vectorise,
) -> tuple[Tensor, Tensor]:
    """`[P, N]` gradients of the task loss by the weights, and its `[P]` values, after several inner steps.

    By the adjoint of SGD with momentum and weight decay. A step is G = ∇_θ M_φ(θ) + λθ, b' = μb + G,
    θ' = θ − α·(G + μb' under Nesterov, else b'). Backwards, each step costs one Jacobian-vector product, for its share
    of dL/dφ, and one Hessian-vector product, for the adjoint of θ.
    """
    parameters = {name: value.expand(len(weights), *value.shape) for name, value in model.parameters.items()}
    momenta = {name: torch.zeros_like(value) for name, value in parameters.items()}
    taken: list[_InnerStep] = []
    for step, (inputs, rows) in enumerate(batch.inner):
        outputs = vectorise(lambda own, x=inputs: model(own, x), f"inner {step}")(parameters)
        _, cotangents = losses.gradients(outputs, rows.targets, weights, rows.weights)
        taken.append(_InnerStep(parameters, outputs, cotangents))
        parameters, momenta = _sgd_step(model, inputs, parameters, momenta, cotangents, recipe, vectorise, step)

    validate = grad_and_value(lambda own: task_loss(model(own, batch.validation.inputs), batch.validation.rows))
    of_parameters, values = vectorise(validate, "validation")(parameters)
    of_momenta = {name: torch.zeros_like(value) for name, value in of_parameters.items()}
    gradients = torch.zeros_like(weights)
    for step in reversed(range(len(taken))):
        inputs, rows = batch.inner[step]
        of_gradient, of_momenta = _through_update(of_parameters, of_momenta, recipe)
        step_taken = taken[step]

        def tangent_of(own: Parameters, direction: Parameters, x: Inputs = inputs) -> Tensor:
            outputs, pull = model.linearised(own, x)
            return transposed(pull, outputs)(direction)

        tangents = vectorise(tangent_of, f"inner {step}")(step_taken.parameters, of_gradient)
        gradients += losses.mixed_gradients(step_taken.outputs, rows.targets, tangents, weights, rows.weights)
        if step == 0:
            break  # nothing before θ0 depends on φ
        curvatures = losses.curvatures(step_taken.outputs, rows.targets, tangents, weights, rows.weights)

        def hessian_vector_product(
            own: Parameters, direction: Parameters, cotangent: Tensor, curvature: Tensor, x: Inputs = inputs
        ) -> Parameters:
            """The Hessian-vector product: the change of Jᵀg with J at fixed g, and with g at fixed J."""

            def along(p: Parameters) -> Tensor:
                outputs, pull = model.linearised(p, x)
                pulled = pull(cotangent)
                return (
                    torch.stack([(pulled[name] * direction[name]).sum() for name in p]).sum()
                    + (outputs * curvature).sum()
                )

            result: Parameters = grad(along)(own)
            return result

        products = vectorise(hessian_vector_product, f"inner {step}")(
            step_taken.parameters, of_gradient, step_taken.cotangents, curvatures
        )
        of_parameters = {
            name: value + products[name] + recipe.weight_decay * of_gradient[name]
            for name, value in of_parameters.items()
        }
    return gradients, values


def _sgd_step(
    model: FunctionalModel,
    inputs: Inputs,
    parameters: Parameters,
    momenta: Parameters,
    cotangents: Tensor,
    recipe: Recipe,
    vectorise: Vectorise,
    step: int,
) -> tuple[Parameters, Parameters]:
    def pulled_back(own: Parameters, cotangent: Tensor) -> Parameters:
        return model.linearised(own, inputs)[1](cotangent)

    pulled = vectorise(pulled_back, f"inner {step}")(parameters, cotangents)
    gradient = {name: pulled[name] + recipe.weight_decay * value for name, value in parameters.items()}
    momenta = {name: recipe.momentum * momenta[name] + gradient[name] for name in momenta}
    moved = {}
    for name, value in parameters.items():
        direction = gradient[name] + recipe.momentum * momenta[name] if recipe.nesterov else momenta[name]
        moved[name] = value - recipe.lr * direction
    return moved, momenta


def _through_update(of_parameters: Parameters, of_momenta: Parameters, recipe: Recipe) -> tuple[Parameters, Parameters]:
    """Adjoints of the gradient and of the momentum before, from those of parameters and momentum after."""
    of_gradient, before = {}, {}
    for name, value in of_parameters.items():
        of_direction = -recipe.lr * value
        of_momentum = of_momenta[name] + (recipe.momentum * of_direction if recipe.nesterov else of_direction)
        of_gradient[name] = of_momentum + of_direction if recipe.nesterov else of_momentum
        before[name] = recipe.momentum * of_momentum
    return of_gradient, before
