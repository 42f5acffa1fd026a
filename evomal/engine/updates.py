"""Optimizers for stacks of models: every member has its own learning rate and weight decay, in tensors that a captured
step can read.

The operations and their order are those of `torch.optim` (SGD: Sutskever et al., 2013; Adam: Kingma and Ba, 2015;
AdamW: Loshchilov and Hutter, 2019), which have one learning rate and one weight decay for all parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from evomal.extras import has_triton


class StackedOptimizer(ABC):
    """Updates parameters `[P, …]` of P models by their gradients.

    Args:
        parameters: One tensor per parameter of the model, with a leading dimension of members.
        options: Those of a group of parameters of torch's optimizer; its learning rate is not used.
        group: The number of that group.
    """

    def __init__(self, parameters: Sequence[Tensor], options: Mapping[str, Any], *, group: int = 0) -> None:
        self._parameters, self._options, self.group = list(parameters), options, group
        self._decay = float(options["weight_decay"])
        members, device, dtype = len(parameters[0]), parameters[0].device, parameters[0].dtype
        self.rates = torch.zeros(members, device=device, dtype=dtype)
        """`[P]`: the learning rate of each member."""
        self.decays = torch.full_like(self.rates, self._decay)
        """`[P]`: the weight decay of each member."""
        self._rates, self._decays = (
            [numbers.view(-1, *[1] * (value.dim() - 1)) for value in parameters]
            for numbers in (self.rates, self.decays)
        )
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

    def multiply_decay(self, multiples: Sequence[float]) -> None:
        """Give each member that multiple of the weight decay of the options."""
        self.decays.copy_(self._decay * torch.tensor(multiples, dtype=torch.float64))

    def copy_rows(self, other: "StackedOptimizer", rows: Tensor) -> None:
        """Take over the state of some members of another stack."""
        for own, others in zip(self.state, other.state, strict=True):
            for value, former in zip(own, others, strict=True):
                value.copy_(former.index_select(0, rows))
        self.step_count.copy_(other.step_count)

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
        if self._decay:
            torch._foreach_addcmul_(gradients, self._parameters, self._decays)


class StackedSGD(StackedOptimizer):
    """SGD with momentum or Nesterov momentum."""

    buffers = 1

    def _update(self, gradients: list[Tensor]) -> None:
        momentum = self._options["momentum"]
        self._add_weight_decay(gradients)
        if momentum:
            (velocities,) = self.state
            torch._foreach_mul_(velocities, momentum)
            torch._foreach_add_(velocities, gradients)
            if self._options["nesterov"]:
                torch._foreach_add_(gradients, velocities, alpha=momentum)
            else:
                gradients = velocities
        torch._foreach_addcmul_(self._parameters, gradients, self._rates, value=-1)

    def _update_fused(self) -> None:
        from evomal.engine import updates_triton

        options, (velocities,) = self._options, self.state
        for parameter, velocity in zip(self._parameters, velocities, strict=True):
            updates_triton.sgd(
                parameter, velocity, self.rates, self.decays, momentum=options["momentum"],
                nesterov=options["nesterov"],
            )  # fmt: skip


class StackedAdam(StackedOptimizer):
    """Adam, whose weight decay is added to the gradient, and AdamW, whose weight decay shrinks the parameters."""

    buffers = 2

    def _update(self, gradients: list[Tensor]) -> None:
        if not self._is_decoupled:
            self._add_weight_decay(gradients)
        elif self._decay:
            pairs = zip(self._rates, self._decays, strict=True)
            torch._foreach_mul_(self._parameters, [1 - rate * decay for rate, decay in pairs])
        means, squares = self.state
        inverse, root = self._corrections()
        first, second = self._options["betas"]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - second)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_div_(denominators, root)
        torch._foreach_add_(denominators, self._options["eps"])
        directions = torch._foreach_div(means, denominators)
        steps = [rate * inverse for rate in self._rates]
        torch._foreach_addcmul_(self._parameters, list(directions), steps, value=-1)

    @property
    def _is_decoupled(self) -> bool:
        return bool(self._options["decoupled_weight_decay"])

    def _corrections(self) -> Tensor:
        """Count the step, and return 1 / (1 − β1^t) and the root of 1 − β2^t."""
        self.step_count += 1
        # In double precision: in single, 1 − 0.999 is wrong in the fifth digit.
        first, second = (1 - beta**self.step_count for beta in self._options["betas"])
        return torch.stack((1 / first, second.sqrt())).to(self.rates.dtype)

    def _update_fused(self) -> None:
        from evomal.engine import updates_triton

        corrections = self._corrections()
        for parameter, mean, square in zip(self._parameters, *self.state, strict=True):
            updates_triton.adam(
                parameter, mean, square, self.rates, self.decays, corrections, betas=self._options["betas"],
                stabiliser=self._options["eps"], decoupled=self._is_decoupled,
            )  # fmt: skip


STACKED_OPTIMIZERS: dict[type[Optimizer], type[StackedOptimizer]] = {
    torch.optim.SGD: StackedSGD,
    torch.optim.Adam: StackedAdam,
    torch.optim.AdamW: StackedAdam,
}
"""By the optimizer of torch that they stack."""


def stacked_optimizers(optimizer: Optimizer, stacks: Mapping[Tensor, Tensor]) -> list[StackedOptimizer]:
    """Returns an optimizer for every group of torch's optimizer that has trained parameters.

    Args:
        optimizer: The optimizer of one model.
        stacks: The stack of each parameter that is trained.
    """
    kind = STACKED_OPTIMIZERS[type(optimizer)]
    groups = [[stacks[one] for one in group["params"] if one in stacks] for group in optimizer.param_groups]
    return [kind(own, optimizer.param_groups[number], group=number) for number, own in enumerate(groups) if own]


def clip_members(gradients: Sequence[Tensor], norm: float) -> None:
    """Clip the gradient of each member to a norm, as `torch.nn.utils.clip_grad_norm_` does, in place.

    Args:
        gradients: One gradient `[P, …]` per parameter.
        norm: The largest norm of a member's gradient by all parameters.
    """
    own = torch.stack([torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1) for gradient in gradients])
    factors = (norm / (torch.linalg.vector_norm(own, dim=0) + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(
        list(gradients), [factors.view(-1, *[1] * (gradient.dim() - 1)) for gradient in gradients]
    )  # fmt: skip
