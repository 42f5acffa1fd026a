"""The terminals of a block of samples, by numba: f by its link, and those beyond the paper's.

The terminals of a sample's outputs depend on each other through softmax and through the largest logit. Trees stay
elementwise nevertheless: a pass computes the slopes by the terminals of one group, and `through_extras` takes these to
the outputs.
"""

import math
from typing import Any

import numpy as np

from evomal.compiled import exp_nonpositive, inner, log_positive
from evomal.expression.operators import BALANCED, LOG_PROBABILITY, MARGIN, PREDICTION, TERMINALS
from evomal.forest.codes import PREDICTED as PREDICTED_USES
from evomal.forest.codes import Link, Use

# Rows that every strip begins with, in the order of the terminals. A leaf has no row of its own; all slopes of what
# does not depend on the model's outputs are one row.
Y_ROW, F_ROW, ONE_ROW, MINUS_ONE_ROW, LOG_ROW, BALANCED_ROW, MARGIN_ROW, PRIOR_ROW, PROGRESS_ROW = range(9)
ROWS_BEFORE = len(TERMINALS)
SEED_ROW, ZERO_ROW, LOG_SEED_ROW, BALANCED_SEED_ROW, MARGIN_SEED_ROW = range(5)
_SEED_ROWS = {
    PREDICTION: SEED_ROW, LOG_PROBABILITY: LOG_SEED_ROW, BALANCED: BALANCED_SEED_ROW, MARGIN: MARGIN_SEED_ROW,
}  # fmt: skip
SEED_ROW_OF_TERMINAL = tuple(_SEED_ROWS.get(token, ZERO_ROW) for token in TERMINALS)

# Layers of what a block of samples has besides f: values, the balanced probabilities, and the seeds of slopes.
(
    _LOGP,
    _BLOGP,
    _MARGINS,
    _PRIORS,
    _BALANCED_F,
    _F_SEEDS,
    _LOG_SEEDS,
    _BALANCED_SEEDS,
    _MARGIN_SEEDS,
    SLOPES,
    _LAYERS,
) = range(11)
_OWN, _BALANCED, _MARGIN, _CONSTANT, PREDICTED = map(
    int, (Use.OWN, Use.BALANCED, Use.MARGIN, Use.CONSTANT, PREDICTED_USES)
)

SOFTMAX, _SIGMOID = int(Link.SOFTMAX), int(Link.SIGMOID)
# No "contract": fused, w·a − w·a would leave a remainder, and its sign or logarithm would be another than torch's.
LOOPS: dict[str, Any] = {"fastmath": {"nsz"}, "error_model": "numpy"}


@inner()
def copy(block: Any, begin: int, row: Any, n: int) -> None:
    """The block's elements from `begin` on; a loop, as numba takes seconds to compile a slice's assignment."""
    elements = block.reshape(block.size)
    for s in range(n):
        row[s] = elements[begin + s]


@inner(**LOOPS)
def log1p(e: Any, one: Any) -> Any:
    """log(1 + e) for 0 ≤ e ≤ 1, by way of what 1 + e was rounded to, which keeps the digits of a small e."""
    above = one + e
    return e if above == one else log_positive(above) * (e / (above - one))


@inner(**LOOPS)
def _softmax(logits: Any, probabilities: Any, tops: Any, totals: Any) -> None:
    """Probabilities of a block, the largest logits and the totals of the exponentials."""
    real = logits.dtype.type
    # A NaN may get lost in the largest logit; it reaches the total through its exponential.
    tops[:] = -np.inf
    for k in range(len(logits)):
        for r in range(len(tops)):
            tops[r] = logits[k, r] if logits[k, r] > tops[r] else tops[r]
    totals[:] = 0
    for k in range(len(logits)):
        for r in range(len(tops)):
            e = exp_nonpositive(logits[k, r] - tops[r])
            probabilities[k, r] = e
            totals[r] += e
    for k in range(len(logits)):
        for r in range(len(tops)):
            probabilities[k, r] /= real(totals[r])


@inner(**LOOPS)
def predict(link: int, outputs: Any, predictions: Any, tops: Any, totals: Any) -> None:
    """f of a block of outputs; for softmax also the largest output and the total of the exponentials of each sample."""
    one = outputs.dtype.type(1)
    if link == SOFTMAX:
        _softmax(outputs, predictions, tops, totals)
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
def through_link(link: int, predictions: Any, directions: Any, totals: Any) -> None:
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
def _shifted_by_total(logits: Any, result: Any, tops: Any, totals: Any) -> None:
    """Log-probabilities, from the largest logits and the totals of the exponentials, which become logarithms."""
    real = logits.dtype.type
    for r in range(len(tops)):
        totals[r] = math.log(totals[r])
    for k in range(len(logits)):
        for r in range(len(tops)):
            result[k, r] = (logits[k, r] - tops[r]) - real(totals[r])


@inner(**LOOPS)
def _log_sigmoid(logits: Any, result: Any, complements: Any) -> None:
    """Log-probabilities of labels, and the probabilities of their absence; the result may be the logits' memory."""
    one = logits.dtype.type(1)
    zero = one - one
    for k in range(logits.shape[0]):
        for r in range(logits.shape[1]):
            z = logits[k, r]
            e = exp_nonpositive(-abs(z))
            result[k, r] = (z if z < zero else zero) - log1p(e, one)
            complements[k, r] = (one if z < zero else e) / (one + e)


@inner(**LOOPS)
def extra_terminals(
    link: int, uses: int, logits: Any, shifts: Any, layers: Any, rivals: Any, tops: Any, totals: Any
) -> None:
    """The predictions other than f of a block, and what their slopes need; `tops` and `totals` are those of f.

    For softmax that is the balanced probabilities, and for the margins the positions of the largest and the second
    largest logit. For sigmoid it is the derivatives of each prediction by its own logit, kept in the layers of the
    balanced probabilities and of the seed of logp.
    """
    softmax = link == SOFTMAX
    if uses & _OWN:
        if softmax:
            _shifted_by_total(logits, layers[_LOGP], tops, totals)
        else:
            _log_sigmoid(logits, layers[_LOGP], layers[_LOG_SEEDS])
    if uses & _BALANCED:
        balanced = layers[_BLOGP]
        for k in range(len(logits)):
            for r in range(len(tops)):
                balanced[k, r] = logits[k, r] + shifts[k]
        if softmax:
            _softmax(balanced, layers[_BALANCED_F], tops, totals)
            _shifted_by_total(balanced, balanced, tops, totals)
        else:
            _log_sigmoid(balanced, balanced, layers[_BALANCED_F])
    if uses & _MARGIN:
        margins = layers[_MARGINS]
        if not softmax:
            for k in range(len(logits)):
                for r in range(len(tops)):
                    margins[k, r] = logits[k, r]
            return
        for r in range(len(tops)):
            first, second = 0, -1
            for k in range(1, len(logits)):
                if logits[k, r] > logits[first, r] or logits[k, r] != logits[k, r]:
                    first, second = k, first
                elif second < 0 or logits[k, r] > logits[second, r]:
                    second = k
            rivals[0, r], rivals[1, r] = first, second
        for k in range(len(logits)):
            for r in range(len(tops)):
                margins[k, r] = logits[k, r] - logits[rivals[1, r] if k == rivals[0, r] else rivals[0, r], r]


@inner(**LOOPS)
def unit_seeds(link: int, group: int, f: Any, layers: Any) -> None:
    """The seeds of a pass: the slopes of the predictions along the variable that `through_extras` starts from.

    For softmax that is the prediction of the group itself, and logp for the group of f and logp, as no output of a
    softmax depends on its own logit alone. For sigmoid it is the logit, in one pass for all predictions.
    """
    one = f.dtype.type(1)
    zero = one - one
    own = one if group == _OWN else zero
    balanced = one if group == _BALANCED else zero
    margin = one if group == _MARGIN else zero
    for k in range(f.shape[0]):
        for r in range(f.shape[1]):
            if link == SOFTMAX:
                layers[_F_SEEDS, k, r] = own * f[k, r]
                layers[_LOG_SEEDS, k, r] = own
                layers[_BALANCED_SEEDS, k, r] = balanced
                layers[_MARGIN_SEEDS, k, r] = margin
            else:
                layers[_F_SEEDS, k, r] = f[k, r] * (one - f[k, r])
                layers[_BALANCED_SEEDS, k, r] = layers[_BALANCED_F, k, r]
                layers[_MARGIN_SEEDS, k, r] = one


@inner(**LOOPS)
def seeds_along(link: int, uses: int, f: Any, tangents: Any, layers: Any, rivals: Any, totals: Any) -> None:
    """The slopes of the predictions along tangents of the outputs."""
    real = f.dtype.type
    one = real(1)
    if link != SOFTMAX:
        for k in range(f.shape[0]):
            for r in range(f.shape[1]):
                u = tangents[k, r]
                layers[_F_SEEDS, k, r] = f[k, r] * (one - f[k, r]) * u
                layers[_LOG_SEEDS, k, r] *= u
                layers[_BALANCED_SEEDS, k, r] = layers[_BALANCED_F, k, r] * u
                layers[_MARGIN_SEEDS, k, r] = u
        return
    if uses & _OWN:
        totals[:] = 0
        for k in range(f.shape[0]):
            for r in range(f.shape[1]):
                totals[r] += f[k, r] * tangents[k, r]
        for k in range(f.shape[0]):
            for r in range(f.shape[1]):
                layers[_LOG_SEEDS, k, r] = tangents[k, r] - real(totals[r])
                layers[_F_SEEDS, k, r] = f[k, r] * layers[_LOG_SEEDS, k, r]
    if uses & _BALANCED:
        totals[:] = 0
        for k in range(f.shape[0]):
            for r in range(f.shape[1]):
                totals[r] += layers[_BALANCED_F, k, r] * tangents[k, r]
        for k in range(f.shape[0]):
            for r in range(f.shape[1]):
                layers[_BALANCED_SEEDS, k, r] = tangents[k, r] - real(totals[r])
    if uses & _MARGIN:
        for k in range(f.shape[0]):
            for r in range(f.shape[1]):
                rival = rivals[1, r] if k == rivals[0, r] else rivals[0, r]
                layers[_MARGIN_SEEDS, k, r] = tangents[k, r] - tangents[rival, r]


@inner(**LOOPS)
def through_extras(
    link: int, group: int, f: Any, layers: Any, rivals: Any, slopes: Any, result: Any, totals: Any
) -> None:
    """Add the gradient by the outputs of one group's predictions, from the slopes by them.

    With slopes s the gradients are s − p·Σs for log-probabilities, where p are the probabilities, and for margins s
    minus the slopes of the margins that the largest and the second largest logit are subtracted in.
    """
    real = f.dtype.type
    if link == SOFTMAX:
        totals[:] = 0
        for k in range(f.shape[0]):
            for r in range(f.shape[1]):
                totals[r] += slopes[k, r]
        probabilities = f if group == _OWN else layers[_BALANCED_F]
        if group != _MARGIN:
            for k in range(f.shape[0]):
                for r in range(f.shape[1]):
                    result[k, r] -= probabilities[k, r] * real(totals[r])
        else:
            for r in range(f.shape[1]):
                first, second = rivals[0, r], rivals[1, r]
                result[first, r] -= real(totals[r] - slopes[first, r])
                result[second, r] -= slopes[first, r]
    for k in range(f.shape[0]):
        for r in range(f.shape[1]):
            result[k, r] += slopes[k, r]


@inner()
def extra_layers(classes: int, samples: int, prior: Any, dtype: Any) -> Any:
    """Room for what a block has besides f, and for the places of its two largest logits."""
    layers, rivals = np.empty((_LAYERS, classes, samples), dtype), np.empty((2, samples), np.int64)
    for k in range(len(prior)):
        for r in range(samples):
            layers[_PRIORS, k, r] = prior[k]
    return layers, rivals


@inner()
def copy_extras(uses: int, layers: Any, begin: int, values: Any, slopes: Any, n: int) -> None:
    """A strip's rows of what trees use besides f and y."""
    if uses & _OWN:
        copy(layers[_LOGP], begin, values[LOG_ROW], n)
        copy(layers[_LOG_SEEDS], begin, slopes[LOG_SEED_ROW], n)
        copy(layers[_F_SEEDS], begin, slopes[SEED_ROW], n)
    if uses & _BALANCED:
        copy(layers[_BLOGP], begin, values[BALANCED_ROW], n)
        copy(layers[_BALANCED_SEEDS], begin, slopes[BALANCED_SEED_ROW], n)
    if uses & _MARGIN:
        copy(layers[_MARGINS], begin, values[MARGIN_ROW], n)
        copy(layers[_MARGIN_SEEDS], begin, slopes[MARGIN_SEED_ROW], n)
    if uses & _CONSTANT:
        copy(layers[_PRIORS], begin, values[PRIOR_ROW], n)
