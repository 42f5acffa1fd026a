"""Kernels of layers, by Triton: convolutions of many small models at once, and batch norm in forward mode.

A grouped convolution, which `vmap` makes of stacked weights, runs group by group in cuDNN: 25 models take 25 launches
for each product, too small to fill a GPU. These kernels compute the same sums as implicit matrix products, always in
the same order: what a model gets does not depend on how many others there are.

Numbers are float32, and each product is made of three TF32 products (`tf32x3`), which is as accurate: on the
convolutions of LeNet-5 the error beside float64 is 1.2 to 1.9e-7, that of float32 by cuBLAS and cuDNN 0.9 to 2.2e-7.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evomal.forest.triton_backend import on_device_of

_SHARE = 1024  # pixels that one program sums up for a gradient of weights; their sums are added in a fixed order
_MOST_PIXELS, _MOST_CHANNELS, _MOST_TAPS = 256, 64, 49
"""Sizes of a convolution's outputs and kernel up to which the gradient by the inputs is computed sample by sample: the
parts of one sample must fit a cache."""
_PROGRAMS = 2112  # of that kernel: sixteen for each multiprocessor of an H200


@triton.jit(do_not_specialize=["samples", "rows"])  # type: ignore[untyped-decorator]
def _correlation_kernel(  # type: ignore[no-untyped-def]
    x, weight, y, samples, rows,
    x_member, x_sample, x_channel, x_row, x_column, w_member, w_out, w_in, w_row, w_column,
    CHANNELS: tl.constexpr, OUT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,  # noqa: N803
    KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr,  # noqa: N803
    PAD_HEIGHT: tl.constexpr, PAD_WIDTH: tl.constexpr, FLIPPED: tl.constexpr, PRECISION: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr, PIXELS: tl.constexpr, TERMS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    # Rows of the product are channels of all members with these inputs, columns are pixels of the result.
    above: tl.constexpr = HEIGHT + 2 * PAD_HEIGHT - KERNEL_HEIGHT + 1
    across: tl.constexpr = WIDTH + 2 * PAD_WIDTH - KERNEL_WIDTH + 1
    taps: tl.constexpr = KERNEL_HEIGHT * KERNEL_WIDTH
    terms: tl.constexpr = CHANNELS * taps
    group = tl.program_id(2).to(tl.int64)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    line = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    sample = pixel // (above * across)
    place = pixel % (above * across)
    top = place // across - PAD_HEIGHT
    left = place % across - PAD_WIDTH
    is_pixel = sample < samples
    is_line = line < rows
    member = group * (rows // OUT) + line // OUT
    out = line % OUT
    inputs = x + group * x_member + (sample.to(tl.int64) * x_sample + top * x_row + left * x_column)[None, :]
    weights = weight + (member * w_member + out * w_out)[:, None]
    total = tl.zeros((ROWS, PIXELS), dtype=tl.float32)
    for start in range(0, terms, TERMS):
        term = start + tl.arange(0, TERMS)
        channel = term // taps
        down = term % taps // KERNEL_WIDTH
        right = term % KERNEL_WIDTH
        is_term = term < terms
        inside = is_term[:, None] & is_pixel[None, :]
        if PAD_HEIGHT > 0 or PAD_WIDTH > 0:
            there = down[:, None] + top[None, :]
            aside = right[:, None] + left[None, :]
            inside = inside & (there >= 0) & (there < HEIGHT) & (aside >= 0) & (aside < WIDTH)
        offset = channel * x_channel + down * x_row + right * x_column
        values = tl.load(inputs + offset[:, None], mask=inside, other=0.0)
        if FLIPPED:
            own = channel * w_in + (KERNEL_HEIGHT - 1 - down) * w_row + (KERNEL_WIDTH - 1 - right) * w_column
        else:
            own = channel * w_in + down * w_row + right * w_column
        factors = tl.load(weights + own[None, :], mask=is_line[:, None] & is_term[None, :], other=0.0)
        total = tl.dot(factors, values, total, input_precision=PRECISION)
    target = (member * samples)[:, None] + sample[None, :]
    target = (target * OUT + out[:, None]) * (above * across) + place[None, :]
    tl.store(y + target, total, mask=is_line[:, None] & is_pixel[None, :])


@triton.jit(do_not_specialize=["samples", "jobs", "repeated"])  # type: ignore[untyped-decorator]
def _input_gradient_kernel(  # type: ignore[no-untyped-def]
    gradient, weight, result, scratch, samples, jobs, repeated,
    g_member, g_sample, g_out, g_row, g_column, w_member, w_out, w_in, w_row, w_column,
    CHANNELS: tl.constexpr, OUT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,  # noqa: N803
    KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr,  # noqa: N803
    PAD_HEIGHT: tl.constexpr, PAD_WIDTH: tl.constexpr, PRECISION: tl.constexpr,  # noqa: N803
    INNER: tl.constexpr, PIXELS: tl.constexpr, TERMS: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    # For one sample at a time, what every weight takes to every pixel is one product; then each input adds up its own.
    above: tl.constexpr = HEIGHT + 2 * PAD_HEIGHT - KERNEL_HEIGHT + 1
    across: tl.constexpr = WIDTH + 2 * PAD_WIDTH - KERNEL_WIDTH + 1
    taps: tl.constexpr = KERNEL_HEIGHT * KERNEL_WIDTH
    terms: tl.constexpr = CHANNELS * taps
    room: tl.constexpr = (terms + TERMS - 1) // TERMS * TERMS * PIXELS
    size: tl.constexpr = CHANNELS * HEIGHT * WIDTH
    parts = scratch + tl.program_id(0).to(tl.int64) * room
    out = tl.arange(0, INNER)
    place = tl.arange(0, PIXELS)
    pixel = out[:, None] * g_out + (place // across * g_row + place % across * g_column)[None, :]
    known = (out < OUT)[:, None] & (place < above * across)[None, :]
    for job in range(tl.program_id(0), jobs, tl.num_programs(0)):
        member = (job // samples).to(tl.int64)
        sample = (job % samples).to(tl.int64)
        slopes = tl.load(gradient + member // repeated * g_member + sample * g_sample + pixel, mask=known, other=0.0)
        for start in range(0, terms, TERMS):
            term = start + tl.arange(0, TERMS)
            own = term // taps * w_in + term % taps // KERNEL_WIDTH * w_row + term % KERNEL_WIDTH * w_column
            factors = tl.load(
                weight + member * w_member + own[:, None] + out[None, :] * w_out,
                mask=(term < terms)[:, None] & (out < OUT)[None, :], other=0.0,
            )  # fmt: skip
            tl.store(
                parts + term[:, None] * PIXELS + place[None, :], tl.dot(factors, slopes, input_precision=PRECISION)
            )
        tl.debug_barrier()
        for begin in range(0, size, BLOCK):
            where = begin + tl.arange(0, BLOCK)
            channel = where // (HEIGHT * WIDTH)
            row = where % (HEIGHT * WIDTH) // WIDTH + PAD_HEIGHT
            column = where % WIDTH + PAD_WIDTH
            total = tl.zeros((BLOCK,), dtype=tl.float32)
            for tap in tl.static_range(taps):
                i = row - tap // KERNEL_WIDTH
                j = column - tap % KERNEL_WIDTH
                inside = (where < size) & (i >= 0) & (i < above) & (j >= 0) & (j < across)
                total += tl.load(parts + (channel * taps + tap) * PIXELS + i * across + j, mask=inside, other=0.0)
            tl.store(result + (member * samples + sample) * size + where, total, mask=where < size)
        tl.debug_barrier()


@triton.jit(do_not_specialize=["samples", "rows"])  # type: ignore[untyped-decorator]
def _weight_gradient_kernel(  # type: ignore[no-untyped-def]
    x, gradient, sums, samples, rows,
    x_member, x_sample, x_channel, x_row, x_column, g_member, g_sample, g_out, g_row, g_column,
    CHANNELS: tl.constexpr, OUT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,  # noqa: N803
    KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr,  # noqa: N803
    PAD_HEIGHT: tl.constexpr, PAD_WIDTH: tl.constexpr, PRECISION: tl.constexpr,  # noqa: N803
    SHARE: tl.constexpr, PIXELS: tl.constexpr, ROWS: tl.constexpr, TERMS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    # Rows of the product are channels of all members with these inputs, columns are the weights of a channel.
    above: tl.constexpr = HEIGHT + 2 * PAD_HEIGHT - KERNEL_HEIGHT + 1
    across: tl.constexpr = WIDTH + 2 * PAD_WIDTH - KERNEL_WIDTH + 1
    taps: tl.constexpr = KERNEL_HEIGHT * KERNEL_WIDTH
    terms: tl.constexpr = CHANNELS * taps
    wide: tl.constexpr = (terms + TERMS - 1) // TERMS
    group = (tl.program_id(2)).to(tl.int64)
    term = tl.program_id(1) % wide * TERMS + tl.arange(0, TERMS)
    line = tl.program_id(1) // wide * ROWS + tl.arange(0, ROWS)
    is_term = term < terms
    is_line = line < rows
    channel = term // taps
    down = term % taps // KERNEL_WIDTH
    right = term % KERNEL_WIDTH
    member = group * (rows // OUT) + line // OUT
    out = line % OUT
    inputs = x + group * x_member + (channel * x_channel + down * x_row + right * x_column)[None, :]
    gradients = gradient + (member * g_member + out * g_out)[:, None]
    total = tl.zeros((ROWS, TERMS), dtype=tl.float32)
    for start in range(0, SHARE, PIXELS):
        pixel = tl.program_id(0) * SHARE + start + tl.arange(0, PIXELS)
        sample = pixel // (above * across)
        place = pixel % (above * across)
        i = place // across
        j = place % across
        is_pixel = sample < samples
        sample = sample.to(tl.int64)
        slopes = tl.load(
            gradients + (sample * g_sample + i * g_row + j * g_column)[None, :],
            mask=is_line[:, None] & is_pixel[None, :], other=0.0,
        )  # fmt: skip
        inside = is_pixel[:, None] & is_term[None, :]
        row = i - PAD_HEIGHT
        left = j - PAD_WIDTH
        if PAD_HEIGHT > 0 or PAD_WIDTH > 0:
            there = row[:, None] + down[None, :]
            aside = left[:, None] + right[None, :]
            inside = inside & (there >= 0) & (there < HEIGHT) & (aside >= 0) & (aside < WIDTH)
        values = tl.load(
            inputs + (sample * x_sample + row * x_row + left * x_column)[:, None], mask=inside, other=0.0
        )  # fmt: skip
        total = tl.dot(slopes, values, total, input_precision=PRECISION)
    members = tl.num_programs(2) * (rows // OUT)
    target = ((tl.program_id(0).to(tl.int64) * members + member) * OUT + out)[:, None] * terms + term[None, :]
    tl.store(sums + target, total, mask=is_line[:, None] & is_term[None, :])


def correlated(
    x: Tensor, weight: Tensor, padding: tuple[int, int], *, flipped: bool = False, precision: str = "tf32x3",
    **tiles: int,
) -> Tensor:  # fmt: skip
    """Returns `[P, B, O, H, W]`: the convolution of stacked inputs `[Q, B, C, H, W]` with weights `[P, O, C, h, w]`.

    P is a multiple of Q: that many members one after the other have the same inputs. `flipped`: the weights of each
    channel are mirrored in both directions.
    """
    groups, samples, channels, height, width = x.shape
    members, out, _, high, wide = weight.shape
    above, across = (
        side + 2 * pad - own + 1 for side, pad, own in ((height, padding[0], high), (width, padding[1], wide))
    )
    rows = members // groups * out
    result = x.new_empty(members, samples, out, above, across)
    # Members that share inputs fill a tile of rows. Tiles do not depend on the number of members, as bits may.
    tile = _tile(out, 64) if members == groups else 64
    terms = 32 if channels * high * wide <= 32 else 16
    chosen: dict[str, Any] = {
        "ROWS": tile,
        "PIXELS": 64 if tile == 64 else 128,
        "TERMS": terms,
        "num_warps": 4,
        **tiles,
    }
    grid = (triton.cdiv(samples * above * across, chosen["PIXELS"]), triton.cdiv(rows, chosen["ROWS"]), groups)
    with on_device_of(x):
        _correlation_kernel[grid](
            x, weight, result, samples, rows, *x.stride(), *weight.stride(),
            CHANNELS=channels, OUT=out, HEIGHT=height, WIDTH=width, KERNEL_HEIGHT=high, KERNEL_WIDTH=wide,
            PAD_HEIGHT=padding[0], PAD_WIDTH=padding[1], FLIPPED=flipped, PRECISION=precision, **chosen,
        )  # fmt: skip
    return result


def input_gradient(
    gradient: Tensor, weight: Tensor, padding: tuple[int, int], *, precision: str = "tf32x3", **tiles: int
) -> Tensor:
    """Returns `[P, B, C, H, W]`: the gradient by the inputs, for gradients `[Q, B, O, …]` by the outputs."""
    groups, samples, _, above, across = gradient.shape
    members, out, channels, high, wide = weight.shape
    if above * across > _MOST_PIXELS or out > _MOST_CHANNELS or high * wide > _MOST_TAPS:
        full = (high - 1 - padding[0], wide - 1 - padding[1])
        return correlated(gradient, weight.transpose(1, 2), full, flipped=True, precision=precision, **tiles)
    height, width = above + high - 1 - 2 * padding[0], across + wide - 1 - 2 * padding[1]
    jobs, terms = members * samples, channels * high * wide
    chosen: dict[str, Any] = {"TERMS": 32, "BLOCK": 256, "num_warps": 4, "num_stages": 1, **tiles}
    programs, pixels = min(jobs, chosen.pop("programs", _PROGRAMS)), _tile(above * across, _MOST_PIXELS)
    scratch = gradient.new_empty(programs, triton.cdiv(terms, chosen["TERMS"]) * chosen["TERMS"], pixels)
    result = gradient.new_empty(members, samples, channels, height, width)
    with on_device_of(gradient):
        _input_gradient_kernel[(programs,)](
            gradient, weight, result, scratch, samples, jobs, members // groups, *gradient.stride(), *weight.stride(),
            CHANNELS=channels, OUT=out, HEIGHT=height, WIDTH=width, KERNEL_HEIGHT=high, KERNEL_WIDTH=wide,
            PAD_HEIGHT=padding[0], PAD_WIDTH=padding[1], PRECISION=precision, INNER=_tile(out, _MOST_CHANNELS),
            PIXELS=pixels, **chosen,
        )  # fmt: skip
    return result


def weight_gradient(
    x: Tensor, gradient: Tensor, kernel: tuple[int, int], padding: tuple[int, int], *, precision: str = "tf32x3",
    **tiles: int,
) -> Tensor:  # fmt: skip
    """Returns `[P, O, C, h, w]`: the gradient by the weights, for gradients `[P, B, O, …]` by the outputs."""
    groups, samples, channels, height, width = x.shape
    members, _, out, above, across = gradient.shape
    rows, terms = members // groups * out, channels * kernel[0] * kernel[1]
    chosen: dict[str, Any] = {
        "SHARE": _SHARE, "PIXELS": 32, "ROWS": 16 if members == groups else 64, "TERMS": _tile(terms, 64),
        "num_warps": 4,
    }  # fmt: skip
    chosen |= tiles
    shares = triton.cdiv(samples * above * across, chosen["SHARE"])
    blocks = triton.cdiv(rows, chosen["ROWS"]) * triton.cdiv(terms, chosen["TERMS"])
    sums = x.new_empty(shares, members, out, channels, *kernel)
    with on_device_of(x):
        _weight_gradient_kernel[(shares, blocks, groups)](
            x, gradient, sums, samples, rows, *x.stride(), *gradient.stride(),
            CHANNELS=channels, OUT=out, HEIGHT=height, WIDTH=width, KERNEL_HEIGHT=kernel[0], KERNEL_WIDTH=kernel[1],
            PAD_HEIGHT=padding[0], PAD_WIDTH=padding[1], PRECISION=precision, **chosen,
        )  # fmt: skip
    return sums.sum(0) if shares > 1 else sums[0]


def _tile(needed: int, most: int) -> int:
    return max(16, min(most, int(triton.next_power_of_2(needed))))


_NORM_ELEMENTS, _MOST_NORM_CHANNELS = 4096, 128  # that one program computes, and the channels among them


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _along_kernel(  # type: ignore[no-untyped-def]
    dx, x, weight, dweight, dbias, mean, inverse, products, sums, result, rows, channels,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < channels
    centre = tl.load(mean + channel, mask=known, other=0.0)
    scale = tl.load(inverse + channel, mask=known, other=0.0)
    product = tl.load(products + channel, mask=known, other=0.0) / rows
    total = tl.load(sums + channel, mask=known, other=0.0) / rows
    # γ/σ (dx − mean(dx) − x̂ mean(dx x̂)) + dγ x̂ + dβ, as multiples of dx and of x − mean(x) and a constant.
    own = scale * tl.load(weight + channel, mask=known, other=0.0)
    slope = scale * (tl.load(dweight + channel, mask=known, other=0.0) - own * product)
    shift = tl.load(dbias + channel, mask=known, other=0.0) - own * total
    place = row[:, None] * channels + channel[None, :]
    inside = (row < rows)[:, None] & known[None, :]
    d = tl.load(dx + place, mask=inside, other=0.0).to(own.dtype)
    centred = tl.load(x + place, mask=inside, other=0.0).to(own.dtype) - centre[None, :]
    found = own[None, :] * d + slope[None, :] * centred + shift[None, :]
    tl.store(result + place, found.to(result.dtype.element_ty), mask=inside)


@torch.library.custom_op("evomal::batch_norm_along", mutates_args=())
def batch_norm_along(
    dx: Tensor, x: Tensor, weight: Tensor, dweight: Tensor, dbias: Tensor, mean: Tensor, inverse: Tensor,
    products: Tensor, sums: Tensor,
) -> Tensor:  # fmt: skip
    """Returns the change of a batch norm's outputs for changes of inputs `[N, C, …]`, weight and bias, in one pass.

    An operator of torch, because a kernel cannot be launched on the tensors that `torch.func` passes.

    Args:
        dx: The change of the inputs.
        x: The inputs.
        weight: The weight γ.
        dweight: Its change.
        dbias: The change of the bias.
        mean: The mean of each channel.
        inverse: The inverse of its deviation.
        products: Σ dx · x̂ of each channel.
        sums: Σ dx of each channel.
    """
    channels = x.shape[1]
    dx, x = (value.movedim(1, -1).contiguous() for value in (dx, x))  # no copy of what is stored channels last
    result = torch.empty_like(x)
    rows = x.numel() // max(1, channels)
    wide = min(_MOST_NORM_CHANNELS, int(triton.next_power_of_2(channels)))
    tall = _NORM_ELEMENTS // wide
    if rows:
        with on_device_of(x):
            _along_kernel[(triton.cdiv(rows, tall), triton.cdiv(channels, wide))](
                dx, x, *(value.contiguous() for value in (weight, dweight, dbias, mean, inverse, products, sums)),
                result, rows, channels, ROWS=tall, CHANNELS=wide, num_warps=8,
            )  # fmt: skip
    return result.movedim(-1, 1)
