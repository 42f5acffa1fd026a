"""How a population is worked on: decided by rules from what it is, never by a stopwatch or by free memory.

A run that is resumed must decide the same, so the plan depends on device, model and settings alone and is recorded. The
constants were calibrated with `make bench` (docs/performance.md).
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from evomal.engine.capabilities import Capabilities
from evomal.engine.over import Mode
from evomal.errors import InputError

PopulationMode = Literal["auto", "stacked", "looped"]

_GIB = 2**30
_BUDGET = {"cuda": 24 * _GIB, "cpu": 2 * _GIB}  # for what grows with the number of candidates in a chunk
_LARGEST_CHUNK = 512
_STACKED_PARAMETERS = {"cuda": 8_000_000, "cpu": 200_000}
"""Above, a model's own arithmetic fills the device, and stacking only multiplies memory traffic."""
_STACKED_CONVOLUTION_PARAMETERS = {"cuda": 200_000, "cpu": 0}
"""`vmap` makes a grouped convolution of stacked weights: faster for LeNet-5 on a GPU, slower for anything larger."""


@dataclass(frozen=True)
class Plan:
    """Mode, chunks and the memory they are predicted to take; `reason` says why in words."""

    mode: Mode
    reason: str
    meta_chunk: int
    training_chunk: int
    predicted_bytes: int


def planned(
    module: nn.Module,
    facts: Capabilities,
    *,
    device: torch.device,
    batch: int,
    element: int,
    population: int,
    kept: int = 0,
    inner_steps: int = 1,
    wanted: PopulationMode = "auto",
    chunk: int | None = None,
) -> Plan:
    """The plan for batches of so many samples, in elements of so many bytes, beside so many bytes that are kept."""
    if wanted not in get_args(PopulationMode):
        raise InputError(f"population_mode must be one of {', '.join(get_args(PopulationMode))} but got {wanted!r}")
    if chunk is not None and chunk < 1:
        raise InputError(f"chunk must be at least 1 but got {chunk}")
    parameters = sum(parameter.numel() for parameter in module.parameters())
    mode, reason = _chosen_mode(facts, parameters, device, wanted)
    weights_bytes, batch_bytes = parameters * element, facts.activations * batch * element
    # Parameters, gradients, momenta and a temporary; activations, their gradients and a temporary.
    training = 4 * weights_bytes + 3 * batch_bytes
    # Pulled-back gradient, moved parameters, direction, a temporary; as much again for each further step.
    meta = (4 * weights_bytes + 4 * batch_bytes) * inner_steps
    if mode == "looped":
        # A captured step holds one candidate. An eager one takes all, whose tensors live one at a time; through several
        # inner steps they would live together.
        own = population if device.type == "cpu" and inner_steps == 1 else 1
        chunks = (min(chunk or own, own) if inner_steps > 1 else chunk or own, 1)
        predicted = kept + meta + training
    else:
        budget = _BUDGET.get(device.type, _BUDGET["cpu"])
        chunks = tuple(  # type: ignore[assignment]
            min(chunk or _LARGEST_CHUNK, max(1, budget // each), population) for each in (meta, training)
        )
        predicted = kept + chunks[0] * meta + chunks[1] * training
    _check_room(predicted, device)
    return Plan(mode, reason, chunks[0], chunks[1], predicted)


def _chosen_mode(
    facts: Capabilities, parameters: int, device: torch.device, wanted: PopulationMode
) -> tuple[Mode, str]:
    if facts.tracks:
        hindrance = "training changes its buffers, as batch norm does"
    elif facts.stackable:
        hindrance = f"vmap cannot stack it: {facts.stackable}"
    else:
        hindrance = ""
    if wanted == "stacked" and hindrance:
        raise InputError(f"population_mode stacked is not possible for this model: {hindrance}")
    if wanted != "auto":
        return wanted, "as asked"
    if hindrance:
        return "looped", hindrance
    limits = _STACKED_CONVOLUTION_PARAMETERS if facts.convolves else _STACKED_PARAMETERS
    limit = limits.get(device.type, limits["cpu"])
    kind = "convolutional model" if facts.convolves else "model"
    relation, mode = ("at most", "stacked") if parameters <= limit else ("more than", "looped")
    chosen: Mode = "stacked" if mode == "stacked" else "looped"
    return chosen, f"{parameters} parameters, {relation} the {limit} up to which a {kind} is stacked on {device.type}"


def _check_room(predicted: int, device: torch.device) -> None:
    if device.type != "cuda":
        return
    total = torch.cuda.get_device_properties(device).total_memory
    if predicted > total:
        raise InputError(
            f"training this model takes about {predicted / _GIB:.1f} GiB but the device has {total / _GIB:.1f} GiB: "
            "a smaller batch or chunk takes less"
        )
