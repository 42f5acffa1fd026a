"""Trees as lists of steps, by numba: each step is one operator and a vector loop over a strip of elements.

A strip's rows hold the values of nodes before they are multiplied by their weights. The slope of a node is its
derivative along the direction in which f moves. The pull on a value or slope is its adjoint: the derivative of the
result by it.
"""

from typing import Any

import numpy as np

from evomal.compiled import exp_nonpositive, inner, log_positive, tanh
from evomal.expression.operators import EPSILON, LARGEST_EXPONENT, OPERATORS
from evomal.forest.codes import CODE, FIRST, SECOND, operator_codes
from evomal.forest.numba_terminals import LOOPS, ROWS_BEFORE, SEED_ROW_OF_TERMINAL, ZERO_ROW

_ADD, _SUB, _MUL, _AQ, _MIN, _MAX, _POW, _SIGN, _SQUARE, _ABS, _LOG, _SQRT, _TANH, _ = operator_codes(
    "numba", "add", "sub", "mul", "aq", "min", "max", "pow", "sign", "square", "abs", "log", "sqrt", "tanh", "exp"
)
_TERMINALS_FROM = len(OPERATORS)

# Columns of a step: the operator, its node, its arguments' nodes, the rows of their values, the rows of their slopes.
_OPERATOR, _NODE, _A, _B, _OUT, _A_ROW, _B_ROW, _A_SLOPE, _B_SLOPE, STEP_WIDTH = range(10)

_SUMS: dict[str, Any] = {"fastmath": {"nsz", "contract", "reassoc"}, "error_model": "numpy"}


@inner()
def plan(nodes: Any, size: int, keep: Any, steps: Any, place: Any, slope: Any, depth: Any) -> tuple[int, int]:
    """Write a tree's operators as steps, those that do not depend on f first; return the number of those, and of all.

    With `keep` every node has a row of its own. Otherwise every level has two rows, as of the nodes at one depth only
    two, the arguments of one operator, are ever needed together; values that a descent uses in all its steps get rows
    of their own.
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
def differentiate(steps: Any, weights: Any, values: Any, slopes: Any, n: int, prior: Any) -> None:
    """Values, and slopes along the seed: dual numbers."""
    one, epsilon, largest = values.dtype.type(1), values.dtype.type(EPSILON), values.dtype.type(LARGEST_EXPONENT)
    zero, two = one - one, one + one
    for step in range(len(steps)):
        operator, out, a, b = steps[step, _OPERATOR], steps[step, _OUT], steps[step, _A_ROW], steps[step, _B_ROW]
        da, db = steps[step, _A_SLOPE], steps[step, _B_SLOPE]
        wa, wb = weights[steps[step, _A]], weights[steps[step, _B]]
        if operator in (_ADD, _SUB):
            wb = wb if operator == _ADD else -wb
            for s in range(n):
                values[out, s] = wa * values[a, s] + wb * values[b, s]
                slopes[out, s] = wa * slopes[da, s] + wb * slopes[db, s]
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
        elif operator in (_MIN, _MAX):
            direction = one if operator == _MIN else -one
            for s in range(n):
                x, y = wa * values[a, s], wb * values[b, s]
                values[out, s] = x if (direction * x < direction * y) | (x != x) else y
                of_x = _share_of_smaller(direction * x, direction * y, one)
                of_y = _share_of_smaller(direction * y, direction * x, one)
                slopes[out, s] = of_x * (wa * slopes[da, s]) + of_y * (wb * slopes[db, s])
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
        elif prior is None:  # the paper's operators end here; numba drops the branches below
            pass
        elif operator == _POW:
            for s in range(n):
                x, y = wa * values[a, s], wb * values[b, s]
                logarithm = _log_size(x, epsilon)
                e = y * logarithm
                v = _exponential(largest if e > largest else e, one)
                values[out, s] = v
                e_a = y * _log_size_slope(x, one, epsilon)
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
def sweep(
    steps: Any, weights: Any, values: Any, slopes: Any, pulls: Any, slope_pulls: Any, sums: Any, n: int, prior: Any
) -> None:  # fmt: skip
    """From the root down: the pull on every node's value and slope, and with them each edge's gradient.

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
        if operator in (_ADD, _SUB):
            direction = one if operator == _ADD else -one
            for s in range(n):
                v, t = w * pulls[i, s], w * slope_pulls[i, s]
                pulls[j, s], slope_pulls[j, s] = v, t
                pulls[k, s], slope_pulls[k, s] = direction * v, direction * t
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
        elif prior is None:  # the paper's operators end here; numba drops the branches below
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
