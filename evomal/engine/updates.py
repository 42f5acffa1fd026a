"""Optimizers for stacks of models: every member has its own learning rate, a tensor that a captured step can read.

The operations and their order are those of `torch.optim` (SGD: Sutskever et al., 2013; Adam: Kingma and Ba, 2015;
AdamW: Loshchilov and Hutter, 2019), whose learning rate is one number for all parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from evomal.forest.forest import has_triton
from evomal.tasks.recipe import Recipe

_BETAS, _EPSILON = (0.9, 0.999), 1e-8


class StackedOptimizer(ABC):
    """Updates parameters `[P, …]` of P models by their gradients.

    Args:
        parameters: One tensor per parameter of the model, with a leading dimension of members.
        recipe: Momentum and weight decay; its learning rate is not used.
    """

    def __init__(self, parameters: Sequence[Tensor], recipe: Recipe) -> None:
        self._parameters, self._recipe = list(parameters), recipe
        members, device, dtype = len(parameters[0]), parameters[0].device, parameters[0].dtype
        self.rates = torch.zeros(members, device=device, dtype=dtype)
        """`[P]`: the learning rate of each member."""
        self._rates = [self.rates.view(-1, *[1] * (value.dim() - 1)) for value in parameters]
        self.state: list[list[Tensor]] = [
            [torch.zeros_like(value, requires_grad=False) for value in parameters] for _ in range(self.buffers)
        ]
        """Momenta and the like: for each kind of buffer, one tensor per parameter."""
        self.step_count = torch.zeros((), device=device, dtype=torch.float64)
        self._is_fused = device.type == "cuda" and dtype == torch.float32 and has_triton()

    buffers: int
    """Buffers per parameter."""

    def restart(self) -> None:
        """Reset the state, in the memory it is in."""
        self.step_count.zero_()
        for tensors in self.state:
            torch._foreach_zero_(tensors)

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters by their `grad`, which is overwritten."""
        if self._is_fused:
            self._update_fused()
            return
        gradients = [value.grad for value in self._parameters]
        assert all(gradient is not None for gradient in gradients)
        self._update(gradients)  # type: ignore[arg-type]

    @abstractmethod
    def _update(self, gradients: list[Tensor]) -> None:
        """Update by operations of torch: the reference for the kernels."""

    @abstractmethod
    def _update_fused(self) -> None:
        """The same by one kernel per parameter."""

    def _add_weight_decay(self, gradients: list[Tensor]) -> None:
        if self._recipe.weight_decay:
            torch._foreach_add_(gradients, self._parameters, alpha=self._recipe.weight_decay)


class StackedSGD(StackedOptimizer):
    """SGD with momentum, with Nesterov momentum if the recipe says so."""

    buffers = 1

    def _update(self, gradients: list[Tensor]) -> None:
        momentum = self._recipe.momentum
        self._add_weight_decay(gradients)
        if momentum:
            (velocities,) = self.state
            torch._foreach_mul_(velocities, momentum)
            torch._foreach_add_(velocities, gradients)
            if self._recipe.nesterov:
                torch._foreach_add_(gradients, velocities, alpha=momentum)
            else:
                gradients = velocities
        torch._foreach_addcmul_(self._parameters, gradients, self._rates, value=-1)

    def _update_fused(self) -> None:
        from evomal.engine import updates_triton

        recipe, (velocities,) = self._recipe, self.state
        for parameter, velocity in zip(self._parameters, velocities, strict=True):
            updates_triton.sgd(
                parameter, velocity, self.rates, momentum=recipe.momentum, decay=recipe.weight_decay,
                nesterov=recipe.nesterov,
            )  # fmt: skip


class StackedAdam(StackedOptimizer):
    """Adam; weight decay is added to the gradient."""

    buffers = 2
    decoupled = False
    """Whether weight decay shrinks the parameters instead."""

    def _update(self, gradients: list[Tensor]) -> None:
        self._add_weight_decay(gradients)
        self._move(gradients)

    def _move(self, gradients: list[Tensor]) -> None:
        means, squares = self.state
        inverse, root = self._corrections()
        torch._foreach_lerp_(means, gradients, 1 - _BETAS[0])
        torch._foreach_mul_(squares, _BETAS[1])
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - _BETAS[1])
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_div_(denominators, root)
        torch._foreach_add_(denominators, _EPSILON)
        directions = torch._foreach_div(means, denominators)
        steps = [rate * inverse for rate in self._rates]
        torch._foreach_addcmul_(self._parameters, list(directions), steps, value=-1)

    def _corrections(self) -> Tensor:
        """Count the step, and return 1 / (1 − β1^t) and the root of 1 − β2^t."""
        self.step_count += 1
        # In double precision: in single, 1 − 0.999 is wrong in the fifth digit.
        first, second = (1 - beta**self.step_count for beta in _BETAS)
        return torch.stack((1 / first, second.sqrt())).to(self.rates.dtype)

    def _update_fused(self) -> None:
        from evomal.engine import updates_triton

        corrections = self._corrections()
        for parameter, mean, square in zip(self._parameters, *self.state, strict=True):
            updates_triton.adam(
                parameter, mean, square, self.rates, corrections, decay=self._recipe.weight_decay,
                decoupled=self.decoupled,
            )  # fmt: skip


class StackedAdamW(StackedAdam):
    """Adam with weight decay apart from the gradient."""

    decoupled = True

    def _update(self, gradients: list[Tensor]) -> None:
        if self._recipe.weight_decay:
            shrinking = [1 - rate * self._recipe.weight_decay for rate in self._rates]
            torch._foreach_mul_(self._parameters, shrinking)
        self._move(gradients)


STACKED_OPTIMIZERS: dict[str, type[StackedOptimizer]] = {"sgd": StackedSGD, "adam": StackedAdam, "adamw": StackedAdamW}
