"""A model as a function of its parameters, which lie in one vector so that other starts are one copy away."""

import contextlib
import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel

from evomal.engine.precision import Precision, autocasting
from evomal.errors import InputError

Parameters = dict[str, Tensor]
PullBack = Callable[[Tensor], Parameters]
"""c ↦ Jᵀc: a cotangent of the outputs to one of the parameters."""

_ALIGNMENT = 64  # elements; matrix kernels are slower on addresses that are not multiples of 128 bytes


class FunctionalModel:
    """`model(parameters, inputs)` in training mode, leaving no trace in the module.

    Batch norm uses the batch's statistics and tracks none: a meta step starts from a fresh model, so there is nothing
    to track, and `torch.func` refuses to update a buffer in place.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        precision: Precision = "float32",
        channels_last: bool = False,
    ) -> None:
        self.module = copy.deepcopy(module).to(device, dtype).train()
        _untrack_batch_statistics(self.module)
        self.device, self.precision, self.channels_last = device, precision, channels_last
        self._shapes = {name: parameter.shape for name, parameter in self.module.named_parameters()}
        if not self._shapes:
            raise InputError("a model must have parameters to be trained but has none")
        self.size = sum(_aligned(shape.numel()) for shape in self._shapes.values())
        self.flat = torch.zeros(self.size, dtype=dtype, device=device)
        self.parameters = self.views(self.flat)

    def views(self, flat: Tensor) -> Parameters:
        """The parameters as parts of one vector."""
        views, start = {}, 0
        for name, shape in self._shapes.items():
            views[name] = flat[start : start + shape.numel()].view(shape)
            start += _aligned(shape.numel())
        return views

    def flattened(self, module: nn.Module) -> Tensor:
        """The parameters of another such module as one vector on the CPU."""
        flat = torch.zeros(self.size, dtype=self.flat.dtype)
        views = self.views(flat)
        for name, parameter in module.named_parameters():
            views[name].copy_(parameter.detach())
        return flat

    def __call__(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """The outputs, in the dtype of the parameters whatever the precision within."""
        if self.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with autocasting(self.precision, self.device):
            outputs: Tensor = functional_call(self.module, parameters, (inputs,))
        return outputs.to(self.flat.dtype)

    def linearised(self, parameters: Parameters, inputs: Tensor) -> tuple[Tensor, PullBack]:
        """The outputs, and the pull-back of that one pass."""
        outputs, pull = vjp(lambda own: self(own, inputs), parameters)[:2]
        return outputs, lambda cotangent: pull(cotangent)[0]

    @contextlib.contextmanager
    def differentiable_twice(self) -> Iterator[None]:
        """Kernels that have second derivatives, in place of faster ones that have none."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if self.device.type == "cuda" and any(isinstance(layer, nn.RNNBase) for layer in self.module.modules()):
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            yield


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT


def _untrack_batch_statistics(module: nn.Module) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._NormBase):
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
