"""Forests on a GPU, by Triton: how the kernels are launched.

A program of a launch (Triton's word for a block of threads; `Programs` are trees) computes one tile of `rows × columns`
outputs after the other until none is left: scratch memory grows with the number of programs, which `_SCRATCH_BYTES`
limits, and not with the work. The sizes of the trees are read by the kernels, so a captured launch serves any trees
copied into the same tensors.
"""

from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from evomal.errors import InputError
from evomal.expression.prefix import MAX_HEIGHT
from evomal.forest.codes import Link
from evomal.forest.programs import Programs
from evomal.forest.terminals import prior_shift
from evomal.forest.triton_kernels import BETA1, BETA2, descent_kernel, gradients_kernel, mixed_kernel


class Tiling(NamedTuple):
    """How a launch cuts its work: outputs in a tile and warps that share one."""

    elements: int
    warps: int


GRADIENTS_TILING = Tiling(elements=32, warps=1)
MIXED_TILING = Tiling(elements=32, warps=1)
DESCENT_TILING = Tiling(elements=32, warps=1)

_SCRATCH_BYTES = 256 << 20
"""Most scratch memory of a launch, unless one program alone needs more."""
_WIDEST_TILED_ROW = {"gradients": 1024, "mixed": 128}
"""Most outputs of a sample for which the kernel applies the link; for more, torch applies it before the launch."""
WIDEST_DESCENT = 16384
"""Most outputs of a sample that `descended` takes: one program holds them all, from the first step to the last."""
_MOST_WARPS = 16
_ELEMENTS_PER_WARP = 128  # of a row wider than a tile


def gradients(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link, *, softplus: bool
) -> tuple[Tensor, Tensor]:
    """Losses `[P, B]` of the samples, summed over the outputs, and the gradient `[P, B, K]` of their sum."""
    _check_precision(weights, outputs, targets)
    samples, count = outputs.shape[-2:]
    shape = (programs.count, samples, count)
    if count > _WIDEST_TILED_ROW["gradients"] and not programs.extended:
        f = link.predictions(outputs)
        values, slopes = gradients(
            programs, weights, _as_single_outputs(f), _as_single_outputs(targets), Link.IDENTITY, softplus=softplus
        )
        return values.view(shape).sum(-1), _pulled_through(link, f, slopes.view(shape))
    _check_width("an extended forest", count)
    rows, columns, warps = _tile(count, GRADIENTS_TILING)
    tiles = triton.cdiv(samples, rows)
    room = _stack_room(programs.width, rows * columns)
    launched = min(programs.count * tiles, _most_programs(room))
    values, gradient = outputs.new_empty(shape[:2]), outputs.new_empty(shape)
    with on_device_of(outputs):
        gradients_kernel[(launched,)](
            programs.nodes, programs.sizes, programs.uses, _extras(programs, link, count), weights.contiguous(),
            outputs.contiguous(), targets.contiguous(), values, gradient, outputs.new_empty(launched * room),
            programs.count, programs.count // (len(targets) if targets.dim() == 3 else 1), tiles,
            samples, count, programs.width, _tree_stride(outputs), room,
            LINK=int(link), SOFTPLUS=softplus, EXTENDED=programs.extended, ROWS=rows, COLUMNS=columns, num_warps=warps,
        )  # fmt: skip
    return values, gradient


def mixed(
    programs: Programs,
    weights: Tensor,
    outputs: Tensor,
    targets: Tensor,
    tangents: Tensor,
    link: Link,
    *,
    softplus: bool,
) -> Tensor:
    """`[P, N]`: the gradient by the weights of Σ tangents · ∂(sum of the losses)/∂outputs."""
    _check_precision(weights, outputs, targets, tangents)
    samples, count = outputs.shape[-2:]
    if count > _WIDEST_TILED_ROW["mixed"] and not programs.extended:
        f = link.predictions(outputs)
        along = _as_single_outputs(_pulled_through(link, f, tangents))
        singles = _as_single_outputs(f), _as_single_outputs(targets)
        return mixed(programs, weights, *singles, along, Link.IDENTITY, softplus=softplus)
    _check_width("an extended forest", count)
    rows, columns, warps = _tile(count, MIXED_TILING)
    tiles = triton.cdiv(samples, rows)
    room = 2 * programs.width * rows * columns + _stack_room(programs.width, rows * columns)
    # As many programs per tree as there is scratch memory for; each adds up the tiles it serves.
    groups = max(1, min(tiles, _most_programs(room) // programs.count))
    launched = min(programs.count * groups, _most_programs(room))
    partial = outputs.new_empty(programs.count, groups, programs.width)
    with on_device_of(outputs):
        mixed_kernel[(launched,)](
            programs.nodes, programs.sizes, _extras(programs, link, count), weights.contiguous(),
            outputs.contiguous(), targets.contiguous(), tangents.contiguous(), partial,
            outputs.new_empty(launched * room),
            programs.count, groups, tiles, samples, count, programs.width, _tree_stride(outputs), room,
            LINK=int(link), SOFTPLUS=softplus, EXTENDED=programs.extended, ROWS=rows, COLUMNS=columns, num_warps=warps,
        )  # fmt: skip
    return partial.sum(1) if groups > 1 else partial[:, 0]


def descended(
    programs: Programs,
    weights: Tensor,
    outputs: Tensor,
    targets: Tensor,
    link: Link,
    *,
    softplus: bool,
    steps: int,
    lr: float,
    scale: float,
) -> Tensor:
    """`[P, B, K]`: the outputs after `steps` steps of Adam on scale · the sum of the losses, all in one launch."""
    _check_precision(weights, outputs, targets)
    samples, count = outputs.shape[-2:]
    _check_width("a descent", count)
    rows, columns, warps = _tile(count, DESCENT_TILING)
    tiles = triton.cdiv(samples, rows)
    room = _stack_room(programs.width, rows * columns)
    launched = min(programs.count * tiles, _most_programs(room))
    result = outputs.new_empty(programs.count, samples, count)
    # Both bias corrections in double precision: in single, 1 − 0.999 is wrong in the fifth digit.
    step = torch.arange(1, steps + 1, dtype=torch.float64, device=outputs.device)
    rates = (lr / (1 - BETA1.value**step)).float()
    corrections = (1 - BETA2.value**step).sqrt().float()
    with on_device_of(outputs):
        descent_kernel[(launched,)](
            programs.nodes, programs.sizes, programs.uses, _extras(programs, link, count), weights.contiguous(),
            outputs.contiguous(), targets.contiguous(), rates, corrections, result, outputs.new_empty(launched * room),
            programs.count, tiles, samples, count, programs.width, _tree_stride(outputs), room, steps, float(scale),
            LINK=int(link), SOFTPLUS=softplus, EXTENDED=programs.extended, ROWS=rows, COLUMNS=columns, num_warps=warps,
        )  # fmt: skip
    return result


def _check_width(what: str, count: int) -> None:
    if count > WIDEST_DESCENT:
        raise InputError(f"{what} takes at most {WIDEST_DESCENT} outputs per sample but got {count}")


def _extras(programs: Programs, link: Link, count: int) -> Tensor:
    """The further inputs of EXTENDED kernels: prior and shift of each output, and the progress of the training."""
    if not programs.extended:
        return programs.progress
    priors = programs.priors.expand(count)
    return torch.cat((priors, prior_shift(priors, link), programs.progress)).float()


def _check_precision(*tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.dtype != torch.float32:
            raise InputError(f"the Triton kernels compute in torch.float32 but got {tensor.dtype}")


def on_device_of(tensor: Tensor) -> AbstractContextManager[None]:
    """Triton launches on the current device, whatever the tensors' own."""
    return torch.cuda.device_of(tensor)  # type: ignore[no-untyped-call]


def _pulled_through(link: Link, f: Tensor, vectors: Tensor) -> Tensor:
    """The link's Jacobian, symmetric for each link, times a vector for every sample."""
    if link is Link.SOFTMAX:
        return f * (vectors - (f * vectors).sum(-1, keepdim=True))
    return f * (1 - f) * vectors if link is Link.SIGMOID else vectors


def _as_single_outputs(values: Tensor) -> Tensor:
    """`[..., B, K]` as `[..., B·K, 1]`."""
    return values.flatten(-2).unsqueeze(-1)


def _tree_stride(outputs: Tensor) -> int:
    """Distance in memory from the outputs of one tree to those of the next: 0 where all trees share them."""
    return outputs.shape[-2] * outputs.shape[-1] if outputs.ndim == 3 else 0


def _tile(count: int, tiling: Tiling) -> tuple[int, int, int]:
    """Rows and columns of a tile, both powers of two, and its warps."""
    columns = int(triton.next_power_of_2(count))
    warps = max(tiling.warps, min(_MOST_WARPS, columns // _ELEMENTS_PER_WARP))
    return max(1, tiling.elements // columns), columns, warps


def _stack_room(width: int, tile: int) -> int:
    """How many floats a stack of dual numbers needs: its depth is limited by the height and the leaves of a tree."""
    return 2 * (min(MAX_HEIGHT, width // 2) + 1) * tile


def _most_programs(room: int) -> int:
    return max(1, _SCRATCH_BYTES // (4 * room))
