"""A forest on the CPU, by numba: every tree becomes a list of steps, each a vector loop over a strip of elements.

A block of samples lies output by output, `[K, samples]`, so that sums over the outputs run in vector registers too. Its
elements are processed in strips short enough for the cache. A strip's rows hold the values of nodes before they are
multiplied by their weights; what does not depend on f is computed first, in a descent once for all its steps.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.compiled import exp_nonpositive, inner, kernel, log_positive, tanh
from evomal.expression.operators import EPSILON, LARGEST_EXPONENT, OPERATORS
from evomal.forest.numba_terminals import (
    F_ROW,
    LOOPS,
    MINUS_ONE_ROW,
    ONE_ROW,
    PREDICTED,
    PROGRESS_ROW,
    ROWS_BEFORE,
    SEED_ROW,
    SEED_ROW_OF_TERMINAL,
    SLOPES,
    SOFTMAX,
    Y_ROW,
    ZERO_ROW,
    copy,
    copy_extras,
    extra_layers,
    extra_terminals,
    log1p,
    seeds_along,
    through_extras,
    unit_seeds,
)
from evomal.forest.programs import CODE, FIRST, SECOND, Link, Programs, operator_codes
from evomal.forest.terminals import prior_shift
from evomal.threads import kernel_threads

_STRIP = 640  # elements: some tens of rows of them fit the first or second cache
_SWEPT_STRIP = 320  # where every node keeps four rows
_LANES = 16  # a block's samples are filled up to a multiple, which leaves vector loops no remainder
_GROUPS = 16  # sums of the mixed gradient kept apart, so that their order is the same for any number of threads
_WORK_PER_THREAD = 1 << 18  # nodes times elements: two tenths of a millisecond, twice what handing it over costs

_ADD, _SUB, _MUL, _AQ, _MIN, _MAX, _POW, _SIGN, _SQUARE, _ABS, _LOG, _SQRT, _TANH, _ = operator_codes(
    "numba", "add", "sub", "mul", "aq", "min", "max", "pow", "sign", "square", "abs", "log", "sqrt", "tanh", "exp"
)
_TERMINALS_FROM = len(OPERATORS)

# Columns of a step: the operator, its node, its arguments' nodes, the rows of their values, the rows of their slopes.
_OPERATOR, _NODE, _A, _B, _OUT, _A_ROW, _B_ROW, _A_SLOPE, _B_SLOPE, _STEP_WIDTH = range(10)

_NO_DESCENT = -1  # steps: one pass for the gradients, without a step of Adam
_SIGMOID = int(Link.SIGMOID)
_SUMS: dict[str, Any] = {"fastmath": {"nsz", "contract", "reassoc"}, "error_model": "numpy"}


@inner()
def _plan(nodes: Any, size: int, keep: Any, steps: Any, place: Any, slope: Any, depth: Any) -> tuple[int, int]:
    """Write a tree's operators as steps, those that do not depend on f first: the number of those, and of all.

    With `keep` every node has a row of its own. Otherwise every level has two rows, as of the nodes at one depth only
    two, the arguments of one operator, are ever needed together; what a descent keeps for all its steps stays apart.
    """
    deepest = depth[0] = 0
    for i in range(size):
        for column in range(FIRST, SECOND + 1):
            argument = nodes[i, column]
            if argument > 0:
                depth[argument] = depth[i] + 1
                deepest = max(deepest, depth[i] + 1)
                place[argument] = ROWS_BEFORE + 2 * depth[argument] + column - FIRST
    place[0] = ROWS_BEFORE
    kept = ROWS_BEFORE + 2 * (deepest + 1)
    for i in range(size - 1, -1, -1):
        code, first, second = nodes[i, CODE], nodes[i, FIRST], nodes[i, SECOND]
        if code >= _TERMINALS_FROM:
            place[i] = code - _TERMINALS_FROM
            slope[i] = SEED_ROW_OF_TERMINAL[code - _TERMINALS_FROM]
            continue
        if keep:
            place[i] = ROWS_BEFORE + i
        moving = slope[first] != ZERO_ROW or (second > 0 and slope[second] != ZERO_ROW)
        slope[i] = place[i] if moving else ZERO_ROW
        if moving and not keep:
            for argument in (first, second):
                if argument > 0 and slope[argument] == ZERO_ROW and place[argument] >= ROWS_BEFORE:
                    place[argument] = kept
                    kept += 1
    count = settled = 0
    for moving in (False, True):
        for i in range(size - 1, -1, -1):
            if nodes[i, CODE] < _TERMINALS_FROM and (slope[i] != ZERO_ROW) == moving:
                first, second = nodes[i, FIRST], nodes[i, SECOND]
                steps[count, _OPERATOR], steps[count, _NODE] = nodes[i, CODE], i
                steps[count, _A], steps[count, _B], steps[count, _OUT] = first, second, place[i]
                steps[count, _A_ROW], steps[count, _B_ROW] = place[first], place[second]
                steps[count, _A_SLOPE], steps[count, _B_SLOPE] = slope[first], slope[second]
                count += 1
        if not moving:
            settled = count
    return settled, count


@inner(**LOOPS)
def _sign(x: Any, one: Any) -> Any:
    zero = one - one
    return (one if x > zero else zero) - (one if x < zero else zero)


@inner(**LOOPS)
def _share_of_smaller(a: Any, b: Any, one: Any) -> Any:
    """a's share of the gradient of min(a, b); torch gives both arguments all of it where one is NaN."""
    half = one / (one + one)
    return half if a == b else (one - one if a > b else one)


@inner(**LOOPS)
def _exponential(x: Any, one: Any) -> Any:
    """exp(x) for x up to the largest exponent."""
    e = exp_nonpositive(-abs(x))
    return one / e if x > one - one else e


@inner(**LOOPS)
def _log_size(x: Any, epsilon: Any) -> Any:
    """log|x| with |x| at least ε."""
    size = abs(x)
    return log_positive(epsilon if size < epsilon else size)


@inner(**LOOPS)
def _log_size_slope(x: Any, one: Any, epsilon: Any) -> Any:
    return one - one if abs(x) < epsilon else _sign(x, one) / abs(x)


@inner(**LOOPS)
def _evaluate(steps: Any, weights: Any, values: Any, n: int, prior: Any) -> None:
    """The values of what does not depend on f."""
    one, epsilon, largest = values.dtype.type(1), values.dtype.type(EPSILON), values.dtype.type(LARGEST_EXPONENT)
    for step in range(len(steps)):
        operator, out, a, b = steps[step, _OPERATOR], steps[step, _OUT], steps[step, _A_ROW], steps[step, _B_ROW]
        wa, wb = weights[steps[step, _A]], weights[steps[step, _B]]
        if operator == _ADD:
            for s in range(n):
                values[out, s] = wa * values[a, s] + wb * values[b, s]
        elif operator == _SUB:
            for s in range(n):
                values[out, s] = wa * values[a, s] - wb * values[b, s]
        elif operator == _MUL:
            for s in range(n):
                values[out, s] = (wa * values[a, s]) * (wb * values[b, s])
        elif operator == _AQ:
            for s in range(n):
                y = wb * values[b, s]
                values[out, s] = wa * values[a, s] / np.sqrt(one + y * y)
        elif operator == _MIN:
            for s in range(n):
                x, y = wa * values[a, s], wb * values[b, s]
                values[out, s] = x if (x < y) | (x != x) else y
        elif operator == _MAX:
            for s in range(n):
                x, y = wa * values[a, s], wb * values[b, s]
                values[out, s] = x if (x > y) | (x != x) else y
        elif operator == _SIGN:
            for s in range(n):
                values[out, s] = _sign(wa * values[a, s], one)
        elif operator == _SQUARE:
            for s in range(n):
                x = wa * values[a, s]
                values[out, s] = x * x
        elif operator == _ABS:
            for s in range(n):
                values[out, s] = abs(wa * values[a, s])
        elif operator == _LOG:
            for s in range(n):
                values[out, s] = log_positive(abs(wa * values[a, s]) + epsilon)
        elif operator == _SQRT:
            for s in range(n):
                values[out, s] = np.sqrt(abs(wa * values[a, s]) + epsilon)
        elif operator == _TANH:
            for s in range(n):
                values[out, s] = tanh(wa * values[a, s])
        elif prior is None:
            pass
        elif operator == _POW:
            for s in range(n):
                x = wb * values[b, s] * _log_size(wa * values[a, s], epsilon)
                values[out, s] = _exponential(largest if x > largest else x, one)
        else:  # exp
            for s in range(n):
                x = wa * values[a, s]
                values[out, s] = _exponential(largest if x > largest else x, one)


@inner(**LOOPS)
def _differentiate(steps: Any, weights: Any, values: Any, slopes: Any, n: int, prior: Any) -> None:
    """Values, and slopes along the seed: dual numbers."""
    one, epsilon, largest = values.dtype.type(1), values.dtype.type(EPSILON), values.dtype.type(LARGEST_EXPONENT)
    zero, two = one - one, one + one
    for step in range(len(steps)):
        operator, out, a, b = steps[step, _OPERATOR], steps[step, _OUT], steps[step, _A_ROW], steps[step, _B_ROW]
        da, db = steps[step, _A_SLOPE], steps[step, _B_SLOPE]
        wa, wb = weights[steps[step, _A]], weights[steps[step, _B]]
        if operator == _ADD:
            for s in range(n):
                values[out, s] = wa * values[a, s] + wb * values[b, s]
                slopes[out, s] = wa * slopes[da, s] + wb * slopes[db, s]
        elif operator == _SUB:
            for s in range(n):
                values[out, s] = wa * values[a, s] - wb * values[b, s]
                slopes[out, s] = wa * slopes[da, s] - wb * slopes[db, s]
        elif operator == _MUL:
            for s in range(n):
                x, y = wa * values[a, s], wb * values[b, s]
                values[out, s] = x * y
                slopes[out, s] = wa * slopes[da, s] * y + x * (wb * slopes[db, s])
        elif operator == _AQ:
            for s in range(n):
                y = wb * values[b, s]
                root = np.sqrt(one + y * y)
                v, q = wa * values[a, s] / root, one / root
                values[out, s] = v
                slopes[out, s] = q * (wa * slopes[da, s] - v * (y * q) * (wb * slopes[db, s]))
        elif operator == _MIN:
            for s in range(n):
                x, y = wa * values[a, s], wb * values[b, s]
                values[out, s] = x if (x < y) | (x != x) else y
                slopes[out, s] = _share_of_smaller(x, y, one) * (wa * slopes[da, s]) + _share_of_smaller(y, x, one) * (
                    wb * slopes[db, s]
                )
        elif operator == _MAX:
            for s in range(n):
                x, y = wa * values[a, s], wb * values[b, s]
                values[out, s] = x if (x > y) | (x != x) else y
                slopes[out, s] = _share_of_smaller(y, x, one) * (wa * slopes[da, s]) + _share_of_smaller(x, y, one) * (
                    wb * slopes[db, s]
                )
        elif operator == _SIGN:
            for s in range(n):
                values[out, s] = _sign(wa * values[a, s], one)
                slopes[out, s] = zero * slopes[da, s]
        elif operator == _SQUARE:
            for s in range(n):
                x = wa * values[a, s]
                values[out, s] = x * x
                slopes[out, s] = two * x * (wa * slopes[da, s])
        elif operator == _ABS:
            for s in range(n):
                x = wa * values[a, s]
                values[out, s] = abs(x)
                slopes[out, s] = _sign(x, one) * (wa * slopes[da, s])
        elif operator == _LOG:
            for s in range(n):
                x = wa * values[a, s]
                size = abs(x) + epsilon
                values[out, s] = log_positive(size)
                slopes[out, s] = _sign(x, one) / size * (wa * slopes[da, s])
        elif operator == _SQRT:
            for s in range(n):
                x = wa * values[a, s]
                root = np.sqrt(abs(x) + epsilon)
                values[out, s] = root
                slopes[out, s] = _sign(x, one) / (two * root) * (wa * slopes[da, s])
        elif operator == _TANH:
            for s in range(n):
                t = tanh(wa * values[a, s])
                values[out, s] = t
                slopes[out, s] = (one - t * t) * (wa * slopes[da, s])
        elif prior is None:
            pass
        elif operator == _POW:
            for s in range(n):
                x, y = wa * values[a, s], wb * values[b, s]
                logarithm = _log_size(x, epsilon)
                e = y * logarithm
                v = _exponential(largest if e > largest else e, one)
                e_a = y * _log_size_slope(x, one, epsilon)
                values[out, s] = v
                slopes[out, s] = (zero if e > largest else v) * (
                    e_a * (wa * slopes[da, s]) + logarithm * (wb * slopes[db, s])
                )
        else:  # exp
            for s in range(n):
                x = wa * values[a, s]
                v = _exponential(largest if x > largest else x, one)
                values[out, s] = v
                slopes[out, s] = (zero if x > largest else v) * (wa * slopes[da, s])


@inner(**LOOPS)
def _sweep(
    steps: Any, weights: Any, values: Any, slopes: Any, pulls: Any, slope_pulls: Any, sums: Any, n: int, prior: Any
) -> None:  # fmt: skip
    """From the root's down: the pull on every node's value and slope, and with them each edge's gradient.

    For g(a, b) with slopes ȧ, ḃ the slope is g_a ȧ + g_b ḃ, so a pull v on the value and t on the slope give
    a: v g_a + t (g_aa ȧ + g_ab ḃ), ȧ: t g_a, and likewise b and ḃ.
    """
    one, epsilon, largest = values.dtype.type(1), values.dtype.type(EPSILON), values.dtype.type(LARGEST_EXPONENT)
    zero, two = one - one, one + one
    for step in range(len(steps) - 1, -1, -1):
        operator, i, j, k = steps[step, _OPERATOR], steps[step, _NODE], steps[step, _A], steps[step, _B]
        out, a, b = steps[step, _OUT], steps[step, _A_ROW], steps[step, _B_ROW]
        da, db = steps[step, _A_SLOPE], steps[step, _B_SLOPE]
        wa, wb = weights[j], weights[k]
        w = weights[i] if i > 0 else one
        if operator == _ADD:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                pulls[j, s], slope_pulls[j, s] = v, t
                pulls[k, s], slope_pulls[k, s] = v, t
        elif operator == _SUB:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                pulls[j, s], slope_pulls[j, s] = v, t
                pulls[k, s], slope_pulls[k, s] = -v, -t
        elif operator == _MUL:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                x, y = wa * values[a, s], wb * values[b, s]
                pulls[j, s], slope_pulls[j, s] = v * y + t * (wb * slopes[db, s]), t * y
                pulls[k, s], slope_pulls[k, s] = v * x + t * (wa * slopes[da, s]), t * x
        elif operator == _AQ:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                y, dx, dy = wb * values[b, s], wa * slopes[da, s], wb * slopes[db, s]
                q = one / np.sqrt(one + y * y)
                g, c = wa * values[a, s] * q, y * q
                g_ab, g_b = -c * q * q, -g * c * q
                g_bb = g * q * q * (two * c * c - q * q)
                pulls[j, s], slope_pulls[j, s] = v * q + t * (g_ab * dy), t * q
                pulls[k, s], slope_pulls[k, s] = v * g_b + t * (g_ab * dx + g_bb * dy), t * g_b
        elif operator in (_MIN, _MAX):
            direction = one if operator == _MIN else -one
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                x, y = direction * wa * values[a, s], direction * wb * values[b, s]
                of_x, of_y = _share_of_smaller(x, y, one), _share_of_smaller(y, x, one)
                pulls[j, s], slope_pulls[j, s] = of_x * v, of_x * t
                pulls[k, s], slope_pulls[k, s] = of_y * v, of_y * t
        elif operator == _SIGN:
            for s in range(n):
                pulls[j, s], slope_pulls[j, s] = zero, zero
        elif operator == _SQUARE:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                x, dx = wa * values[a, s], wa * slopes[da, s]
                pulls[j, s], slope_pulls[j, s] = two * (v * x + t * dx), two * (t * x)
        elif operator == _ABS:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                sign = _sign(wa * values[a, s], one)
                pulls[j, s], slope_pulls[j, s] = sign * v, sign * t
        elif operator == _LOG:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                x, dx = wa * values[a, s], wa * slopes[da, s]
                g_a = _sign(x, one) / (abs(x) + epsilon)
                pulls[j, s], slope_pulls[j, s] = v * g_a - t * (g_a * g_a * dx), t * g_a
        elif operator == _SQRT:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                x, dx, root = wa * values[a, s], wa * slopes[da, s], values[out, s]
                g_a = _sign(x, one) / (two * root)
                pulls[j, s], slope_pulls[j, s] = v * g_a - t * (g_a * g_a / root * dx), t * g_a
        elif operator == _TANH:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                g, dx = values[out, s], wa * slopes[da, s]
                g_a = one - g * g
                pulls[j, s], slope_pulls[j, s] = v * g_a - t * (two * g * g_a * dx), t * g_a
        elif prior is None:
            pass
        elif operator == _POW:
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                x, y, dx, dy = wa * values[a, s], wb * values[b, s], wa * slopes[da, s], wb * slopes[db, s]
                logarithm, rate = _log_size(x, epsilon), _log_size_slope(x, one, epsilon)
                growth = zero if y * logarithm > largest else values[out, s]
                # With e = y·log|x|, whose derivatives are e_a = y·rate, e_aa = −y·rate², e_ab = rate, e_b = log|x|.
                e_a = y * rate
                along = e_a * dx + logarithm * dy
                g_a, g_b = growth * e_a, growth * logarithm
                g_a_slope = growth * (e_a * along + rate * (dy - e_a * dx))
                g_b_slope = growth * (logarithm * along + rate * dx)
                pulls[j, s], slope_pulls[j, s] = v * g_a + t * g_a_slope, t * g_a
                pulls[k, s], slope_pulls[k, s] = v * g_b + t * g_b_slope, t * g_b
        else:  # exp
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                x, dx = wa * values[a, s], wa * slopes[da, s]
                g_a = zero if x > largest else values[out, s]
                pulls[j, s], slope_pulls[j, s] = g_a * (v + t * dx), t * g_a
        sums[j] += _edge_gradient(pulls, slope_pulls, j, values, a, slopes, da, n)
        if k > 0:
            sums[k] += _edge_gradient(pulls, slope_pulls, k, values, b, slopes, db, n)


@inner(**_SUMS)
def _edge_gradient(
    pulls: Any, slope_pulls: Any, node: int, values: Any, row: int, slopes: Any, slope_row: int, n: int
) -> Any:
    total = values.dtype.type(0)
    if slope_row == ZERO_ROW:
        for s in range(n):
            total += pulls[node, s] * values[row, s]
    else:
        for s in range(n):
            total += pulls[node, s] * values[row, s] + slope_pulls[node, s] * slopes[slope_row, s]
    return total


@inner()
def _read(matrix: Any, start: int, live: int, block: Any) -> None:
    """Rows start to start + live as the columns of a block; columns left over repeat the last row.

    So they are finite wherever the samples are, and cannot spoil a sum that leaves them out by a factor of zero.
    """
    for k in range(block.shape[0]):
        for r in range(live):
            block[k, r] = matrix[start + r, k]
        for r in range(live, block.shape[1]):
            block[k, r] = block[k, live - 1]


@inner(**LOOPS)
def _predict(link: int, outputs: Any, predictions: Any, tops: Any, totals: Any) -> None:
    """f of a block of outputs."""
    real = outputs.dtype.type
    one = real(1)
    if link == SOFTMAX:
        # A NaN may get lost in the largest output; it reaches the total through its exponential.
        tops[:] = -np.inf
        for k in range(len(outputs)):
            for r in range(len(tops)):
                tops[r] = outputs[k, r] if outputs[k, r] > tops[r] else tops[r]
        totals[:] = 0
        for k in range(len(outputs)):
            for r in range(len(tops)):
                e = exp_nonpositive(outputs[k, r] - tops[r])
                predictions[k, r] = e
                totals[r] += e
        for k in range(len(outputs)):
            for r in range(len(tops)):
                predictions[k, r] /= real(totals[r])
    elif link == _SIGMOID:
        for k in range(len(outputs)):
            for r in range(len(tops)):
                e = exp_nonpositive(-abs(outputs[k, r]))
                predictions[k, r] = (e if outputs[k, r] < one - one else one) / (one + e)
    else:
        for k in range(len(outputs)):
            for r in range(len(tops)):
                predictions[k, r] = outputs[k, r]


@inner(**LOOPS)
def _through_link(link: int, predictions: Any, directions: Any, totals: Any) -> None:
    """Multiply by ∂f/∂outputs in place; it is symmetric, so this takes tangents forward and gradients back."""
    real = predictions.dtype.type
    if link == SOFTMAX:
        totals[:] = 0
        for k in range(len(predictions)):
            for r in range(len(totals)):
                totals[r] += predictions[k, r] * directions[k, r]
        for k in range(len(predictions)):
            for r in range(len(totals)):
                directions[k, r] = predictions[k, r] * (directions[k, r] - real(totals[r]))
    elif link == _SIGMOID:
        one = real(1)
        for k in range(len(predictions)):
            for r in range(len(totals)):
                directions[k, r] *= predictions[k, r] * (one - predictions[k, r])


@inner(**LOOPS)
def _activate(softplus: bool, values: Any, slopes: Any, losses: Any, gradients: Any) -> None:
    """The root's value and slope behind the activation."""
    if softplus:
        one = values.dtype.type(1)
        zero = one - one
        for s in range(len(losses)):
            x = values[s]
            e = exp_nonpositive(-abs(x))
            losses[s] = (zero if x < zero else x) + log1p(e, one)
            gradients[s] = (e if x < zero else one) / (one + e) * slopes[s]
    else:
        for s in range(len(losses)):
            losses[s] = values[s]
            gradients[s] = slopes[s]


@inner(**LOOPS)
def _seed(softplus: bool, values: Any, slopes: Any, start: int, stride: int, live: int, pulls: Any, t: Any) -> None:
    """The pulls on the root's value and slope, for the sum of the slopes behind the activation of the live samples."""
    one = values.dtype.type(1)
    zero = one - one
    for s in range(len(pulls)):
        pulls[s], t[s] = zero, one
    if softplus:
        for s in range(len(pulls)):
            e = exp_nonpositive(-abs(values[s]))
            sigmoid = (e if values[s] < zero else one) / (one + e)
            pulls[s], t[s] = sigmoid * (one - sigmoid) * slopes[s], sigmoid
    if live < stride:
        for s in range(len(pulls)):
            if (start + s) % stride >= live:
                pulls[s] = t[s] = zero


@inner()
def _strips(rows: int, columns: int, width: int, dtype: Any) -> Any:
    """Rows for values and for slopes, the first ones filled, and room for a plan."""
    values, slopes = np.empty((rows, columns), dtype), np.empty((rows, columns), dtype)
    values[ONE_ROW], values[MINUS_ONE_ROW] = 1, -1
    slopes[SEED_ROW], slopes[ZERO_ROW] = 1, 0
    steps, room = np.empty((width, _STEP_WIDTH), np.int32), np.zeros((3, width), np.int32)
    return values, slopes, steps, room


@inner()
def _first_and_last(sizes: Any, units: int, share: int, shares: int) -> tuple[int, int]:
    """The range of (tree, unit) pairs that are one thread's share; a tree's cost grows with its size."""
    total = 0
    for p in range(len(sizes)):
        total += (sizes[p] + _LANES) * units
    first, last, done = -1, 0, 0
    for p in range(len(sizes)):
        for unit in range(units):
            if done * shares // total == share:
                first = p * units + unit if first < 0 else first
                last = p * units + unit + 1
            done += sizes[p] + _LANES
    return max(first, 0), last


@inner(**LOOPS)
def _adam(outputs: Any, gradients: Any, first: Any, second: Any, scale: float, lr: float, step: int) -> None:
    """One step of Adam, its operations in torch's order."""
    real = outputs.dtype.type
    step_size = real(lr / (1 - 0.9**step))
    root_correction, epsilon, factor = real(np.sqrt(1 - 0.999**step)), real(1e-8), real(scale)
    towards, decay, share = real(1 - 0.9), real(0.999), real(1 - 0.999)
    for k in range(outputs.shape[0]):
        for r in range(outputs.shape[1]):
            g = factor * gradients[k, r]
            first[k, r] += towards * (g - first[k, r])
            second[k, r] = decay * second[k, r] + share * g * g
            outputs[k, r] -= step_size * first[k, r] / (np.sqrt(second[k, r]) / root_correction + epsilon)


@kernel(**LOOPS)
def _gradients(
    nodes: Any, sizes: Any, uses: Any, prior: Any, shifts: Any, progress: float, weights: Any, outputs: Any,
    targets: Any, link: int, softplus: bool, samples: int, steps_down: int, lr: float, scale: float, losses: Any,
    results: Any, share: int, shares: int,
) -> None:  # fmt: skip
    """Fill in one thread's share of losses [P, B] and results [P, B, K], in blocks of `samples` samples.

    The results are the outputs after `steps_down` steps of Adam, or with `_NO_DESCENT` the gradients. One kernel for
    both, as a kernel is compiled together with all that it calls, which takes seconds.
    """
    width, (_, batch, classes) = nodes.shape[1], targets.shape
    elements, blocks = classes * samples, -(-batch // samples)
    values, slopes, steps, room = _strips(ROWS_BEFORE + 2 * width + 2, min(_STRIP, elements), width, weights.dtype)
    block = np.empty((7, classes, samples), weights.dtype)
    logits, f, y, costs, directions, momentum, spread = (
        block[0], block[1], block[2], block[3], block[4], block[5], block[6],
    )  # fmt: skip
    tops, totals = np.empty(samples, weights.dtype), np.empty(samples)
    settled = count = 0
    planned = -1
    if prior is not None:
        layers, rivals = extra_layers(classes, samples, prior, weights.dtype)
        values[PROGRESS_ROW] = progress
    first, last = _first_and_last(sizes, blocks, share, shares)
    for unit in range(first, last):
        p, start = unit // blocks, unit % blocks * samples
        live = min(samples, batch - start)
        if p != planned:
            # Not a literal, for which numba would compile the plan once more.
            settled, count = _plan(nodes[p], sizes[p], np.bool_(False), steps, room[0], room[1], room[2])
            planned = p
            if prior is not None:
                slopes[SEED_ROW] = 1  # the tree before may have had others
        _read(outputs[min(p, len(outputs) - 1)], start, live, logits)
        _read(targets[p * len(targets) // len(sizes)], start, live, y)
        if steps_down > 0:
            momentum[:] = 0
            spread[:] = 0
        for step in range(1, abs(steps_down) + 1):
            _predict(link, logits, f, tops, totals)
            passes, found = 1, directions
            if prior is not None:
                predicted = uses[p] & PREDICTED
                if predicted:
                    extra_terminals(link, predicted, logits, shifts, layers, rivals, tops, totals)
                    directions[:] = 0
                    passes, found = 3 if link == SOFTMAX else 1, layers[SLOPES]
            for number in range(passes):
                if prior is not None:  # noqa: SIM102 (numba drops a branch on this condition alone)
                    if predicted:
                        if link == SOFTMAX and not predicted & (1 << number):
                            continue
                        unit_seeds(link, 1 << number, f, layers)
                for begin in range(0, elements, _STRIP):
                    n = min(_STRIP, elements - begin)
                    copy(f, begin, values[F_ROW], n)
                    if prior is not None:
                        copy_extras(uses[p], layers, begin, values, slopes, n)
                    if step == 1 or elements > _STRIP:
                        copy(y, begin, values[Y_ROW], n)
                        _evaluate(steps[:settled], weights[p], values, n, prior)
                    _differentiate(steps[settled:count], weights[p], values, slopes, n, prior)
                    _activate(
                        softplus, values[room[0, 0]], slopes[room[1, 0]],
                        costs.reshape(-1)[begin : begin + n], found.reshape(-1)[begin : begin + n],
                    )  # fmt: skip
                if prior is None:
                    _through_link(link, f, directions, totals)
                elif predicted:
                    through_extras(link, 1 << number, f, layers, rivals, found, directions, totals)
                else:
                    _through_link(link, f, directions, totals)
            if steps_down > 0:
                _adam(logits, directions, momentum, spread, scale, lr, step)
        totals[:] = 0
        for k in range(classes):
            for r in range(samples):
                totals[r] += costs[k, r]
        result = directions if steps_down == _NO_DESCENT else logits
        for r in range(live):
            losses[p, start + r] = totals[r]
            for k in range(classes):
                results[p, start + r, k] = result[k, r]


@kernel(**LOOPS)
def _mixed(
    nodes: Any, sizes: Any, uses: Any, prior: Any, shifts: Any, progress: float, weights: Any, outputs: Any,
    targets: Any, tangents: Any, link: int, softplus: bool, samples: int, sums: Any, share: int, shares: int,
) -> None:  # fmt: skip
    """Add up one thread's share of the edges' gradients, sums [P, groups of blocks, N]."""
    width, (_, batch, classes), groups = nodes.shape[1], targets.shape, sums.shape[1]
    elements, blocks = classes * samples, -(-batch // samples)
    columns = min(_SWEPT_STRIP, elements)
    values, slopes, steps, room = _strips(ROWS_BEFORE + width, columns, width, weights.dtype)
    pulls, slope_pulls = np.empty((width, columns), weights.dtype), np.empty((width, columns), weights.dtype)
    block = np.empty((4, classes, samples), weights.dtype)
    logits, f, y, directions = block[0], block[1], block[2], block[3]
    tops, totals = np.empty(samples, weights.dtype), np.empty(samples)
    if prior is not None:
        layers, rivals = extra_layers(classes, samples, prior, weights.dtype)
        values[PROGRESS_ROW] = progress
    first, last = _first_and_last(sizes, groups, share, shares)
    for unit in range(first, last):
        p, group = unit // groups, unit % groups
        settled, count = _plan(nodes[p], sizes[p], np.bool_(True), steps, room[0], room[1], room[2])
        for place in range(blocks * group // groups, blocks * (group + 1) // groups):
            start = place * samples
            live = min(samples, batch - start)
            _read(outputs[min(p, len(outputs) - 1)], start, live, logits)
            _read(targets[p * len(targets) // len(sizes)], start, live, y)
            _read(tangents[p], start, live, directions)
            _predict(link, logits, f, tops, totals)
            if prior is None:
                _through_link(link, f, directions, totals)
            elif uses[p] & PREDICTED:
                extra_terminals(link, uses[p], logits, shifts, layers, rivals, tops, totals)
                seeds_along(link, uses[p], f, directions, layers, rivals, totals)
            else:
                _through_link(link, f, directions, totals)
            for begin in range(0, elements, _SWEPT_STRIP):
                n = min(_SWEPT_STRIP, elements - begin)
                copy(f, begin, values[F_ROW], n)
                copy(y, begin, values[Y_ROW], n)
                copy(directions, begin, slopes[SEED_ROW], n)
                if prior is not None:
                    copy_extras(uses[p], layers, begin, values, slopes, n)
                _evaluate(steps[:settled], weights[p], values, n, prior)
                _differentiate(steps[settled:count], weights[p], values, slopes, n, prior)
                _seed(
                    softplus, values[room[0, 0]], slopes[room[1, 0]], begin, samples, live, pulls[0, :n], slope_pulls[0]
                )
                _sweep(steps[:count], weights[p], values, slopes, pulls, slope_pulls, sums[p, group], n, prior)


def gradients(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link, *, softplus: bool
) -> tuple[Tensor, Tensor]:
    """Losses [P, B] of the samples, summed over the outputs, and the gradient [P, B, K] of their sum."""
    return _by_gradients(programs, weights, outputs, targets, link, softplus, steps=_NO_DESCENT, lr=0.0, scale=1.0)


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
    _in_shares(_mixed, (*arrays, directions, int(link), softplus, samples, sums), arrays, 3)
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
    """Losses, and what `_gradients` says of the results."""
    losses = weights.new_empty(programs.count, targets.shape[-2])
    results = weights.new_empty(programs.count, *targets.shape[-2:])
    arrays = _arrays(programs, weights, outputs, targets, link)
    numbers = (_samples_per_block(*targets.shape[-2:]), steps, float(lr), float(scale))
    arguments = (*arrays, int(link), softplus, *numbers, losses.numpy(), results.numpy())
    _in_shares(_gradients, arguments, arrays, abs(steps))
    return losses, results


def _arrays(programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link) -> tuple[Any, ...]:
    """What every kernel begins with; shared outputs, and targets of all trees, are a single layer.

    Without a prior, numba compiles the kernels for the paper's tokens only, which leaves their speed as it was.
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
    """About a strip's worth of samples, in whole vectors, and alike for all blocks."""
    fitting = max(_LANES, _STRIP // classes // _LANES * _LANES)
    blocks = max(1, -(-batch // fitting))
    return max(1, -(-batch // (blocks * _LANES))) * _LANES


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
