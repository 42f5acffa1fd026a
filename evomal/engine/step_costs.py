"""The memory and the arithmetic of a step, predicted from one pass over a few samples."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from evomal.engine.functional_model import FunctionalModel
from evomal.engine.repeatable_layers import forget, recorded, running
from evomal.tasks.inputs import Inputs, count, map_tensors, tensors

_ALIVE = 3
"""Tensors of the largest size that a backward pass holds beside what the forward pass kept: gradients of a layer's
outputs and inputs, and of a branch beside it."""


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes per sample."""

    kept: int
    """What a forward pass keeps for its backward pass."""
    recorded: int
    """What the first of two passes keeps for the second: see `repeatable_layers`."""
    largest: int
    """The largest tensor among those."""

    def training(self, parameters: int, cast: int, batch: int) -> int:
        """Returns the bytes of a training step; `parameters` and `cast` are the bytes of the parameters and of those
        that layers compute with.

        Parameters, their initial values, gradients and momenta; activations and their gradients.
        """
        return 4 * parameters + cast + batch * (self.kept + _ALIVE * self.largest)

    def meta(self, parameters: int, cast: int, batch: int) -> int:
        """Returns the bytes of a meta step of one candidate by forward mode."""
        moving = 3 * parameters + 2 * cast + batch * self.recorded  # θ0, θ', the gradient; two of them also cast
        validating = parameters + 3 * cast + batch * (self.recorded + self.kept + _ALIVE * self.largest)
        return max(moving, validating)


def activation_bytes(model: FunctionalModel, samples: Inputs) -> ActivationBytes:
    """Run the model once and count what it keeps."""
    samples = map_tensors(torch.clone, samples)  # tensors of inference mode cannot be kept for a backward pass
    parameters = {name: value.detach().requires_grad_() for name, value in model.cast(model.parameters).items()}
    known = {_place(value) for value in (*parameters.values(), *model.constants.values(), *tensors(samples))}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if _place(tensor) not in known:
            kept[_place(tensor)] = tensor
        return tensor

    with (
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        running(model.module, "first"),
    ):
        outputs = model(parameters, samples)
    again = {_place(tensor): tensor for tensor in recorded(model.module)}
    forget(model.module)
    del outputs
    sizes = [sum(map(_bytes, found.values())) for found in (kept, again)]
    largest = max(map(_bytes, [*kept.values(), *again.values()]), default=0)
    kept_bytes, recorded_bytes, largest = (size // count(samples) for size in (*sizes, largest))
    return ActivationBytes(kept_bytes, recorded_bytes, largest)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _bytes(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()


_PASSES = 3  # a backward pass multiplies twice as much as a forward pass


def step_multiply_adds(forward: Callable[[Inputs], object], samples: Inputs, *, parameters: int, batch: int) -> int:
    """Returns the multiply-adds of a training step on `batch` samples, counted in a forward pass over `samples`.

    Operations that torch cannot count, such as those of some recurrent layers, count one for each parameter.
    """
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        forward(samples)
    counted: int = counter.get_total_flops() // 2 // max(1, count(samples))
    return _PASSES * batch * max(counted, parameters)
