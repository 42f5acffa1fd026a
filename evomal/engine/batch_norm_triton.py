"""The forward-mode derivative of batch norm in one pass over the activations, by Triton."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from evomal.forest.triton_backend import on_device_of

_TILE, _MOST_CHANNELS = 4096, 128


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
def along(
    dx: Tensor, x: Tensor, weight: Tensor, dweight: Tensor, dbias: Tensor, mean: Tensor, inverse: Tensor,
    products: Tensor, sums: Tensor,
) -> Tensor:  # fmt: skip
    """Returns the change of the outputs for changes of inputs `[N, C, …]`, weight and bias.

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
    wide = min(_MOST_CHANNELS, int(triton.next_power_of_2(channels)))
    tall = _TILE // wide
    if rows:
        with on_device_of(x):
            _along_kernel[(triton.cdiv(rows, tall), triton.cdiv(channels, wide))](
                dx, x, *(value.contiguous() for value in (weight, dweight, dbias, mean, inverse, products, sums)),
                result, rows, channels, ROWS=tall, CHANNELS=wide, num_warps=8,
            )  # fmt: skip
    return result.movedim(-1, 1)
