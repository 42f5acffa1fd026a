"""Forests on a GPU, by Triton: an interpreter of the packed trees over tiles of samples, in single precision.

Read backwards, prefix order is a program for a stack machine: a terminal pushes, an operator replaces its arguments by
its value. Each entry is a dual number, a value and its derivative along a direction. The two topmost entries are
registers; those below lie in scratch memory, so that only a terminal stores and only a binary operator loads, and what
it loads is not needed before the next one. The mixed gradient keeps every node's dual number and then reads the program
forwards: adjoints go from the root to the leaves by a stack of the same kind.

A program of a launch serves one tile of `rows × columns` outputs at a time and goes on to the next until none is left:
scratch memory grows with the number of programs, which `_SCRATCH_BYTES` limits, and not with the work. The sizes of
the trees are read by the kernels, so a captured launch serves any trees copied into the same tensors.

EXTENDED kernels also know the tokens that the paper does not have; the others are compiled without them. Their trees
may use predictions that depend on all outputs of a sample, so their gradients are the sum of up to three passes: the
derivative by f and logp, by blogp and by the margin, each taken to the outputs by its own rule.
"""

from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from evomal.errors import InputError
from evomal.expression.operators import (
    BALANCED,
    BINARY_TOKENS,
    EPSILON,
    LARGEST_EXPONENT,
    LOG_PROBABILITY,
    MARGIN,
    OPERATORS,
    PREDICTION,
    PRIOR,
    TARGET,
)
from evomal.expression.prefix import MAX_HEIGHT
from evomal.forest.programs import CODES, PREDICTED, SECOND, Link, Programs, operator_codes
from evomal.forest.terminals import prior_shift


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
"""Most outputs of a sample whose link is part of the kernel; for more, torch applies it to all samples beforehand."""
WIDEST_DESCENT = 16384
"""Most outputs of a sample that `descended` takes: one program holds them all, from the first step to the last."""
_MOST_WARPS = 16
_ELEMENTS_PER_WARP = 128  # of a row wider than a tile
_NODES_SUMMED_AT_ONCE = tl.constexpr(16)

_BETA1, _BETA2, _STABILISER = tl.constexpr(0.9), tl.constexpr(0.999), tl.constexpr(1e-8)

_EPSILON = tl.constexpr(EPSILON)
_NODE = tl.constexpr(3)  # numbers of a node in `Programs.nodes`
_SECOND = tl.constexpr(SECOND)
_FIRST_UNARY = tl.constexpr(len(BINARY_TOKENS))  # codes are numbered in this order: binary, unary, terminals
_FIRST_TERMINAL = tl.constexpr(len(OPERATORS))
_ADD, _, _MUL, _AQ, _MIN, _, _POW, _, _SQUARE, _ABS, _LOG, _SQRT, _TANH, _EXP = map(
    tl.constexpr,
    operator_codes(
        "Triton",
        "add", "sub", "mul", "aq", "min", "max", "pow", "sign", "square", "abs", "log", "sqrt", "tanh", "exp",
    ),
)  # fmt: skip
_Y, _F, _ONE, _LOGP, _BLOGP, _MARGIN, _PRIOR = (
    tl.constexpr(CODES[token]) for token in (TARGET, PREDICTION, "1", LOG_PROBABILITY, BALANCED, MARGIN, PRIOR)
)
_PREDICTED = tl.constexpr(int(PREDICTED))
_LARGEST = tl.constexpr(LARGEST_EXPONENT)
_SOFTMAX, _SIGMOID = tl.constexpr(int(Link.SOFTMAX)), tl.constexpr(int(Link.SIGMOID))


@triton.jit
def _sign(x):  # type: ignore[no-untyped-def]
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    """Near zero Cephes' polynomial (Moshier), as 1 − 2 / (exp(2x) + 1) would lose the digits of a small x."""
    z = x * x
    slope = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z
    near = x + x * z * (slope - 3.33332819422e-1)
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))


@triton.jit
def _sigmoid(x):  # type: ignore[no-untyped-def]
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0, e, 1.0) / (1.0 + e)


@triton.jit
def _log1p(e):  # type: ignore[no-untyped-def]
    """log(1 + e) for 0 ≤ e ≤ 1: Triton has none, and log(1 + e) alone loses the digits of a small e."""
    one_plus = 1.0 + e
    return tl.where(one_plus == 1.0, e, tl.log(one_plus) * (e / tl.where(one_plus == 1.0, 1.0, one_plus - 1.0)))


@triton.jit
def _softplus(x):  # type: ignore[no-untyped-def]
    return tl.where(x > 0, x, 0.0) + _log1p(tl.exp(-tl.abs(x)))


@triton.jit  # type: ignore[untyped-decorator]
def _predictions(outputs, LINK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """f of a tile of outputs, a sample's in a row."""
    if LINK == _SOFTMAX:
        exponentials = tl.exp(outputs - tl.max(outputs, axis=1)[:, None])
        f = exponentials / tl.sum(exponentials, axis=1)[:, None]
    elif LINK == _SIGMOID:
        f = _sigmoid(outputs)
    else:
        f = outputs
    return f


@triton.jit  # type: ignore[untyped-decorator]
def _through_link(f, vectors, LINK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """The link's Jacobian, symmetric for each link, times a vector in every row."""
    if LINK == _SOFTMAX:
        product = f * (vectors - tl.sum(f * vectors, axis=1)[:, None])
    elif LINK == _SIGMOID:
        product = f * (1.0 - f) * vectors
    else:
        product = vectors
    return product


@triton.jit  # type: ignore[untyped-decorator]
def _log_probabilities(z, is_real, LINK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Log-probabilities of a tile of logits; and their probabilities, or for sigmoid those of the other class."""
    if LINK == _SOFTMAX:
        shifted = z - tl.max(z, axis=1)[:, None]
        exponentials = tl.exp(shifted)
        total = tl.sum(exponentials, axis=1)[:, None]
        logarithms = shifted - tl.log(total)
        probabilities = exponentials / total
    else:
        e = tl.exp(-tl.abs(z))
        logarithms = tl.where(z < 0, z, 0.0) - _log1p(e)
        probabilities = tl.where(z < 0, 1.0, e) / (1.0 + e)
    return tl.where(is_real, logarithms, 0.0), probabilities


@triton.jit
def _rivals(z, column):  # type: ignore[no-untyped-def]
    """Where the first and the second largest logit of every row are."""
    is_first = column == tl.argmax(z, axis=1)[:, None]
    return is_first, column == tl.argmax(tl.where(is_first, float("-inf"), z), axis=1)[:, None]


@triton.jit
def _picked(vectors, places):  # type: ignore[no-untyped-def]
    """The one number of every row that stands in these places."""
    return tl.sum(tl.where(places, vectors, 0.0), axis=1)[:, None]


@triton.jit
def _power(a, b):  # type: ignore[no-untyped-def]
    """The value of pow, log|a| protected, and the two factors of its derivatives: by the exponent, and of log|a|."""
    size = tl.abs(a)
    logarithm = tl.log(tl.where(size < _EPSILON, _EPSILON, size))
    exponent = b * logarithm
    is_capped = exponent > _LARGEST
    value = tl.exp(tl.where(is_capped, _LARGEST, exponent))
    return value, logarithm, tl.where(is_capped, 0.0, value), tl.where(size < _EPSILON, 0.0, _sign(a) / size)


@triton.jit
def _power_dual(a, da, b, db):  # type: ignore[no-untyped-def]
    value, logarithm, growth, rate = _power(a, b)
    return value, growth * (b * rate * da + logarithm * db)


@triton.jit
def _extremum_dual(code, a, da, b, db):  # type: ignore[no-untyped-def]
    # A NaN is neither smaller nor larger: b wins by default, a where it is the NaN.
    wins = tl.where(code == _MIN, a < b, a > b) | (a != a)
    return tl.where(wins, a, b), tl.where(wins, da, tl.where(a == b, 0.5 * (da + db), db))


@triton.jit
def _power_adjoints(a, da, b, db, adjoint, tangent_adjoint):  # type: ignore[no-untyped-def]
    _, logarithm, growth, rate = _power(a, b)
    # With e = b·log|a|, whose derivatives are e_a = b·rate, e_aa = −b·rate², e_ab = rate, e_b = log|a|.
    e_a = b * rate
    along = e_a * da + logarithm * db
    a_slope = growth * e_a
    b_slope = growth * logarithm
    a_bend = growth * (e_a * along + rate * (db - e_a * da))
    b_bend = growth * (logarithm * along + rate * da)
    return (
        a_slope * adjoint + a_bend * tangent_adjoint,
        a_slope * tangent_adjoint,
        b_slope * adjoint + b_bend * tangent_adjoint,
        b_slope * tangent_adjoint,
    )


@triton.jit
def _extremum_adjoints(code, a, b, adjoint, tangent_adjoint):  # type: ignore[no-untyped-def]
    wins = tl.where(code == _MIN, a < b, a > b) | (a != a)
    share = tl.where(wins, 1.0, tl.where(a == b, 0.5, 0.0))
    return share * adjoint, share * tangent_adjoint, (1.0 - share) * adjoint, (1.0 - share) * tangent_adjoint


@triton.jit  # type: ignore[untyped-decorator]
def _unary(code, a, da, EXTENDED: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Value and derivative of an operator on one dual number."""
    sign = _sign(a)
    if code == _SQUARE:
        value = a * a
        derivative = 2.0 * a * da
    elif code == _ABS:
        value = tl.abs(a)
        derivative = sign * da
    elif code == _LOG:
        shifted = tl.abs(a) + _EPSILON
        value = tl.log(shifted)
        derivative = sign / shifted * da
    elif code == _SQRT:
        value = tl.sqrt(tl.abs(a) + _EPSILON)
        derivative = 0.5 * sign / value * da
    elif code == _TANH:
        value = _tanh(a)
        derivative = (1.0 - value * value) * da
    else:  # sign
        value = sign
        derivative = tl.zeros_like(a)
        if EXTENDED:  # noqa: SIM102 (a condition of the compiler, then one of the kernel)
            if code == _EXP:
                value = tl.exp(tl.where(a > _LARGEST, _LARGEST, a))
                derivative = tl.where(a > _LARGEST, 0.0, value) * da
    return value, derivative


@triton.jit  # type: ignore[untyped-decorator]
def _binary(code, a, da, b, db, EXTENDED: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Value and derivative of an operator on two dual numbers."""
    if code < _MUL:  # add or sub
        direction = tl.where(code == _ADD, 1.0, -1.0)
        value = a + direction * b
        derivative = da + direction * db
    elif code == _MUL:
        value = a * b
        derivative = da * b + a * db
    elif code == _AQ:
        q = 1.0 / tl.sqrt(1.0 + b * b)
        value = a * q
        derivative = da * q - value * b * q * q * db
    elif EXTENDED:
        if code == _POW:
            value, derivative = _power_dual(a, da, b, db)
        else:
            value, derivative = _extremum_dual(code, a, da, b, db)
    else:
        value, derivative = _extremum_dual(code, a, da, b, db)
    return value, derivative


@triton.jit  # type: ignore[untyped-decorator]
def _unary_adjoints(  # type: ignore[no-untyped-def]
    code, a, da, value, adjoint, tangent_adjoint, EXTENDED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Adjoints of the argument and of its tangent from those of the operator, whose value is given."""
    sign = _sign(a)
    if code == _SQUARE:
        slope = 2.0 * a
        bend = 2.0 * da
    elif code == _ABS:
        slope = sign
        bend = tl.zeros_like(a)
    elif code == _LOG:
        slope = sign / (tl.abs(a) + _EPSILON)
        bend = -slope * slope * da
    elif code == _SQRT:
        slope = 0.5 * sign / value
        bend = -slope * slope / value * da
    elif code == _TANH:
        slope = 1.0 - value * value
        bend = -2.0 * value * slope * da
    else:  # sign
        slope = tl.zeros_like(a)
        bend = tl.zeros_like(a)
        if EXTENDED:  # noqa: SIM102 (a condition of the compiler, then one of the kernel)
            if code == _EXP:
                slope = tl.where(a > _LARGEST, 0.0, value)
                bend = slope * da
    return slope * adjoint + bend * tangent_adjoint, slope * tangent_adjoint


@triton.jit  # type: ignore[untyped-decorator]
def _binary_adjoints(  # type: ignore[no-untyped-def]
    code, a, da, b, db, adjoint, tangent_adjoint, EXTENDED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Adjoints of the first argument and its tangent, then of the second, from those of the operator."""
    if code < _MUL:  # add or sub
        direction = tl.where(code == _ADD, 1.0, -1.0)
        a_adjoint = adjoint
        da_adjoint = tangent_adjoint
        b_adjoint = direction * adjoint
        db_adjoint = direction * tangent_adjoint
    elif code == _MUL:
        a_adjoint = b * adjoint + db * tangent_adjoint
        da_adjoint = b * tangent_adjoint
        b_adjoint = a * adjoint + da * tangent_adjoint
        db_adjoint = a * tangent_adjoint
    elif code == _AQ:
        q = 1.0 / tl.sqrt(1.0 + b * b)
        fall = -b * q * q * q  # ∂²/∂a∂b, and ∂/∂b for a = 1
        bend = a * (2.0 * b * b - 1.0) * q * q * q * q * q  # ∂²/∂b²
        a_adjoint = q * adjoint + fall * db * tangent_adjoint
        da_adjoint = q * tangent_adjoint
        b_adjoint = a * fall * adjoint + (fall * da + bend * db) * tangent_adjoint
        db_adjoint = a * fall * tangent_adjoint
    elif EXTENDED:
        if code == _POW:
            a_adjoint, da_adjoint, b_adjoint, db_adjoint = _power_adjoints(a, da, b, db, adjoint, tangent_adjoint)
        else:
            a_adjoint, da_adjoint, b_adjoint, db_adjoint = _extremum_adjoints(code, a, b, adjoint, tangent_adjoint)
    else:
        a_adjoint, da_adjoint, b_adjoint, db_adjoint = _extremum_adjoints(code, a, b, adjoint, tangent_adjoint)
    return a_adjoint, da_adjoint, b_adjoint, db_adjoint


@triton.jit  # type: ignore[untyped-decorator]
def _root(  # type: ignore[no-untyped-def]
    nodes, weights, size, f, df, y, logp, dlogp, blogp, dblogp, margin, dmargin, prior, progress, stack, kept, lanes,
    KEEP: tl.constexpr, EXTENDED: tl.constexpr, TILE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Value of a tree's root and its derivative along df; KEEP stores those of every node, before its weight.

    What follows y, up to the progress of the training, is used by EXTENDED kernels only.
    """
    first = tl.zeros_like(f)
    first_d = tl.zeros_like(f)
    second = tl.zeros_like(f)
    second_d = tl.zeros_like(f)
    depth = size * 0
    # The next node's numbers are asked for a node ahead, so that nothing waits for them.
    code = tl.load(nodes + (size - 1) * _NODE)
    weight = tl.load(weights + size - 1, mask=size > 1, other=1.0)
    for step in range(size):
        position = size - 1 - step
        next_code = tl.load(nodes + (position - 1) * _NODE, mask=position > 0, other=0)
        next_weight = tl.load(weights + position - 1, mask=position > 1, other=1.0)
        if code >= _FIRST_TERMINAL:
            tl.store(stack + 2 * depth * TILE + lanes, second)
            tl.store(stack + (2 * depth + 1) * TILE + lanes, second_d)
            tl.debug_barrier()
            depth += 1
            second = first
            second_d = first_d
            first = tl.where(code == _F, f, tl.where(code == _Y, y, tl.where(code == _ONE, 1.0, -1.0)))
            first_d = tl.where(code == _F, df, 0.0)
            if EXTENDED:  # noqa: SIM102
                if code >= _LOGP:
                    first = tl.where(code == _LOGP, logp, tl.where(code == _BLOGP, blogp, progress))
                    first = tl.where(code == _MARGIN, margin, tl.where(code == _PRIOR, prior, first))
                    first_d = tl.where(code == _LOGP, dlogp, tl.where(code == _BLOGP, dblogp, 0.0))
                    first_d = tl.where(code == _MARGIN, dmargin, first_d)
        elif code >= _FIRST_UNARY:
            first, first_d = _unary(code, first, first_d, EXTENDED)
        else:
            first, first_d = _binary(code, first, first_d, second, second_d, EXTENDED)
            depth -= 1
            second = tl.load(stack + 2 * depth * TILE + lanes)
            second_d = tl.load(stack + (2 * depth + 1) * TILE + lanes)
            tl.debug_barrier()
        if KEEP:
            tl.store(kept + 2 * position * TILE + lanes, first)
            tl.store(kept + (2 * position + 1) * TILE + lanes, first_d)
        first *= weight
        first_d *= weight
        code = next_code
        weight = next_weight
    return first, first_d


@triton.jit  # type: ignore[untyped-decorator]
def _extended_gradient(  # type: ignore[no-untyped-def]
    nodes, weights, size, uses, z, f, y, column, count, extras, stack, lanes,
    LINK: tl.constexpr, SOFTPLUS: tl.constexpr, TILE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Value of a tree at every output of a tile, and the gradient of their sum by the outputs.

    `extras`: the prior of each output, what is added to each for blogp, and the progress of the training.
    """
    is_real = column < count
    prior = tl.load(extras + column, mask=is_real, other=1.0)
    shift = tl.load(extras + count + column, mask=is_real, other=0.0)
    progress = tl.load(extras + 2 * count)
    value = tl.zeros_like(f)
    pulled = tl.zeros_like(f)
    if LINK == _SOFTMAX:
        logp, _ = _log_probabilities(z, is_real, LINK)
        blogp, balanced = _log_probabilities(z + shift, is_real, LINK)
        is_first, is_second = _rivals(z, column)
        margin = tl.where(is_real, z - tl.where(is_first, _picked(z, is_second), _picked(z, is_first)), 0.0)
        for group in range(3):
            is_plain = (uses & _PREDICTED) == 0
            if (((uses >> group) & 1) != 0) | (is_plain & (group == 0)):
                seed = tl.zeros_like(f) + tl.where(group == 0, 1.0, 0.0)
                balanced_seed = tl.zeros_like(f) + tl.where(group == 1, 1.0, 0.0)
                margin_seed = tl.zeros_like(f) + tl.where(group == 2, 1.0, 0.0)
                value, slope = _root(
                    nodes, weights, size, f, f * seed, y, logp, seed, blogp, balanced_seed, margin, margin_seed,
                    prior, progress, stack, stack, lanes, False, True, TILE,
                )  # fmt: skip
                if SOFTPLUS:
                    slope *= _sigmoid(value)
                    value = _softplus(value)
                slope = tl.where(is_real, slope, 0.0)
                total = tl.sum(slope, axis=1)[:, None]
                of_first = _picked(slope, is_first)
                by_margin = tl.where(is_first, total - of_first, tl.where(is_second, of_first, 0.0))
                by_probability = tl.where(group == 0, f, balanced) * total
                pulled += slope - tl.where(group == 2, by_margin, by_probability)
    elif LINK == _SIGMOID:
        logp, other = _log_probabilities(z, is_real, LINK)
        blogp, balanced_other = _log_probabilities(z + shift, is_real, LINK)
        value, pulled = _root(
            nodes, weights, size, f, f * (1.0 - f), y, logp, other, blogp, balanced_other, z, tl.zeros_like(f) + 1.0,
            prior, progress, stack, stack, lanes, False, True, TILE,
        )  # fmt: skip
        if SOFTPLUS:
            pulled *= _sigmoid(value)
            value = _softplus(value)
    else:
        value, pulled = _root(
            nodes, weights, size, f, tl.zeros_like(f) + 1.0, y, f, f, f, f, f, f, prior, progress,
            stack, stack, lanes, False, True, TILE,
        )  # fmt: skip
        if SOFTPLUS:
            pulled *= _sigmoid(value)
            value = _softplus(value)
    return value, tl.where(is_real, pulled, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _extended_tangents(  # type: ignore[no-untyped-def]
    nodes, weights, size, z, f, y, u, column, count, extras, stack, kept, lanes,
    LINK: tl.constexpr, TILE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Value of a tree at every output of a tile, and its derivative along tangents of the outputs; keeps all nodes'."""
    is_real = column < count
    prior = tl.load(extras + column, mask=is_real, other=1.0)
    shift = tl.load(extras + count + column, mask=is_real, other=0.0)
    progress = tl.load(extras + 2 * count)
    if LINK == _SOFTMAX:
        logp, _ = _log_probabilities(z, is_real, LINK)
        blogp, balanced = _log_probabilities(z + shift, is_real, LINK)
        is_first, is_second = _rivals(z, column)
        margin = tl.where(is_real, z - tl.where(is_first, _picked(z, is_second), _picked(z, is_first)), 0.0)
        dlogp = u - tl.sum(f * u, axis=1)[:, None]
        df = f * dlogp
        dblogp = u - tl.sum(balanced * u, axis=1)[:, None]
        dmargin = u - tl.where(is_first, _picked(u, is_second), _picked(u, is_first))
    elif LINK == _SIGMOID:
        logp, other = _log_probabilities(z, is_real, LINK)
        blogp, balanced_other = _log_probabilities(z + shift, is_real, LINK)
        margin = z
        df = f * (1.0 - f) * u
        dlogp = other * u
        dblogp = balanced_other * u
        dmargin = u
    else:
        logp = f
        blogp = f
        margin = f
        df = u
        dlogp = u
        dblogp = u
        dmargin = u
    value, tangent = _root(
        nodes, weights, size, f, df, y, logp, dlogp, blogp, dblogp, margin, dmargin, prior, progress,
        stack, kept, lanes, True, True, TILE,
    )  # fmt: skip
    return value, tangent


@triton.jit(do_not_specialize=["trees", "trees_per_group", "tiles", "samples", "count", "width", "tree_stride", "room"])  # type: ignore[untyped-decorator]
def _gradients_kernel(  # type: ignore[no-untyped-def]
    nodes, sizes, uses, extras, weights, outputs, targets, values, gradient, scratch,
    trees, trees_per_group, tiles, samples, count, width, tree_stride, room,
    LINK: tl.constexpr, SOFTPLUS: tl.constexpr, EXTENDED: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    TILE: tl.constexpr = ROWS * COLUMNS  # noqa: N806
    column = tl.arange(0, COLUMNS)[None, :]
    lanes = tl.arange(0, ROWS)[:, None] * COLUMNS + column
    stack = scratch + tl.program_id(0).to(tl.int64) * room
    for work in range(tl.program_id(0), trees * tiles, tl.num_programs(0)):
        tree = (work // tiles).to(tl.int64)
        rows = work % tiles * ROWS + tl.arange(0, ROWS)
        inside = (rows < samples)[:, None] & (column < count)
        # Rows behind the last repeat it: ordinary numbers, computed and then not stored.
        place = tl.minimum(rows, samples - 1)[:, None] * count + column
        own_targets = targets + tree // trees_per_group * samples * count
        y = tl.load(own_targets + place, mask=column < count, other=0.0)
        filling = float("-inf") if LINK == _SOFTMAX else 0.0
        z = tl.load(outputs + tree * tree_stride + place, mask=column < count, other=filling)
        f = _predictions(z, LINK)
        tree_nodes, tree_weights = nodes + tree * width * _NODE, weights + tree * width
        if EXTENDED:
            value, pulled = _extended_gradient(
                tree_nodes, tree_weights, tl.load(sizes + tree), tl.load(uses + tree), z, f, y, column, count, extras,
                stack, lanes, LINK, SOFTPLUS, TILE,
            )  # fmt: skip
        else:
            value, slope = _root(
                tree_nodes, tree_weights, tl.load(sizes + tree), f, tl.full([ROWS, COLUMNS], 1.0, tl.float32), y,
                f, f, f, f, f, f, f, f, stack, stack, lanes, False, False, TILE,
            )  # fmt: skip
            if SOFTPLUS:
                slope *= _sigmoid(value)
                value = _softplus(value)
            pulled = _through_link(f, tl.where(column < count, slope, 0.0), LINK)
        total = tl.sum(tl.where(column < count, value, 0.0), axis=1)
        tl.store(values + tree * samples + rows, total, mask=rows < samples)
        tl.store(gradient + tree * samples * count + place, pulled, mask=inside)


@triton.jit(do_not_specialize=["trees", "groups", "tiles", "samples", "count", "width", "tree_stride", "room"])  # type: ignore[untyped-decorator]
def _mixed_kernel(  # type: ignore[no-untyped-def]
    nodes, sizes, extras, weights, outputs, targets, tangents, partial, scratch,
    trees, groups, tiles, samples, count, width, tree_stride, room,
    LINK: tl.constexpr, SOFTPLUS: tl.constexpr, EXTENDED: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    TILE: tl.constexpr = ROWS * COLUMNS  # noqa: N806
    column = tl.arange(0, COLUMNS)[None, :]
    lanes = tl.arange(0, ROWS)[:, None] * COLUMNS + column
    kept = scratch + tl.program_id(0).to(tl.int64) * room
    stack = kept + 2 * width * TILE
    for work in range(tl.program_id(0), trees * groups, tl.num_programs(0)):
        tree = (work // groups).to(tl.int64)
        size = tl.load(sizes + tree)
        tree_nodes, tree_weights = nodes + tree * width * _NODE, weights + tree * width
        sums = partial + (tree * groups + work % groups) * width
        node = tl.arange(0, _NODES_SUMMED_AT_ONCE)
        for start in range(0, width, _NODES_SUMMED_AT_ONCE):
            tl.store(sums + start + node, tl.zeros_like(node).to(tl.float32), mask=start + node < width)
        for tile in range(work % groups, tiles, groups):
            rows = tile * ROWS + tl.arange(0, ROWS)
            inside = (rows < samples)[:, None] & (column < count)
            place = tl.minimum(rows, samples - 1)[:, None] * count + column
            y = tl.load(targets + place, mask=column < count, other=0.0)
            filling = float("-inf") if LINK == _SOFTMAX else 0.0
            z = tl.load(outputs + tree * tree_stride + place, mask=column < count, other=filling)
            u = tl.load(tangents + tree * samples * count + place, mask=column < count, other=0.0)
            f = _predictions(z, LINK)
            if EXTENDED:
                value, tangent = _extended_tangents(
                    tree_nodes, tree_weights, size, z, f, y, u, column, count, extras, stack, kept, lanes, LINK, TILE,
                )  # fmt: skip
            else:
                value, tangent = _root(
                    tree_nodes, tree_weights, size, f, _through_link(f, u, LINK), y, f, f, f, f, f, f, f, f,
                    stack, kept, lanes, True, False, TILE,
                )  # fmt: skip
            tl.debug_barrier()
            if SOFTPLUS:
                tangent_adjoint = _sigmoid(value)
                adjoint = tangent_adjoint * _sigmoid(-value) * tangent
            else:
                tangent_adjoint = tl.full([ROWS, COLUMNS], 1.0, tl.float32)
                adjoint = tl.zeros_like(f)
            # From here on adjoint and tangent_adjoint belong to the node at hand, value and tangent are its own, and
            # top and top_d are the adjoints of the second argument whose turn comes next.
            top = tl.zeros_like(f)
            top_d = tl.zeros_like(f)
            depth = size * 0 + 1
            code = tl.load(tree_nodes)
            second = tl.load(tree_nodes + _SECOND)
            weight = tl.full([], 1.0, tl.float32)
            for position in range(size):
                following = tl.minimum(position + 1, size - 1)  # the first argument, where there is one
                next_code = tl.load(tree_nodes + following * _NODE)
                next_second = tl.load(tree_nodes + following * _NODE + _SECOND)
                next_weight = tl.load(tree_weights + following)
                next_value = tl.load(kept + 2 * following * TILE + lanes)
                next_tangent = tl.load(kept + (2 * following + 1) * TILE + lanes)
                share = tl.where(inside, value * adjoint + tangent * tangent_adjoint, 0.0)
                adjoint *= weight
                tangent_adjoint *= weight
                if code >= _FIRST_TERMINAL:
                    adjoint = top
                    tangent_adjoint = top_d
                    depth -= 1
                    top = tl.load(stack + 2 * depth * TILE + lanes)
                    top_d = tl.load(stack + (2 * depth + 1) * TILE + lanes)
                elif code >= _FIRST_UNARY:
                    adjoint, tangent_adjoint = _unary_adjoints(
                        code,
                        next_weight * next_value,
                        next_weight * next_tangent,
                        value,
                        adjoint,
                        tangent_adjoint,
                        EXTENDED,
                    )
                else:
                    tl.store(stack + 2 * depth * TILE + lanes, top)
                    tl.store(stack + (2 * depth + 1) * TILE + lanes, top_d)
                    depth += 1
                    second_weight = tl.load(tree_weights + second)
                    adjoint, tangent_adjoint, top, top_d = _binary_adjoints(
                        code, next_weight * next_value, next_weight * next_tangent,
                        second_weight * tl.load(kept + 2 * second * TILE + lanes),
                        second_weight * tl.load(kept + (2 * second + 1) * TILE + lanes), adjoint, tangent_adjoint,
                        EXTENDED,
                    )  # fmt: skip
                # The node's own value has served: its place takes what the weight's gradient gets from each output.
                tl.store(kept + 2 * position * TILE + lanes, share)
                tl.debug_barrier()
                code = next_code
                second = next_second
                weight = next_weight
                value = next_value
                tangent = next_tangent
            lane = tl.arange(0, TILE)[None, :]
            for start in range(0, size, _NODES_SUMMED_AT_ONCE):
                weighted = (start + node > 0) & (start + node < size)
                shares = tl.load(kept + 2 * (start + node)[:, None] * TILE + lane, mask=weighted[:, None], other=0.0)
                before = tl.load(sums + start + node, mask=weighted, other=0.0)
                tl.store(sums + start + node, before + tl.sum(shares, axis=1), mask=weighted)
            tl.debug_barrier()


@triton.jit(do_not_specialize=["trees", "tiles", "samples", "count", "width", "tree_stride", "room", "steps"])  # type: ignore[untyped-decorator]
def _descent_kernel(  # type: ignore[no-untyped-def]
    nodes, sizes, uses, extras, weights, outputs, targets, rates, corrections, result, scratch,
    trees, tiles, samples, count, width, tree_stride, room, steps, scale,
    LINK: tl.constexpr, SOFTPLUS: tl.constexpr, EXTENDED: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    TILE: tl.constexpr = ROWS * COLUMNS  # noqa: N806
    column = tl.arange(0, COLUMNS)[None, :]
    lanes = tl.arange(0, ROWS)[:, None] * COLUMNS + column
    stack = scratch + tl.program_id(0).to(tl.int64) * room
    for work in range(tl.program_id(0), trees * tiles, tl.num_programs(0)):
        tree = (work // tiles).to(tl.int64)
        rows = work % tiles * ROWS + tl.arange(0, ROWS)
        place = tl.minimum(rows, samples - 1)[:, None] * count + column
        y = tl.load(targets + place, mask=column < count, other=0.0)
        filling = float("-inf") if LINK == _SOFTMAX else 0.0
        z = tl.load(outputs + tree * tree_stride + place, mask=column < count, other=filling)
        tree_nodes, tree_weights = nodes + tree * width * _NODE, weights + tree * width
        size = tl.load(sizes + tree)
        mean = tl.zeros_like(z)
        square_mean = tl.zeros_like(z)
        for step in range(steps):
            f = _predictions(z, LINK)
            # Without a gradient the columns behind the last stay where they are.
            if EXTENDED:
                value, pulled = _extended_gradient(
                    tree_nodes, tree_weights, size, tl.load(uses + tree), z, f, y, column, count, extras,
                    stack, lanes, LINK, SOFTPLUS, TILE,
                )  # fmt: skip
                g = scale * pulled
            else:
                value, slope = _root(
                    tree_nodes, tree_weights, size, f, tl.full([ROWS, COLUMNS], 1.0, tl.float32), y,
                    f, f, f, f, f, f, f, f, stack, stack, lanes, False, False, TILE,
                )  # fmt: skip
                if SOFTPLUS:
                    slope *= _sigmoid(value)
                g = _through_link(f, tl.where(column < count, scale * slope, 0.0), LINK)
            mean += (g - mean) * (1.0 - _BETA1)
            square_mean = square_mean * _BETA2 + g * g * (1.0 - _BETA2)
            divisor = tl.div_rn(tl.sqrt_rn(square_mean), tl.load(corrections + step)) + _STABILISER
            z -= tl.load(rates + step) * tl.div_rn(mean, divisor)
        inside = (rows < samples)[:, None] & (column < count)
        tl.store(result + tree * samples * count + place, z, mask=inside)


def gradients(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link, *, softplus: bool
) -> tuple[Tensor, Tensor]:
    """Values `[P, B]` and the gradient `[P, B, K]` of their sum with respect to the outputs."""
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
        _gradients_kernel[(launched,)](
            programs.nodes, programs.sizes, programs.uses, _extras(programs, link), weights.contiguous(),
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
    """`[P, N]`: the gradient with respect to the weights of Σ tangents · ∂(values.sum())/∂outputs."""
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
        _mixed_kernel[(launched,)](
            programs.nodes, programs.sizes, _extras(programs, link), weights.contiguous(),
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
    """`[P, B, K]`: the outputs after `steps` steps of Adam on scale · values.sum(), all in one launch."""
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
    rates = (lr / (1 - _BETA1.value**step)).float()
    corrections = (1 - _BETA2.value**step).sqrt().float()
    with on_device_of(outputs):
        _descent_kernel[(launched,)](
            programs.nodes, programs.sizes, programs.uses, _extras(programs, link), weights.contiguous(),
            outputs.contiguous(), targets.contiguous(), rates, corrections, result, outputs.new_empty(launched * room),
            programs.count, tiles, samples, count, programs.width, _tree_stride(outputs), room, steps, float(scale),
            LINK=int(link), SOFTPLUS=softplus, EXTENDED=programs.extended, ROWS=rows, COLUMNS=columns, num_warps=warps,
        )  # fmt: skip
    return result


def _check_width(what: str, count: int) -> None:
    if count > WIDEST_DESCENT:
        raise InputError(f"{what} takes at most {WIDEST_DESCENT} outputs per sample but got {count}")


def _extras(programs: Programs, link: Link) -> Tensor:
    """What EXTENDED kernels read besides outputs and targets: prior and shift of each output, and the progress."""
    if not programs.extended:
        return programs.progress
    priors = programs.priors
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
    """Steps in memory from one tree's outputs to the next one's: none where all trees share them."""
    return outputs.shape[-2] * outputs.shape[-1] if outputs.ndim == 3 else 0


def _tile(count: int, tiling: Tiling) -> tuple[int, int, int]:
    """Rows and columns of a tile, both powers of two, and its warps."""
    columns = int(triton.next_power_of_2(count))
    warps = max(tiling.warps, min(_MOST_WARPS, columns // _ELEMENTS_PER_WARP))
    return max(1, tiling.elements // columns), columns, warps


def _stack_room(width: int, tile: int) -> int:
    """Numbers of a stack of dual numbers: as deep as the highest tree, or as the terminals of `width` nodes."""
    return 2 * (min(MAX_HEIGHT, width // 2) + 1) * tile


def _most_programs(room: int) -> int:
    return max(1, _SCRATCH_BYTES // (4 * room))
