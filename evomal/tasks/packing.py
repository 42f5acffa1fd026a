"""A batch as one piece of memory, which is sent by a process, pinned and copied to a device at once."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from evomal.tasks.inputs import Form, form_of, in_form
from evomal.tasks.parts import Part

_ALIGNED = 64  # bytes: where a tensor may begin


@dataclass(frozen=True, eq=False)
class PackedPart:
    """Inputs, targets and weights of a batch in one tensor of bytes.

    Args:
        memory: The bytes.
        form: The form of the inputs.
        layout: The place in the memory, the dtype and the shape of each tensor.
        has_weights: Whether the last tensor holds weights.
    """

    memory: Tensor
    form: Form
    layout: tuple[tuple[slice, torch.dtype, torch.Size], ...]
    has_weights: bool

    @classmethod
    def of(cls, part: Part) -> "PackedPart":
        """Returns a batch in one piece."""
        own = part.tensors
        layout, end = [], 0
        for tensor in own:
            size = tensor.numel() * tensor.element_size()
            layout.append((slice(end, end + size), tensor.dtype, tensor.shape))
            end += -(-size // _ALIGNED) * _ALIGNED
        memory = torch.empty(end, dtype=torch.uint8)
        for tensor, (place, _, _) in zip(own, layout, strict=True):
            memory[place].copy_(tensor.reshape(-1).view(torch.uint8))
        return cls(memory, form_of(part.inputs), tuple(layout), part.weights is not None)

    def pin_memory(self) -> "PackedPart":
        """Returns the batch in pinned memory, from which a CUDA device can copy while it computes."""
        return dataclasses.replace(self, memory=self.memory.pin_memory())

    def copied(self, device: torch.device) -> Part:
        """Returns the batch in other memory, on the device; nothing waits until it is there."""
        memory = self.memory.to(device, non_blocking=True, copy=True)
        own = [memory[place].view(dtype).view(shape) for place, dtype, shape in self.layout]
        weights = own.pop() if self.has_weights else None
        targets = own.pop()
        return Part(in_form(self.form, own), targets, weights)
