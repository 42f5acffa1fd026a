"""A model as a function of its parameters, stored in one vector so that one copy replaces all weights."""

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel

from evomal.engine.precision import Precision, autocast
from evomal.engine.repeatable_layers import RepeatableConvolution, replace_layers
from evomal.engine.stackable_layers import stackable_copy
from evomal.errors import InputError
from evomal.randomness import isolated_torch
from evomal.tasks.inputs import Inputs, arguments, is_one_float_tensor, with_channels_last

Parameters = dict[str, Tensor]
PullBack = Callable[..., Parameters]
"""c ↦ Jᵀc: a cotangent of the outputs to one of the parameters; options are `ONCE` or none."""
ONCE = {"retain_graph": False, "create_graph": False}
"""Options of a pull-back that is called once and not differentiated: it frees the activations as it goes."""

_CAST_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, RepeatableConvolution)
_ALIGNMENT = 64  # elements; matrix kernels are slower on addresses that are not multiples of 128 bytes


class FunctionalModel:
    """`model(parameters, inputs)`, as the module in training mode computes it, without changing the module.

    The vector `flat` holds the whole state of a fresh model: trained parameters (`parameters`), and frozen parameters
    and buffers (`constants`). Batch norm uses the batch's statistics and tracks none: a meta step starts
    from a fresh model, so there is nothing to track.
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
        self.module = copy.deepcopy(module).to(device, dtype)
        self.has_convolutions = any(isinstance(layer, nn.modules.conv._ConvNd) for layer in self.module.modules())
        replace_layers(self.module)
        stackable = stackable_copy(self.module, device=device, dtype=dtype, precision=precision)
        self.module = self.module if stackable is None else stackable
        _untrack_batch_statistics(self.module)
        self.device, self.precision, self.channels_last = device, precision, channels_last
        self._trained = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        if not self._trained:
            raise InputError("a model must have parameters to be trained but has none")
        self._shapes = {name: tensor.shape for name, tensor in state_of(self.module).items()}
        self.size = sum(_aligned(shape.numel()) for shape in self._shapes.values())
        self.flat = torch.zeros(self.size, dtype=dtype, device=device)
        self.parameters, self.constants = self.views(self.flat)
        self._dtypes = dict.fromkeys(self._trained, dtype)

    def views(self, flat: Tensor) -> tuple[Parameters, Parameters]:
        """Parameters and constants as parts of one vector."""
        views, start = {}, 0
        for name, shape in self._shapes.items():
            part = flat[start : start + shape.numel()]
            # As `Module.to(memory_format=...)` stores them; on a CPU nothing is gained, and bits may change.
            if self.channels_last and self.device.type != "cpu" and len(shape) == 4:
                views[name] = part.view(shape[0], *shape[2:], shape[1]).permute(0, 3, 1, 2)
            else:
                views[name] = part.view(shape)
            start += _aligned(shape.numel())
        parameters = {name: views.pop(name) for name in self._trained}
        return parameters, views

    def flattened(self, module: nn.Module) -> Tensor:
        """Returns the state of another such module as one vector on the CPU."""
        flat = torch.zeros(self.size, dtype=self.flat.dtype)
        parameters, constants = self.views(flat)
        for name, tensor in state_of(module).items():
            if name in self._shapes:
                (parameters if name in parameters else constants)[name].copy_(tensor.detach())
        return flat

    def __call__(self, parameters: Parameters, inputs: Inputs, constants: Parameters | None = None) -> Tensor:
        """Returns the outputs, in the dtype of the parameters for every precision."""
        if self.channels_last:
            inputs = with_channels_last(inputs)
        positional, named = arguments(inputs)
        # Copies, because a layer may write to its buffers.
        given = {name: value.clone() for name, value in (self.constants if constants is None else constants).items()}
        with autocast(self.precision, self.device):
            outputs: Tensor = functional_call(self.module, {**given, **parameters}, positional, named)
        return outputs.to(self.flat.dtype)

    def cast_once(self, samples: Inputs) -> None:
        """Let `cast` cast weights that autocast would cast in every pass, if that gives the same outputs for samples.

        Those are weights of convolutions and linear layers. A layer that runs twice, or a model that uses weights
        outside of their layers, is left to autocast, which rounds each use by itself.
        """
        if self.precision != "bfloat16":
            return
        owners = Counter(id(value) for layer in self.module.modules() for value in layer.parameters(recurse=False))
        calls: Counter[nn.Module] = Counter()
        layers = {name: layer for name, layer in self.module.named_modules() if type(layer) in _CAST_LAYERS}
        hooks = [layer.register_forward_hook(lambda own, *_: calls.update([own])) for layer in layers.values()]
        try:
            with torch.no_grad():
                expected = self._with_fixed_masks(self.parameters, samples)
                self._dtypes |= {
                    f"{prefix}.{name}" if prefix else name: torch.bfloat16
                    for prefix, layer in layers.items()
                    for name, value in layer.named_parameters(recurse=False)
                    if calls[layer] == 1 and value.requires_grad and owners[id(value)] == 1
                }
                found = self._with_fixed_masks(self.cast(self.parameters), samples)
        finally:
            for hook in hooks:
                hook.remove()
        if not torch.equal(found, expected):
            self._dtypes = dict.fromkeys(self._dtypes, self.flat.dtype)

    def _with_fixed_masks(self, parameters: Parameters, samples: Inputs) -> Tensor:
        with isolated_torch(0, "trial", device=self.device):
            return self(parameters, samples)

    def cast(self, parameters: Parameters) -> Parameters:
        """Returns parameters as layers compute with them."""
        return {name: value.to(self._dtypes[name]) for name, value in parameters.items()}

    def copied(self, parameters: Parameters, *, cast: bool) -> Parameters:
        """Returns copies, cast or in the dtype of the model, each in memory of its own, made by few kernels.

        A tangent of a view is stored in as much memory as the view's base has: all parameters for each of them.
        """
        dtypes = self._dtypes if cast else dict.fromkeys(parameters, self.flat.dtype)
        found = {name: torch.empty_like(value, dtype=dtypes[name]) for name, value in parameters.items()}
        groups: dict[tuple[torch.dtype, torch.dtype], list[str]] = {}
        for name, value in parameters.items():  # a kernel copies many tensors of the same dtypes
            groups.setdefault((value.dtype, dtypes[name]), []).append(name)
        for names in groups.values():
            torch._foreach_copy_([found[name] for name in names], [parameters[name] for name in names])
        return found

    def linearised(self, parameters: Parameters, inputs: Inputs) -> tuple[Tensor, PullBack]:
        """Returns the outputs, and the pull-back of the same pass."""
        outputs, pull = vjp(lambda own: self(own, inputs), parameters)[:2]
        return outputs, lambda cotangent, **options: pull(cotangent, **options)[0]

    @contextlib.contextmanager
    def differentiable_twice(self) -> Iterator[None]:
        """A context in which kernels that have second derivatives replace faster ones that have none."""
        recurrent = any(isinstance(layer, nn.RNNBase) for layer in self.module.modules())
        before = torch.backends.cudnn.enabled
        try:
            if self.device.type == "cuda" and recurrent:
                # Not `cudnn.flags`, which fails where the newer precision flags are set.
                torch.backends.cudnn.enabled = False
            with sdpa_kernel(SDPBackend.MATH):
                yield
        finally:
            torch.backends.cudnn.enabled = before


@contextlib.contextmanager
def stackable_attention(inputs: Inputs, device: torch.device) -> Iterator[None]:
    """A context in which torch's attention layers consist of operations that `vmap` can stack.

    Their fused kernel for evaluation cannot be stacked, nor can that of the CPU for attention itself. Models of one
    tensor of floats keep both: searches with them that were recorded earlier must be resumable.
    """
    if is_one_float_tensor(inputs):
        yield
        return
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else contextlib.nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def state_of(module: nn.Module) -> Parameters:
    """Parameters and floating-point buffers; others (counters, indices) are the same in every fresh model."""
    buffers = {name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()}
    return {**dict(module.named_parameters()), **buffers}


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT


def _untrack_batch_statistics(module: nn.Module) -> None:
    for layer in module.modules():
        # A layer that stays in evaluation mode during training is meant to use the statistics it has.
        if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.training:
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
