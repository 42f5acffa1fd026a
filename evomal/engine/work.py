"""The arithmetic of a model's training step."""

from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from evomal.tasks.inputs import Inputs, count

_PASSES = 3  # a backward pass multiplies twice as much as a forward pass


def step_multiply_adds(forward: Callable[[Inputs], object], samples: Inputs, *, parameters: int, batch: int) -> int:
    """Returns the multiply-adds of a training step on `batch` samples, counted in a forward pass over `samples`.

    Operations that torch cannot count, such as those of some recurrent layers, count one for each parameter.
    """
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        forward(samples)
    counted: int = counter.get_total_flops() // 2 // max(1, count(samples))
    return _PASSES * batch * max(counted, parameters)
