"""Bias, activation and pooling after the convolutions of many models, in one pass each way, by Triton.

Torch takes a pass over the activations for each of the three, and five for their gradients. Sums are always in the same
order: what a model gets does not depend on how many others there are.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from evomal.forest.triton_backend import on_device_of
from evomal.forest.triton_rules import sigmoid, tanh

ACTIVATIONS = ("none", "tanh", "relu", "sigmoid")
_TANH, _RELU, _SIGMOID = (tl.constexpr(ACTIVATIONS.index(name)) for name in ACTIVATIONS[1:])
_BLOCK = 512
_SHARE = 32  # samples of which one program adds up the gradient of a bias; their sums are added in a fixed order


@triton.jit  # type: ignore[untyped-decorator]
def _activated(x, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """The activation of x and its derivative."""
    if ACTIVATION == _TANH:
        value = tanh(x)
        slope = 1.0 - value * value
    elif ACTIVATION == _SIGMOID:
        value = sigmoid(x)
        slope = value * (1.0 - value)
    elif ACTIVATION == _RELU:
        value = tl.where(x <= 0, 0.0, x)  # NaN stays
        slope = tl.where(x <= 0, 0.0, 1.0)
    else:
        value = x
        slope = tl.full(x.shape, 1.0, x.dtype)
    return value, slope


@triton.jit(do_not_specialize=["outputs"])  # type: ignore[untyped-decorator]
def _tail_kernel(  # type: ignore[no-untyped-def]
    y, bias, result, outputs,
    CHANNELS: tl.constexpr, ABOVE: tl.constexpr, ACROSS: tl.constexpr,  # noqa: N803
    TALL: tl.constexpr, WIDE: tl.constexpr, ACTIVATION: tl.constexpr, MAX: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    # Images of the result have ABOVE × ACROSS pixels, each of a tile of TALL × WIDE.
    member = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = place < outputs
    plane = place // (ABOVE * ACROSS)
    row = place % (ABOVE * ACROSS) // ACROSS * TALL
    column = place % ACROSS * WIDE
    shift = tl.load(bias + member * CHANNELS + plane % CHANNELS, mask=known, other=0.0)
    own = y + member * outputs * (TALL * WIDE) + (plane * (ABOVE * TALL) + row) * (ACROSS * WIDE) + column
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range(TALL * WIDE):
        value = tl.load(own + tap // WIDE * (ACROSS * WIDE) + tap % WIDE, mask=known, other=0.0)
        value, _ = _activated(value + shift, ACTIVATION)
        if MAX and tap > 0:
            total = tl.where((value > total) | (value != value), value, total)
        elif MAX:
            total = value
        else:
            total += value
    tl.store(result + member * outputs + place, total if MAX else total / (TALL * WIDE), mask=known)


@triton.jit(do_not_specialize=["samples"])  # type: ignore[untyped-decorator]
def _tail_gradient_kernel(  # type: ignore[no-untyped-def]
    gradient, y, bias, by_y, sums, samples,
    CHANNELS: tl.constexpr, ABOVE: tl.constexpr, ACROSS: tl.constexpr,  # noqa: N803
    TALL: tl.constexpr, WIDE: tl.constexpr, ACTIVATION: tl.constexpr, MAX: tl.constexpr,  # noqa: N803
    SHARE: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    # One program has one channel of a share of a member's samples: it goes through the pixels of y as they lie there.
    width: tl.constexpr = ACROSS * WIDE
    pixels: tl.constexpr = ABOVE * TALL * width
    channel = tl.program_id(1)
    member = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * SHARE
    count = tl.minimum(SHARE, samples - first) * pixels
    shift = tl.load(bias + member * CHANNELS + channel)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, count, BLOCK):
        place = start + tl.arange(0, BLOCK)
        known = place < count
        plane = (member * samples + first + place // pixels) * CHANNELS + channel
        pixel = place % pixels
        row = pixel // width
        column = pixel % width
        of_tile = row // TALL * ACROSS + column // WIDE
        slope = tl.load(gradient + plane * (ABOVE * ACROSS) + of_tile, mask=known, other=0.0)
        x = tl.load(y + plane * pixels + pixel, mask=known, other=0.0) + shift
        value, steepness = _activated(x, ACTIVATION)
        found = slope * steepness
        if MAX:
            # The gradient goes to the first of the largest pixels of a tile, or to its last NaN.
            tap = row % TALL * WIDE + column % WIDE
            corner = y + plane * pixels + row // TALL * (TALL * width) + column // WIDE * WIDE
            for other in tl.static_range(TALL * WIDE):
                beside = tl.load(corner + other // WIDE * width + other % WIDE, mask=known, other=0.0)
                beside, _ = _activated(beside + shift, ACTIVATION)
                is_chosen = (beside < value) | ((beside == value) & (tap <= other))
                is_chosen |= (value != value) & ((beside == beside) | (tap >= other))
                found = tl.where(is_chosen, found, 0.0)
        else:
            found = found / (TALL * WIDE)
        tl.store(by_y + plane * pixels + pixel, found, mask=known)
        total += tl.where(known, found, 0.0)
    members = tl.num_programs(2)
    tl.store(sums + (tl.program_id(0) * members + member) * CHANNELS + channel, tl.sum(total))


def tail(y: Tensor, bias: Tensor, tile: tuple[int, int], *, activation: str, is_max: bool) -> Tensor:
    """Returns `[P, B, C, H / h, W / w]`: images `[P, B, C, H, W]` and a bias `[P, C]`, activated and pooled.

    Args:
        y: The images; tiles cover them.
        bias: Added to each channel.
        tile: h and w.
        activation: One of `ACTIVATIONS`.
        is_max: Whether a tile becomes its largest value instead of its mean.
    """
    members, samples, channels, height, width = y.shape
    above, across = height // tile[0], width // tile[1]
    result = y.new_empty(members, samples, channels, above, across)
    outputs = samples * channels * above * across
    with on_device_of(y):
        _tail_kernel[(triton.cdiv(outputs, _BLOCK), members)](
            y.contiguous(), bias.contiguous(), result, outputs, CHANNELS=channels, ABOVE=above, ACROSS=across,
            TALL=tile[0], WIDE=tile[1], ACTIVATION=ACTIVATIONS.index(activation), MAX=is_max, BLOCK=_BLOCK,
        )  # fmt: skip
    return result


def tail_gradient(
    gradient: Tensor, y: Tensor, bias: Tensor, tile: tuple[int, int], *, activation: str, is_max: bool
) -> tuple[Tensor, Tensor]:
    """Returns the gradients of a `tail` by its images and by its bias, for a gradient by its result."""
    members, samples, channels, height, width = y.shape
    shares = triton.cdiv(samples, _SHARE)
    by_y = torch.empty_like(y, memory_format=torch.contiguous_format)
    sums = y.new_empty(shares, members, channels)
    with on_device_of(y):
        _tail_gradient_kernel[(shares, channels, members)](
            gradient.contiguous(), y.contiguous(), bias.contiguous(), by_y, sums, samples, CHANNELS=channels,
            ABOVE=height // tile[0], ACROSS=width // tile[1], TALL=tile[0], WIDE=tile[1],
            ACTIVATION=ACTIVATIONS.index(activation), MAX=is_max, SHARE=_SHARE, BLOCK=_BLOCK,
        )  # fmt: skip
    return by_y, sums.sum(0)
