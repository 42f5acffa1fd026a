"""The settings of an engine, what a model allows, and the plan that follows from both."""

import copy
import functools
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import jvp, vjp, vmap

from evomal.engine.device_memory import usable_bytes
from evomal.engine.functional_model import FunctionalModel, PullBack, stackable_attention
from evomal.engine.meta_gradient import Tangent
from evomal.engine.precision import Precision
from evomal.engine.repeatable_layers import forget, running
from evomal.engine.stackable_layers import STACKED_CONVOLUTION_PARAMETERS, STACKED_PARAMETERS
from evomal.engine.step_costs import ActivationBytes, activation_bytes
from evomal.engine.vectorise import Mode
from evomal.errors import InputError
from evomal.randomness import isolated_torch, torch_states
from evomal.tasks.inputs import Inputs, called, count, map_tensors
from evomal.tasks.model_trials import evaluating
from evomal.users_code import described

PopulationMode = Literal["auto", "stacked", "looped"]


@dataclass(frozen=True)
class EngineSettings:
    """Settings of an `Engine`: numbers of the paper's sections 3 and 4, and how the work is executed.

    They are not checked here: those of a user come from `SearchSettings`, which checks them.
    """

    population: int = 25
    meta_steps: int = 250
    meta_lr: float = 1e-3
    inner_steps: int = 1
    training_steps: int = 500
    optimizer: str | None = None
    """The name of an optimizer; None: that of the task's recipe."""
    filter_steps: int = 1000
    filter_samples: int = 100
    activation: str = "identity"
    space: tuple[str, ...] = ("paper",)
    """Names of the operators and terminals that expressions may have: see `Space.of`."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """Changes to the task's own recipe beside the optimizer, such as lr, batch_size, milestones, schedule."""
    device: str = "auto"
    precision: Precision = "float32"
    channels_last: bool = False
    population_mode: PopulationMode = "auto"
    chunk: int | None = None
    graphs: bool = True
    tangent: Tangent | None = None
    """How Jacobian-vector products are computed; None: the fastest way that the model allows."""
    dtype: torch.dtype = torch.float32
    threads: int | None = None
    """Threads of torch and of compiled kernels; None: by a fixed rule on the work of a training step."""
    deterministic: bool = False
    """Whether CUDA must repeat its bits, which takes time; a CPU always does."""

    @property
    def is_extended(self) -> bool:
        """Whether expressions may have other tokens than the paper's; the kernels for those are compiled apart."""
        return self.space != ("paper",)


@dataclass(frozen=True)
class Capabilities:
    """Properties of a model that decide how a population of such models is trained."""

    outputs: int
    """Outputs per sample."""
    is_random: bool
    """Whether a forward pass draws random numbers, as dropout does."""
    is_repeatable: bool
    """Whether a forward pass can be repeated with the same random numbers."""
    transposable: bool
    """Whether its pull-back can be differentiated, so that transposing it gives Jacobian-vector products."""
    try_forward_mode: Callable[[], bool]
    """Tries whether forward-mode derivatives exist for all its layers."""
    stackable: str
    """Empty where many copies can run as one by `vmap`, else why not."""
    updates_buffers: bool
    """Whether a training pass changes buffers, as batch norm does."""
    has_convolutions: bool
    """Whether it has convolutions, for which other methods are fast."""
    activations: int
    """Outputs of all its layers per sample."""
    bytes_per_sample: ActivationBytes
    """What its passes keep."""
    cast_bytes: int
    """Bytes of the parameters as its layers compute with them."""

    @functools.cached_property
    def forward_mode(self) -> bool:
        """Whether forward-mode derivatives exist for all its layers.

        Tried when it is first asked for: torch takes a second to prepare its first such derivative.
        """
        return self.try_forward_mode()


def capabilities(model: FunctionalModel, module: nn.Module, samples: Inputs, *, positions: int = 1) -> Capabilities:
    """Try the model on some samples; a model that cannot be differentiated by its parameters raises an error.

    `positions`: rows of outputs per sample.
    """
    with isolated_torch(0, "trial", device=model.device), model.differentiable_twice():
        before = torch_states(model.device)
        try:
            outputs, pull = model.linearised(model.parameters, samples)
            pull(torch.zeros_like(outputs))
        except (Exception, SystemExit) as error:  # a user's model may raise anything
            raise InputError(
                f"this model cannot be differentiated as a function of its parameters: {described(error)}"
            ) from error
        if outputs.dim() != 2 or len(outputs) != positions * count(samples):
            raise InputError(f"a model must give a row of outputs for each sample but gave {list(outputs.shape)}")
        is_random = not all(torch.equal(a, b) for a, b in zip(before, torch_states(model.device), strict=True))
        return Capabilities(
            outputs=outputs.shape[1],
            is_random=is_random,
            is_repeatable=_is_repeatable(model, samples),
            transposable=_is_transposable(pull, outputs),
            try_forward_mode=functools.partial(_has_forward_mode, model, samples),
            stackable=_why_not_stackable(model, samples),
            updates_buffers=_updates_buffers(module, model, samples),
            has_convolutions=model.has_convolutions,
            activations=_activations(model, samples),
            bytes_per_sample=activation_bytes(model, samples),
            cast_bytes=sum(value.nbytes for value in model.cast(model.parameters).values()),
        )


def _is_repeatable(model: FunctionalModel, samples: Inputs) -> bool:
    with torch.no_grad():
        with running(model.module, "first"):
            model(model.parameters, samples)
        before = torch_states(model.device)
        with running(model.module, "second"):
            model(model.parameters, samples)
    forget(model.module)
    return all(torch.equal(a, b) for a, b in zip(before, torch_states(model.device), strict=True))


def _activations(model: FunctionalModel, samples: Inputs) -> int:
    counted = 0

    def add(layer: nn.Module, given: object, outputs: object) -> None:
        nonlocal counted
        counted += outputs.numel() if isinstance(outputs, Tensor) else 0

    layers = [layer for layer in model.module.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(add) for layer in layers]
    try:
        with torch.no_grad():
            model(model.parameters, samples)
    finally:
        for hook in hooks:
            hook.remove()
    return counted // count(samples)


def _updates_buffers(module: nn.Module, model: FunctionalModel, samples: Inputs) -> bool:
    copied = copy.deepcopy(module).to(model.device, model.flat.dtype)
    before = [buffer.clone() for buffer in copied.buffers()]
    with torch.no_grad():
        called(copied, samples)
    return not all(torch.equal(a, b) for a, b in zip(before, copied.buffers(), strict=True))


def _is_transposable(pull: PullBack, outputs: Tensor) -> bool:
    try:
        vjp(pull, torch.zeros_like(outputs))[1](pull(outputs))
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _has_forward_mode(model: FunctionalModel, samples: Inputs) -> bool:
    with isolated_torch(0, "trial", device=model.device), model.differentiable_twice():
        try:
            jvp(lambda parameters: model(parameters, samples), (model.parameters,), (model.parameters,))
        except (NotImplementedError, RuntimeError):
            return False
    return True


def _why_not_stackable(model: FunctionalModel, samples: Inputs) -> str:
    doubled = {name: value.expand(2, *value.shape) for name, value in model.parameters.items()}
    stacked = vmap(lambda parameters: model(parameters, samples), randomness="same")
    # Trials of different seeds also have different inputs, and a model may branch on what is in them.
    own_samples = map_tensors(lambda tensor: torch.stack((tensor, tensor)), samples)
    with_samples = vmap(model, randomness="same")
    try:
        with warnings.catch_warnings(record=True) as caught, stackable_attention(samples, model.device):
            warnings.simplefilter("always")
            stacked(doubled)
            with evaluating(model.module):
                stacked(doubled)
        with warnings.catch_warnings(), stackable_attention(samples, model.device):
            warnings.simplefilter("ignore")
            with_samples(doubled, own_samples)
            with evaluating(model.module):
                with_samples(doubled, own_samples)
    except Exception as error:
        return str(error).split("\n")[0]
    # Torch warns of a layer without a batching rule: it runs copy by copy, so stacking would gain nothing.
    slow = [str(item.message) for item in caught if "performance drop" in str(item.message)]
    return slow[0].split("\n")[0] if slow else ""


_GIB = 2**30
_BUDGET = {"cuda": 24 * _GIB, "cpu": 2 * _GIB}  # for what grows with the number of candidates in a chunk
_BUDGET_SHARE = 1 / 4  # of the GPU's memory, at most, for the same
_WORKSPACES = {"cuda": _GIB // 4}  # measured, for models with linear layers; others needed none
_LARGEST_CHUNK = 512
_LARGEST_STACK = {"cuda": 2048, "cpu": 128}
_EVALUATED_NUMBERS = 2**22
"""Layer outputs of one model in a forward pass of an evaluation. The rows of a pass depend on the model alone, as the
bits of a product may depend on its number of rows."""
_STACKED_PARAMETERS = {"cuda": STACKED_PARAMETERS, "cpu": 200_000}
"""Above that, a model's own arithmetic fills the device, and stacking only multiplies memory traffic."""
_STACKED_CONVOLUTION_PARAMETERS = {"cuda": STACKED_CONVOLUTION_PARAMETERS, "cpu": 0}
"""`vmap` makes a grouped convolution of stacked weights: faster for LeNet-5 on a GPU, slower for anything larger."""


@dataclass(frozen=True)
class Plan:
    """Mode, chunk sizes and predicted memory of a population; `reason` says why the mode was chosen."""

    mode: Mode
    reason: str
    meta_chunk: int
    training_chunk: int
    predicted_bytes: int
    trial_chunk: int
    """Most trials in one stack, whatever the population."""
    evaluated_rows: int
    """Rows per forward pass of an evaluation."""
    meta_bytes: int
    """Predicted memory of one candidate whose weights are optimised in a stack."""
    trial_bytes: int
    """Predicted memory of one trial in a stack."""

    def record(self) -> dict[str, Any]:
        """Returns what a search must be resumed with. Memory is not part of it, as other processes may share it."""
        return {name: value for name, value in asdict(self).items() if not name.endswith("_bytes")}


def make_plan(
    module: nn.Module,
    facts: Capabilities,
    settings: EngineSettings,
    *,
    device: torch.device,
    batch: int,
    kept: int = 0,
    unstacked: str = "",
) -> Plan:
    """Returns the plan for `batch` samples per step, beside `kept` bytes in use.

    `unstacked`: why the recipe's optimizer cannot train a stack of models; empty if it can.
    """
    population, inner_steps, chunk = settings.population, settings.inner_steps, settings.chunk
    element = settings.dtype.itemsize
    parameters = sum(parameter.numel() for parameter in module.parameters())
    mode, reason = _chosen_mode(facts, parameters, device, settings.population_mode, unstacked)
    weights_bytes, batch_bytes = parameters * element, facts.activations * batch * element
    budget = _budget(device)
    # Parameters, gradients, momenta and a temporary; activations, their gradients and a temporary.
    training = 4 * weights_bytes + 3 * batch_bytes
    # Pulled-back gradient, moved parameters, direction, a temporary; as much again for each further step.
    meta = (4 * weights_bytes + 4 * batch_bytes) * inner_steps
    if mode == "looped":
        # A captured step holds one candidate. An eager one takes all, whose tensors live one at a time; through several
        # inner steps they would live together.
        own = population if device.type == "cpu" and inner_steps == 1 else 1
        chunks = (min(chunk or own, own) if inner_steps > 1 else chunk or own, 1)
        own_bytes = facts.bytes_per_sample
        has_products = any(isinstance(layer, nn.Linear) for layer in module.modules())
        predicted = kept + (_WORKSPACES.get(device.type, 0) if has_products else 0)
        predicted += own_bytes.training(weights_bytes, facts.cast_bytes, batch)
        predicted += meta if inner_steps > 1 else own_bytes.meta(weights_bytes, facts.cast_bytes, batch)
    else:
        chunks = tuple(  # type: ignore[assignment]
            min(chunk or _LARGEST_CHUNK, max(1, budget // each), population) for each in (meta, training)
        )
        room = room_for_stack(device, settings)
        predicted = kept + sum(
            size * each if room is None else min(size * each, max(each, room))
            for size, each in zip(chunks, (meta, training), strict=True)
        )
    _check_room(predicted, device)
    most = _LARGEST_STACK.get(device.type, _LARGEST_CHUNK)
    return Plan(
        mode, reason, chunks[0], chunks[1], predicted, trial_chunk=min(chunk or most, max(2, budget // training)),
        evaluated_rows=max(16, min(1024, _EVALUATED_NUMBERS // max(1, facts.activations))), meta_bytes=meta,
        trial_bytes=training,
    )  # fmt: skip


def _chosen_mode(
    facts: Capabilities, parameters: int, device: torch.device, wanted: PopulationMode, unstacked: str
) -> tuple[Mode, str]:
    if facts.updates_buffers:
        hindrance = "training changes its buffers, as batch norm does"
    elif facts.stackable:
        hindrance = f"vmap cannot stack it: {facts.stackable}"
    else:
        hindrance = unstacked
    if wanted == "stacked" and hindrance:
        what = "recipe" if hindrance == unstacked else "model"
        raise InputError(f"population_mode stacked is not possible for this {what}: {hindrance}")
    if wanted != "auto":
        return wanted, "as asked"
    if hindrance:
        return "looped", hindrance
    limits = _STACKED_CONVOLUTION_PARAMETERS if facts.has_convolutions else _STACKED_PARAMETERS
    limit = limits.get(device.type, limits["cpu"])
    kind = "convolutional model" if facts.has_convolutions else "model"
    mode: Mode = "stacked" if parameters <= limit else "looped"
    relation = "at most" if mode == "stacked" else "more than"
    return mode, f"{parameters} parameters, {relation} the {limit} up to which a {kind} is stacked on {device.type}"


def _budget(device: torch.device) -> int:
    """Returns the bytes for what grows with a chunk.

    By the device alone and not by how many processes share it, so that a search can be resumed with other ones.
    """
    if device.type != "cuda":
        return _BUDGET["cpu"]
    return min(_BUDGET["cuda"], int(_BUDGET_SHARE * torch.cuda.get_device_properties(device).total_memory))


def room_for_stack(device: torch.device, settings: EngineSettings) -> int | None:
    """Returns the bytes that a stack may take of this process's share of a GPU.

    None: its size by rule is all that limits it, as on a CPU, or where its bits must not depend on it.
    """
    if device.type != "cuda" or settings.deterministic:
        return None
    return int(_BUDGET_SHARE * usable_bytes(device))


def _check_room(predicted: int, device: torch.device) -> None:
    if device.type != "cuda":
        return
    usable = usable_bytes(device)
    if predicted > usable:
        raise InputError(
            f"training this model takes about {predicted / _GIB:.1f} GiB but this process has {usable / _GIB:.1f} GiB "
            "of the device: a smaller batch or chunk takes less, and fewer processes have more each"
        )
