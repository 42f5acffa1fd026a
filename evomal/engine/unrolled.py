"""The meta-gradient through several inner steps: the adjoint of SGD with momentum and weight decay.

A step is G = ∇_θ M_φ(θ) + λθ, b' = μb + G, θ' = θ − α·(G + μb' under Nesterov, else b'). Backwards, each step costs
one Jacobian-vector product, for its share of dL/dφ, and one Hessian-vector product, for the adjoint of θ.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, grad_and_value

from evomal.engine.functional_model import FunctionalModel, Parameters
from evomal.engine.meta_gradient import LossPopulation, MetaBatch, TaskLoss, transposed
from evomal.engine.vectorise import Vectorise
from evomal.tasks.inputs import Inputs
from evomal.tasks.recipe import Recipe


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
    """`[P, N]` gradients of the task loss by the weights, and its `[P]` values, after all inner steps."""
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
