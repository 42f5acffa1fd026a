"""A forest on the CPU, by numba: every tree becomes a list of steps, each a vector loop over a strip of elements.

A block of samples lies output by output, `[K, samples]`, so that sums over the outputs run in vector registers too. Its
elements are processed in strips short enough for the cache. What does not depend on f is computed first, in a descent
once for all its steps.
"""

from typing import Any

import numpy as np

from evomal.compiled import exp_nonpositive, inner, kernel
from evomal.forest.numba_steps import STEP_WIDTH, differentiate, plan, sweep
from evomal.forest.numba_terminals import (
    F_ROW,
    LOOPS,
    MINUS_ONE_ROW,
    ONE_ROW,
    PREDICTED,
    PROGRESS_ROW,
    ROWS_BEFORE,
    SEED_ROW,
    SLOPES,
    SOFTMAX,
    Y_ROW,
    ZERO_ROW,
    copy,
    copy_extras,
    extra_layers,
    extra_terminals,
    log1p,
    predict,
    seeds_along,
    through_extras,
    through_link,
    unit_seeds,
)

STRIP = 640  # elements: some tens of rows of them fit the first or second cache
_SWEPT_STRIP = 320  # where every node keeps four rows
LANES = 16  # a block's samples are filled up to a multiple, which leaves vector loops no remainder
NO_DESCENT = -1  # steps: one pass for the gradients, without a step of Adam


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
def _activate(softplus: bool, values: Any, slopes: Any, losses: Any, gradients: Any) -> None:
    """The root's value and slope after the activation."""
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
    """The pulls on the root's value and slope by the sum of the slopes after the activation, over the live samples."""
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
    steps, room = np.empty((width, STEP_WIDTH), np.int32), np.zeros((3, width), np.int32)
    return values, slopes, steps, room


@inner()
def _first_and_last(sizes: Any, units: int, share: int, shares: int) -> tuple[int, int]:
    """The range of (tree, unit) pairs that are one thread's share; a tree's cost grows with its size."""
    total = 0
    for p in range(len(sizes)):
        total += (sizes[p] + LANES) * units
    first, last, done = -1, 0, 0
    for p in range(len(sizes)):
        for unit in range(units):
            if done * shares // total == share:
                first = p * units + unit if first < 0 else first
                last = p * units + unit + 1
            done += sizes[p] + LANES
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
def gradients_kernel(
    nodes: Any, sizes: Any, uses: Any, prior: Any, shifts: Any, progress: float, weights: Any, outputs: Any,
    targets: Any, link: int, softplus: bool, samples: int, steps_down: int, lr: float, scale: float, losses: Any,
    results: Any, share: int, shares: int,
) -> None:  # fmt: skip
    """Fill in one thread's share of losses [P, B] and results [P, B, K], in blocks of `samples` samples.

    The results are the outputs after `steps_down` steps of Adam, or with `NO_DESCENT` the gradients. One kernel for
    both, as a kernel is compiled together with all that it calls, which takes seconds.
    """
    width, (_, batch, classes) = nodes.shape[1], targets.shape
    elements, blocks = classes * samples, -(-batch // samples)
    values, slopes, steps, room = _strips(ROWS_BEFORE + 2 * width + 2, min(STRIP, elements), width, weights.dtype)
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
            settled, count = plan(nodes[p], sizes[p], np.bool_(False), steps, room[0], room[1], room[2])
            planned = p
            if prior is not None:
                slopes[SEED_ROW] = 1  # the tree before may have had others
        _read(outputs[min(p, len(outputs) - 1)], start, live, logits)
        _read(targets[p * len(targets) // len(sizes)], start, live, y)
        if steps_down > 0:
            momentum[:] = 0
            spread[:] = 0
        for step in range(1, abs(steps_down) + 1):
            predict(link, logits, f, tops, totals)
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
                for begin in range(0, elements, STRIP):
                    n = min(STRIP, elements - begin)
                    copy(f, begin, values[F_ROW], n)
                    if prior is not None:
                        copy_extras(uses[p], layers, begin, values, slopes, n)
                    if step == 1 or elements > STRIP:
                        copy(y, begin, values[Y_ROW], n)
                        differentiate(steps[:settled], weights[p], values, slopes, n, prior)
                    differentiate(steps[settled:count], weights[p], values, slopes, n, prior)
                    _activate(
                        softplus, values[room[0, 0]], slopes[room[1, 0]],
                        costs.reshape(-1)[begin : begin + n], found.reshape(-1)[begin : begin + n],
                    )  # fmt: skip
                if prior is None:
                    through_link(link, f, directions, totals)
                elif predicted:
                    through_extras(link, 1 << number, f, layers, rivals, found, directions, totals)
                else:
                    through_link(link, f, directions, totals)
            if steps_down > 0:
                _adam(logits, directions, momentum, spread, scale, lr, step)
        totals[:] = 0
        for k in range(classes):
            for r in range(samples):
                totals[r] += costs[k, r]
        result = directions if steps_down == NO_DESCENT else logits
        for r in range(live):
            losses[p, start + r] = totals[r]
            for k in range(classes):
                results[p, start + r, k] = result[k, r]


@kernel(**LOOPS)
def mixed_kernel(
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
        settled, count = plan(nodes[p], sizes[p], np.bool_(True), steps, room[0], room[1], room[2])
        for place in range(blocks * group // groups, blocks * (group + 1) // groups):
            start = place * samples
            live = min(samples, batch - start)
            _read(outputs[min(p, len(outputs) - 1)], start, live, logits)
            _read(targets[p * len(targets) // len(sizes)], start, live, y)
            _read(tangents[p], start, live, directions)
            predict(link, logits, f, tops, totals)
            if prior is None:
                through_link(link, f, directions, totals)
            elif uses[p] & PREDICTED:
                extra_terminals(link, uses[p], logits, shifts, layers, rivals, tops, totals)
                seeds_along(link, uses[p], f, directions, layers, rivals, totals)
            else:
                through_link(link, f, directions, totals)
            for begin in range(0, elements, _SWEPT_STRIP):
                n = min(_SWEPT_STRIP, elements - begin)
                copy(f, begin, values[F_ROW], n)
                copy(y, begin, values[Y_ROW], n)
                copy(directions, begin, slopes[SEED_ROW], n)
                if prior is not None:
                    copy_extras(uses[p], layers, begin, values, slopes, n)
                differentiate(steps[:settled], weights[p], values, slopes, n, prior)
                differentiate(steps[settled:count], weights[p], values, slopes, n, prior)
                _seed(
                    softplus, values[room[0, 0]], slopes[room[1, 0]], begin, samples, live, pulls[0, :n], slope_pulls[0]
                )
                sweep(steps[:count], weights[p], values, slopes, pulls, slope_pulls, sums[p, group], n, prior)
