"""The updates of stacked optimizers as one pass over each parameter, by Triton.

A stack's update is bound by memory: operation by operation SGD reads and writes its tensors fourteen times, here five
times. Numbers are rounded where torch's operations round them, except that products and sums may be fused.
"""

import triton
import triton.language as tl
from torch import Tensor

from evomal.forest.triton_backend import on_device_of

_BLOCK = 1024


@triton.jit(do_not_specialize=["size", "total"])  # type: ignore[untyped-decorator]
def _sgd_kernel(  # type: ignore[no-untyped-def]
    parameters, gradients, velocities, rates, decays, size, total, momentum,
    NESTEROV: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    parameter = tl.load(parameters + place, mask=inside)
    member = place // size
    gradient = tl.load(gradients + place, mask=inside) + tl.load(decays + member, mask=inside) * parameter
    velocity = tl.load(velocities + place, mask=inside) * momentum + gradient
    direction = gradient + momentum * velocity if NESTEROV else velocity
    rate = tl.load(rates + member, mask=inside)
    tl.store(velocities + place, velocity, mask=inside)
    tl.store(parameters + place, parameter - rate * direction, mask=inside)


@triton.jit(do_not_specialize=["size", "total"])  # type: ignore[untyped-decorator]
def _adam_kernel(  # type: ignore[no-untyped-def]
    parameters, gradients, means, squares, rates, decays, corrections, size, total,
    BETA1: tl.constexpr, BETA2: tl.constexpr, STABILISER: tl.constexpr,  # noqa: N803
    DECOUPLED: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    parameter = tl.load(parameters + place, mask=inside)
    gradient = tl.load(gradients + place, mask=inside)
    member = place // size
    rate = tl.load(rates + member, mask=inside)
    decay = tl.load(decays + member, mask=inside)
    if DECOUPLED:
        parameter *= 1.0 - rate * decay
    else:
        gradient += decay * parameter
    mean = tl.load(means + place, mask=inside)
    mean += (gradient - mean) * (1.0 - BETA1)
    square = tl.load(squares + place, mask=inside) * BETA2 + gradient * gradient * (1.0 - BETA2)
    denominator = tl.sqrt(square) / tl.load(corrections + 1) + STABILISER
    tl.store(means + place, mean, mask=inside)
    tl.store(squares + place, square, mask=inside)
    tl.store(parameters + place, parameter - rate * tl.load(corrections) * (mean / denominator), mask=inside)


def sgd(
    parameter: Tensor, velocity: Tensor, rates: Tensor, decays: Tensor, *, momentum: float, nesterov: bool
) -> None:  # fmt: skip
    """Update one parameter `[P, …]` and its velocity by its gradient; `rates` and `decays` are `[P]`."""
    _launch(_sgd_kernel, parameter, (velocity, rates, decays), (float(momentum),), NESTEROV=nesterov)


def adam(
    parameter: Tensor, mean: Tensor, square: Tensor, rates: Tensor, decays: Tensor, corrections: Tensor, *,
    betas: tuple[float, float], stabiliser: float, decoupled: bool,
) -> None:  # fmt: skip
    """Update one parameter `[P, …]` and its moments by its gradient.

    `corrections`: 1 / (1 − β1^t), and the root of 1 − β2^t.
    """
    _launch(
        _adam_kernel, parameter, (mean, square, rates, decays, corrections), (),
        BETA1=betas[0], BETA2=betas[1], STABILISER=stabiliser, DECOUPLED=decoupled,
    )  # fmt: skip


def _launch(
    kernel: object, parameter: Tensor, tensors: tuple[Tensor, ...], numbers: tuple[float, ...], **flags: float
) -> None:
    gradient = parameter.grad
    assert gradient is not None
    assert gradient.stride() == parameter.stride()  # autograd's contract for parameters without gaps
    total = parameter.numel()
    grid = (triton.cdiv(total, _BLOCK),)
    with on_device_of(parameter):
        kernel[grid](  # type: ignore[index]
            parameter, gradient, *tensors, total // len(parameter), total, *numbers, **flags,
            BLOCK=_BLOCK,
        )  # fmt: skip
