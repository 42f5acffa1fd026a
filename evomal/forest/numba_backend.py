"""A forest on the CPU, by the kernels of numba, shared among threads where that pays."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.forest.codes import Link
from evomal.forest.numba_kernels import LANES, NO_DESCENT, STRIP, gradients_kernel, mixed_kernel
from evomal.forest.programs import Programs
from evomal.forest.terminals import prior_shift
from evomal.threads import kernel_threads

_GROUPS = 16  # sums of the mixed gradient kept apart, so that their order is the same for any number of threads
_WORK_PER_THREAD = 1 << 18  # nodes times elements: two tenths of a millisecond, twice what handing it over costs


def gradients(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link, *, softplus: bool
) -> tuple[Tensor, Tensor]:
    """Losses [P, B] of the samples, summed over the outputs, and the gradient [P, B, K] of their sum."""
    return _by_gradients(programs, weights, outputs, targets, link, softplus, steps=NO_DESCENT, lr=0.0, scale=1.0)


def mixed(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, tangents: Tensor, link: Link, *,
    softplus: bool,
) -> Tensor:  # fmt: skip
    """[P, N]: the gradient by the weights of Σ tangents · ∂(sum of the losses)/∂outputs."""
    arrays = _arrays(programs, weights, outputs, targets, link)
    samples = _samples_per_block(*targets.shape[-2:])
    groups = max(1, min(_GROUPS, -(-targets.shape[-2] // samples)))
    sums = np.zeros((programs.count, groups, programs.width))
    directions = tangents.detach().contiguous().numpy()
    _in_shares(mixed_kernel, (*arrays, directions, int(link), softplus, samples, sums), arrays, 3)
    return torch.from_numpy(sums.sum(1)).to(weights.dtype)


def descended(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link, *,
    softplus: bool, steps: int, lr: float, scale: float,
) -> Tensor:  # fmt: skip
    """[P, B, K]: the outputs after `steps` steps of Adam on scale · the sum of the losses."""
    return _by_gradients(programs, weights, outputs, targets, link, softplus, steps=steps, lr=lr, scale=scale)[1]


def _by_gradients(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link, softplus: bool, *,
    steps: int, lr: float, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Losses [P, B], and [P, B, K] the gradients or, after steps of Adam, the outputs: see `gradients_kernel`."""
    losses = weights.new_empty(programs.count, targets.shape[-2])
    results = weights.new_empty(programs.count, *targets.shape[-2:])
    arrays = _arrays(programs, weights, outputs, targets, link)
    numbers = (_samples_per_block(*targets.shape[-2:]), steps, float(lr), float(scale))
    arguments = (*arrays, int(link), softplus, *numbers, losses.numpy(), results.numpy())
    _in_shares(gradients_kernel, arguments, arrays, abs(steps))
    return losses, results


def _arrays(programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link) -> tuple[Any, ...]:
    """The first arguments of every kernel; outputs or targets that all trees share have a first dimension of 1.

    Where the prior is None, numba compiles the kernels for the paper's tokens alone, which is faster.
    """
    layers = (tensor if tensor.dim() == 3 else tensor.unsqueeze(0) for tensor in (outputs, targets))
    tensors = (programs.nodes, programs.sizes, weights, *layers)
    nodes, sizes, *others = (tensor.detach().contiguous().numpy() for tensor in tensors)
    if not programs.extended:
        return (nodes, sizes, None, None, None, 0.0, *others)
    shifts = prior_shift(programs.priors, link)
    prior, shift = (found.to(weights.dtype).numpy() for found in (programs.priors, shifts))
    return (nodes, sizes, programs.uses.numpy(), prior, shift, float(programs.progress), *others)


def _samples_per_block(batch: int, classes: int) -> int:
    """The number of samples of every block: about as many as fit a strip, a multiple of the vector length."""
    fitting = max(LANES, STRIP // classes // LANES * LANES)
    blocks = max(1, -(-batch // fitting))
    return max(1, -(-batch // (blocks * LANES))) * LANES


def _in_shares(function: Any, arguments: Sequence[Any], arrays: Sequence[Any], passes: int) -> None:
    """Run the kernel, shared among the threads torch may use where that pays."""
    sizes, targets = arrays[1], arrays[-1]
    if targets.size == 0:
        return
    work = int(sizes.sum()) * targets[0].size * passes
    shares = max(1, min(torch.get_num_threads(), work // _WORK_PER_THREAD))
    running = [
        kernel_threads().submit(functools.partial(function, *arguments, share, shares)) for share in range(1, shares)
    ]
    function(*arguments, 0, shares)
    for run in running:
        run.result()
