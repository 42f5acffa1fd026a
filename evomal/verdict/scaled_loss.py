"""A loss multiplied by a number, so that it pulls as hard as another at the start."""

import math

import torch
from torch import Tensor, nn

from evomal.engine.choices import initial_model
from evomal.randomness import isolated_torch
from evomal.tasks.batches import Batches
from evomal.tasks.task import Task

_BATCHES = 8


class ScaledLoss(nn.Module):
    """factor · loss: under plain SGD the same as a learning rate of factor times the other."""

    def __init__(self, loss: nn.Module, factor: float) -> None:
        super().__init__()
        self.loss, self.factor = loss, factor

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.factor * self.loss(output, target)
        return value


def gradient_norm(task: Task, loss: nn.Module, *, seed: int) -> float:
    """Mean norm of the gradient by the model's parameters at the seed's initial weights, over a few batches."""
    model = initial_model(task, seed).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    batches = Batches(len(task.train), task.recipe.batch_size, seed=seed, purpose="gradient norm")
    norms = []
    with torch.enable_grad(), isolated_torch(seed, "gradient norm"):
        for index in range(_BATCHES):
            rows = batches[index]
            value = loss(model(task.train.inputs[rows].float()), task.train.targets[rows])
            gradients = torch.autograd.grad(value, trained, materialize_grads=True)
            whole = torch.cat([gradient.double().reshape(-1) for gradient in gradients])
            norms.append(float(torch.linalg.vector_norm(whole)))
    return sum(norms) / len(norms)


def matching_factor(task: Task, loss: nn.Module, baseline: nn.Module, *, seeds: list[int]) -> float:
    """What to multiply the loss by so that its mean gradient norm at initialisation is the baseline's.

    One whose gradient there is zero or not finite is left as it is: no number would change that.
    """
    own, other = (
        sum(gradient_norm(task, criterion, seed=seed) for seed in seeds) / len(seeds) for criterion in (loss, baseline)
    )
    factor = other / own if own > 0 else math.nan
    return factor if math.isfinite(factor) and factor > 0 else 1.0
