"""The kernels of forests in Triton: an interpreter of the packed trees over tiles of samples, in single precision.

Read backwards, prefix order is a program for a stack machine: a terminal pushes, an operator replaces its arguments by
its value. Each entry is a dual number, a value and its derivative along a direction. The two topmost entries are
registers; those below lie in scratch memory, so that only a terminal stores and only a binary operator loads, and what
it loads is not needed before the next one. The mixed gradient keeps every node's dual number and then reads the program
forwards: adjoints go from the root to the leaves by a stack of the same kind.

EXTENDED kernels also know the tokens that the paper does not have; the others are compiled without them. Their trees
may use predictions that depend on all outputs of a sample, so their gradients are the sum of up to three passes: the
derivative by f and logp, by blogp and by the margin, each taken to the outputs by its own rule.
"""

import triton
import triton.language as tl

from evomal.expression.operators import (
    BALANCED,
    BINARY_TOKENS,
    LOG_PROBABILITY,
    MARGIN,
    OPERATORS,
    PREDICTION,
    PRIOR,
    TARGET,
)
from evomal.forest.codes import CODES, PREDICTED, SECOND
from evomal.forest.triton_rules import (
    SIGMOID,
    SOFTMAX,
    activated,
    binary,
    binary_adjoints,
    log_probabilities,
    picked,
    predictions,
    rivals,
    sigmoid,
    through_link,
    unary,
    unary_adjoints,
)

BETA1, BETA2, _STABILISER = tl.constexpr(0.9), tl.constexpr(0.999), tl.constexpr(1e-8)
_NODES_SUMMED_AT_ONCE = tl.constexpr(16)
_NODE = tl.constexpr(3)  # numbers of a node in `Programs.nodes`
_SECOND = tl.constexpr(SECOND)
_FIRST_UNARY = tl.constexpr(len(BINARY_TOKENS))  # codes are numbered in this order: binary, unary, terminals
_FIRST_TERMINAL = tl.constexpr(len(OPERATORS))
_Y, _F, _ONE, _LOGP, _BLOGP, _MARGIN, _PRIOR = (
    tl.constexpr(CODES[token]) for token in (TARGET, PREDICTION, "1", LOG_PROBABILITY, BALANCED, MARGIN, PRIOR)
)
_PREDICTED = tl.constexpr(int(PREDICTED))


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
    depth = size * 0  # a variable of the kernel, where 0 would be a constant of the compiler
    # The code and weight of the next node are loaded one node ahead, so that nothing waits for them.
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
            first, first_d = unary(code, first, first_d, EXTENDED)
        else:
            first, first_d = binary(code, first, first_d, second, second_d, EXTENDED)
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
def _tile(outputs, targets, start, samples, count, column, LINK: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Rows of a tile, their places in memory, targets and outputs."""
    rows = start + tl.arange(0, ROWS)
    # Rows after the last one repeat it: ordinary numbers, computed and then not stored.
    place = tl.minimum(rows, samples - 1)[:, None] * count + column
    y = tl.load(targets + place, mask=column < count, other=0.0)
    filling = float("-inf") if LINK == SOFTMAX else 0.0
    return rows, place, y, tl.load(outputs + place, mask=column < count, other=filling)


@triton.jit  # type: ignore[untyped-decorator]
def _predictions_besides_f(z, f, shift, is_real, column, LINK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """logp, blogp and margin, what the derivatives of logp and blogp need, and where the two largest logits are."""
    is_first = is_real
    is_second = is_real
    if LINK == SOFTMAX:
        logp, own = log_probabilities(z, is_real, LINK)
        blogp, balanced = log_probabilities(z + shift, is_real, LINK)
        is_first, is_second = rivals(z, column)
        margin = tl.where(is_real, z - tl.where(is_first, picked(z, is_second), picked(z, is_first)), 0.0)
    elif LINK == SIGMOID:
        logp, own = log_probabilities(z, is_real, LINK)
        blogp, balanced = log_probabilities(z + shift, is_real, LINK)
        margin = z
    else:
        logp, own, blogp, balanced, margin = f, f, f, f, f
    return logp, own, blogp, balanced, margin, is_first, is_second


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
    logp, own, blogp, balanced, margin, is_first, is_second = _predictions_besides_f(z, f, shift, is_real, column, LINK)
    value = tl.zeros_like(f)
    pulled = tl.zeros_like(f)
    if LINK == SOFTMAX:
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
                value, slope = activated(value, slope, SOFTPLUS)
                slope = tl.where(is_real, slope, 0.0)
                total = tl.sum(slope, axis=1)[:, None]
                of_first = picked(slope, is_first)
                by_margin = tl.where(is_first, total - of_first, tl.where(is_second, of_first, 0.0))
                by_probability = tl.where(group == 0, f, balanced) * total
                pulled += slope - tl.where(group == 2, by_margin, by_probability)
    else:
        one = tl.zeros_like(f) + 1.0
        df = f * (1.0 - f) if LINK == SIGMOID else one
        value, pulled = _root(
            nodes, weights, size, f, df, y, logp, own, blogp, balanced, margin, one, prior, progress,
            stack, stack, lanes, False, True, TILE,
        )  # fmt: skip
        value, pulled = activated(value, pulled, SOFTPLUS)
    return value, tl.where(is_real, pulled, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _gradient(  # type: ignore[no-untyped-def]
    nodes, weights, size, uses, z, y, column, count, extras, stack, lanes, scale,
    LINK: tl.constexpr, SOFTPLUS: tl.constexpr, EXTENDED: tl.constexpr, TILE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Value of a tree at every output of a tile, and scale times the gradient of their sum by the outputs."""
    f = predictions(z, LINK)
    if EXTENDED:
        value, pulled = _extended_gradient(
            nodes, weights, size, uses, z, f, y, column, count, extras, stack, lanes, LINK, SOFTPLUS, TILE
        )
        pulled = scale * pulled
    else:
        value, slope = _root(
            nodes, weights, size, f, tl.zeros_like(f) + 1.0, y, f, f, f, f, f, f, f, f,
            stack, stack, lanes, False, False, TILE,
        )  # fmt: skip
        value, slope = activated(value, slope, SOFTPLUS)
        pulled = through_link(f, tl.where(column < count, scale * slope, 0.0), LINK)
    return value, pulled


@triton.jit  # type: ignore[untyped-decorator]
def _tangents(  # type: ignore[no-untyped-def]
    nodes, weights, size, z, f, y, u, column, count, extras, stack, kept, lanes,
    LINK: tl.constexpr, EXTENDED: tl.constexpr, TILE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Value of a tree at every output of a tile, and its derivative along tangents; stores both for all nodes."""
    if EXTENDED:
        is_real = column < count
        prior = tl.load(extras + column, mask=is_real, other=1.0)
        shift = tl.load(extras + count + column, mask=is_real, other=0.0)
        progress = tl.load(extras + 2 * count)
        logp, own, blogp, balanced, margin, is_first, is_second = _predictions_besides_f(
            z, f, shift, is_real, column, LINK
        )
        df, dlogp, dblogp, dmargin = u, u, u, u
        if LINK == SOFTMAX:
            dlogp = u - tl.sum(f * u, axis=1)[:, None]
            df = f * dlogp
            dblogp = u - tl.sum(balanced * u, axis=1)[:, None]
            dmargin = u - tl.where(is_first, picked(u, is_second), picked(u, is_first))
        elif LINK == SIGMOID:
            df = f * (1.0 - f) * u
            dlogp = own * u
            dblogp = balanced * u
        value, tangent = _root(
            nodes, weights, size, f, df, y, logp, dlogp, blogp, dblogp, margin, dmargin, prior, progress,
            stack, kept, lanes, True, True, TILE,
        )  # fmt: skip
    else:
        value, tangent = _root(
            nodes, weights, size, f, through_link(f, u, LINK), y, f, f, f, f, f, f, f, f,
            stack, kept, lanes, True, False, TILE,
        )  # fmt: skip
    return value, tangent


@triton.jit(do_not_specialize=["trees", "trees_per_group", "tiles", "samples", "count", "width", "tree_stride", "room"])  # type: ignore[untyped-decorator]
def gradients_kernel(  # type: ignore[no-untyped-def]
    nodes, sizes, uses, extras, weights, outputs, targets, values, gradient, scratch,
    trees, trees_per_group, tiles, samples, count, width, tree_stride, room,
    LINK: tl.constexpr, SOFTPLUS: tl.constexpr, EXTENDED: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Losses of the samples, summed over the outputs, and the gradient of their sum."""
    TILE: tl.constexpr = ROWS * COLUMNS  # noqa: N806
    column = tl.arange(0, COLUMNS)[None, :]
    lanes = tl.arange(0, ROWS)[:, None] * COLUMNS + column
    stack = scratch + tl.program_id(0).to(tl.int64) * room
    for work in range(tl.program_id(0), trees * tiles, tl.num_programs(0)):
        tree = (work // tiles).to(tl.int64)
        rows, place, y, z = _tile(
            outputs + tree * tree_stride, targets + tree // trees_per_group * samples * count, work % tiles * ROWS,
            samples, count, column, LINK, ROWS,
        )  # fmt: skip
        value, pulled = _gradient(
            nodes + tree * width * _NODE, weights + tree * width, tl.load(sizes + tree), tl.load(uses + tree), z, y,
            column, count, extras, stack, lanes, 1.0, LINK, SOFTPLUS, EXTENDED, TILE,
        )  # fmt: skip
        inside = (rows < samples)[:, None] & (column < count)
        total = tl.sum(tl.where(column < count, value, 0.0), axis=1)
        tl.store(values + tree * samples + rows, total, mask=rows < samples)
        tl.store(gradient + tree * samples * count + place, pulled, mask=inside)


@triton.jit(do_not_specialize=["trees", "groups", "tiles", "samples", "count", "width", "tree_stride", "room"])  # type: ignore[untyped-decorator]
def mixed_kernel(  # type: ignore[no-untyped-def]
    nodes, sizes, extras, weights, outputs, targets, tangents, partial, scratch,
    trees, groups, tiles, samples, count, width, tree_stride, room,
    LINK: tl.constexpr, SOFTPLUS: tl.constexpr, EXTENDED: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Gradients of the weights, of the derivative along tangents: one partial sum per tree and group of tiles."""
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
            rows, place, y, z = _tile(
                outputs + tree * tree_stride, targets, tile * ROWS, samples, count, column, LINK, ROWS
            )
            inside = (rows < samples)[:, None] & (column < count)
            u = tl.load(tangents + tree * samples * count + place, mask=column < count, other=0.0)
            f = predictions(z, LINK)
            value, tangent = _tangents(
                tree_nodes, tree_weights, size, z, f, y, u, column, count, extras, stack, kept, lanes,
                LINK, EXTENDED, TILE,
            )  # fmt: skip
            tl.debug_barrier()
            if SOFTPLUS:
                tangent_adjoint = sigmoid(value)
                adjoint = tangent_adjoint * sigmoid(-value) * tangent
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
                    adjoint, tangent_adjoint = unary_adjoints(
                        code, next_weight * next_value, next_weight * next_tangent, value, adjoint, tangent_adjoint,
                        EXTENDED,
                    )  # fmt: skip
                else:
                    tl.store(stack + 2 * depth * TILE + lanes, top)
                    tl.store(stack + (2 * depth + 1) * TILE + lanes, top_d)
                    depth += 1
                    second_weight = tl.load(tree_weights + second)
                    adjoint, tangent_adjoint, top, top_d = binary_adjoints(
                        code, next_weight * next_value, next_weight * next_tangent,
                        second_weight * tl.load(kept + 2 * second * TILE + lanes),
                        second_weight * tl.load(kept + (2 * second + 1) * TILE + lanes), adjoint, tangent_adjoint,
                        EXTENDED,
                    )  # fmt: skip
                # The node's value is no longer needed: its place takes each output's part of the weight's gradient.
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
def descent_kernel(  # type: ignore[no-untyped-def]
    nodes, sizes, uses, extras, weights, outputs, targets, rates, corrections, result, scratch,
    trees, tiles, samples, count, width, tree_stride, room, steps, scale,
    LINK: tl.constexpr, SOFTPLUS: tl.constexpr, EXTENDED: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Outputs after steps of Adam on scale times the sum of the losses."""
    TILE: tl.constexpr = ROWS * COLUMNS  # noqa: N806
    column = tl.arange(0, COLUMNS)[None, :]
    lanes = tl.arange(0, ROWS)[:, None] * COLUMNS + column
    stack = scratch + tl.program_id(0).to(tl.int64) * room
    for work in range(tl.program_id(0), trees * tiles, tl.num_programs(0)):
        tree = (work // tiles).to(tl.int64)
        rows, place, y, z = _tile(
            outputs + tree * tree_stride, targets, work % tiles * ROWS, samples, count, column, LINK, ROWS
        )
        tree_nodes, tree_weights, size = nodes + tree * width * _NODE, weights + tree * width, tl.load(sizes + tree)
        mean = tl.zeros_like(z)
        square_mean = tl.zeros_like(z)
        for step in range(steps):
            # The columns after the last one have no gradient, so they stay where they are.
            _, g = _gradient(
                tree_nodes, tree_weights, size, tl.load(uses + tree), z, y, column, count, extras, stack, lanes, scale,
                LINK, SOFTPLUS, EXTENDED, TILE,
            )  # fmt: skip
            mean += (g - mean) * (1.0 - BETA1)
            square_mean = square_mean * BETA2 + g * g * (1.0 - BETA2)
            divisor = tl.div_rn(tl.sqrt_rn(square_mean), tl.load(corrections + step)) + _STABILISER
            z -= tl.load(rates + step) * tl.div_rn(mean, divisor)
        inside = (rows < samples)[:, None] & (column < count)
        tl.store(result + tree * samples * count + place, z, mask=inside)
