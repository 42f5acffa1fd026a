"""Matrix products of many models at once in float32, by Triton on tensor cores.

cuBLAS computes float32 products without tensor cores, at about 35 TFLOP/s for stacks on an H200. Here a number is the
sum of three of bfloat16, or two of TF32, and a product the sum of those of their parts that count: six or three, which
is as accurate (beside float64, relative errors of 0.7 to 2e-7, cuBLAS 2 to 6e-7) and 1.3 to 1.7 times as fast. Sums are
always in the same order: what a model gets does not depend on how many others there are.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from evomal.engine.stackable_layers import UNIT
from evomal.forest.triton_backend import on_device_of

_LONG_ROWS: dict[str, Any] = {"PRECISION": "tf32x3", "ROWS": 128, "COLUMNS": 64, "DEPTH": 32, "num_warps": 8}
"""Where the numbers that are summed up lie side by side in both factors, as TF32 products need them."""
_OTHERWISE: dict[str, Any] = {"PRECISION": "bf16x6", "ROWS": 64, "COLUMNS": 64, "DEPTH": 32, "num_warps": 4}


@triton.jit(do_not_specialize=["inner"])  # type: ignore[untyped-decorator]
def _product_kernel(  # type: ignore[no-untyped-def]
    a, b, result, inner, rows, columns, depth,
    a_outer, a_inner, a_step, b_outer, b_inner, b_step,
    A_BY_ROW: tl.constexpr, B_BY_ROW: tl.constexpr, UNIT: tl.constexpr, PRECISION: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,  # noqa: N803
):  # fmt: skip
    # Sizes and strides are given in units: the compiler must know that they are multiples of 16 bytes.
    rows *= UNIT
    columns *= UNIT
    depth *= UNIT
    a_step *= UNIT
    b_step *= UNIT
    member = tl.program_id(1).to(tl.int64)
    outer = member // inner
    place = member % inner
    across = tl.cdiv(columns, COLUMNS)
    row = tl.program_id(0) // across * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    term = tl.arange(0, DEPTH)
    a += (outer * a_outer + place * a_inner) * UNIT
    b += (outer * b_outer + place * b_inner) * UNIT
    if A_BY_ROW:
        left = a + (row * a_step)[:, None] + term[None, :]
        left_step = DEPTH
    else:
        left = a + row[:, None] + (term * a_step)[None, :]
        left_step = DEPTH * a_step
    if B_BY_ROW:
        right = b + (term * b_step)[:, None] + column[None, :]
        right_step = DEPTH * b_step
    else:
        right = b + term[:, None] + (column * b_step)[None, :]
        right_step = DEPTH
    is_row = row < rows
    is_column = column < columns
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        is_term = start + term < depth
        values = tl.load(left, mask=is_row[:, None] & is_term[None, :], other=0.0)
        factors = tl.load(right, mask=is_term[:, None] & is_column[None, :], other=0.0)
        total = tl.dot(values, factors, total, input_precision=PRECISION)
        left += left_step
        right += right_step
    target = result + member * rows * columns + row[:, None] * columns + column[None, :]
    tl.store(target, total, mask=is_row[:, None] & is_column[None, :])


def matrix_product(a: Tensor, b: Tensor, **tiles: Any) -> Tensor:
    """Returns `[…, M, N]` from `[…, M, K]` and `[…, K, N]`; members share a factor whose leading dimensions are 1.

    Sizes are multiples of four.
    """
    lead: tuple[int, ...] = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    (rows, depth), columns = a.shape[-2:], b.shape[-1]
    result = a.new_empty(*lead, rows, columns)
    a, b = _with_two_leading(a, lead), _with_two_leading(b, lead)
    outer, inner = torch.broadcast_shapes(a.shape[:2], b.shape[:2])  # type: ignore[no-untyped-call]
    is_a_by_row, is_b_by_row = a.stride(3) == 1, b.stride(3) == 1
    chosen = {**(_LONG_ROWS if is_a_by_row and not is_b_by_row else _OTHERWISE), "num_stages": 3, **tiles}
    grid = (triton.cdiv(rows, chosen["ROWS"]) * triton.cdiv(columns, chosen["COLUMNS"]), outer * inner)
    sizes = (size // UNIT for size in (rows, columns, depth))
    with on_device_of(result):
        _product_kernel[grid](
            a, b, result, inner, *sizes, *_strides(a), *_strides(b), A_BY_ROW=is_a_by_row, B_BY_ROW=is_b_by_row,
            UNIT=UNIT, **chosen,
        )  # fmt: skip
    return result


def _with_two_leading(value: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Returns a factor `[outer, inner, …]`, of which one side lies in memory without gaps, at aligned places."""
    if len(lead) > 2:
        value = value.expand(*lead, *value.shape[-2:]).flatten(0, -4)
    while value.dim() < 4:
        value = value.unsqueeze(0)
    places = [step for size, step in zip(value.shape[:2], value.stride()[:2], strict=True) if size > 1]
    *steps, closest = sorted(value.stride()[2:], reverse=True)
    is_dense = closest == 1 and all(step % UNIT == 0 for step in (*places, *steps))
    return value if is_dense else value.contiguous()


def _strides(value: Tensor) -> tuple[int, int, int]:
    """Returns strides in units: of both leading dimensions, 0 where members share, and from row to row or column."""
    outer, inner = (0 if size == 1 else step for size, step in zip(value.shape[:2], value.stride()[:2], strict=True))
    return outer // UNIT, inner // UNIT, max(value.stride()[2:]) // UNIT
