"""Whether an expression can be a loss at all, known from its values on a grid before anything is trained.

A grid has F predictions, T targets and Q distributions over the targets. For every distribution the expected loss must
be least at a right prediction: near the target in regression, with the most probable class ahead in classification.
What falls without bound, has its minimum elsewhere or does not depend on the prediction breaks this one rule.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evomal.expression import Expression
from evomal.forest import Forest
from evomal.forest.codes import Link

_LEAST_LEAD = 1e-6  # relative and absolute: a smaller difference of two losses is rounding, as of terms that cancel
_ELEMENTS = 1 << 22  # elements of the gradients that are in memory at once
_LARGEST = 1e30  # stands for infinity, which times a probability of zero would be NaN

# Standardised targets with noise of standard deviation 0.5, and outputs on a fine grid and far out. The targets avoid 0
# and 1, where a formula that is sound everywhere else may be special. Without noise the minimum could be a cusp in a
# single point, which no training would notice.
_TARGETS = tuple(round(-3.3 + 0.5 * step, 1) for step in range(14))
_CENTRES = _TARGETS[2:-2]
_NOISE = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
_OUTPUTS = tuple(step / 4 for step in range(-20, 21))
_FAR = (7.0, 10.0, 30.0, 100.0, 1000.0, 10000.0)
_FINITE_WITHIN = 10.0  # outputs that a training may pass

# Probabilities of a class, or of a 1.
_SHARES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0)
_FIRST_OF_TWO = (0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)  # as some losses are least just above 0.5
_TIE = 1e-6
_LEAST_LOGIT = -40.0  # of a probability that counts as zero


@dataclass(frozen=True)
class Grid:
    """Predictions and targets on which losses are compared, and which predictions are right for which targets."""

    outputs: Tensor
    """`[F, K]`: the predictions, as raw outputs of a model."""
    targets: Tensor
    """`[T]`: the targets, as a task has them."""
    alike: Tensor
    """`[F, T]`: the first target for which the prediction costs the same, so that it is computed once."""
    distributions: Tensor
    """`[Q, T]`: the probability of each target."""
    right: Tensor
    """`[Q, F]`: whether a prediction is right for a distribution."""
    wrong: Tensor
    """`[Q, F]`: whether it is wrong; some are neither."""
    must_be_finite: Tensor
    """`[F]`: whether values and gradients must be finite there, as training may pass it."""
    sentence: Callable[[int, int], str]
    """What is wrong with a loss whose expected value for distribution q is least at prediction f."""


class Admissibility:
    """The grid of one kind of task on a device, and the reasons why expressions cannot be losses of that kind."""

    def __init__(
        self, kind: str, outputs: int, *, activation: str, device: torch.device, dtype: torch.dtype
    ) -> None:  # fmt: skip
        link = Link.of(kind, outputs)
        # Without a softmax every output is by itself, so that one is enough.
        self._outputs = outputs if link is Link.SOFTMAX else 1
        self._kind, self._activation, self._device, self._dtype = kind, activation, device, dtype
        grid = _grid(link, outputs)
        targets = len(grid.targets)
        pairs = grid.alike + targets * torch.arange(len(grid.alike))[:, None]
        computed, place = torch.unique(pairs, return_inverse=True)
        self._sentence = grid.sentence
        self._predictions = grid.outputs[computed // targets].to(device, dtype)
        self._targets = grid.targets[computed % targets].to(device)
        self._must_be_finite = grid.must_be_finite[computed // targets].to(device)
        self._place = place.to(device)
        """`[F, T]`: where the loss of a prediction and a target is among those computed."""
        self._distributions = grid.distributions.to(device, dtype)
        self._right, self._wrong = grid.right.to(device), grid.wrong.to(device)

    def reasons(self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]]) -> list[str]:
        """Why each expression is inadmissible, in a sentence; empty if it is admissible."""
        size = max(1, _ELEMENTS // self._predictions.numel())
        parts = (slice(start, start + size) for start in range(0, len(expressions), size))
        return list(itertools.chain.from_iterable(self._reasons(expressions[part], weights[part]) for part in parts))

    def expected(
        self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]]
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """`[P, Q, F]`: expected losses; `[P]`: whether values and gradients are finite wherever training may pass."""
        forest = Forest(
            expressions, kind=self._kind, outputs=self._outputs, activation=self._activation, device=self._device
        )
        packed = forest.programs.packed(weights, dtype=self._dtype)
        values, gradients = forest.of_samples(self._predictions, self._targets, packed)
        is_finite = ((values + gradients.sum(2)).isfinite() | ~self._must_be_finite).all(1)
        # Far out a value may be NaN, of which nothing is known; it must not be taken for the minimum.
        costs = values.nan_to_num(_LARGEST, _LARGEST, -_LARGEST)[:, self._place]
        # Not a matrix product, which may round to half precision, and differently for another number of candidates.
        shares = self._distributions[:, :, None]
        expected = costs.new_zeros(len(costs), *self._right.shape)
        for target in range(shares.shape[1]):
            expected.addcmul_(costs[:, None, :, target], shares[:, target])
        return expected, is_finite

    def _reasons(self, expressions: Sequence[Expression], weights: Sequence[Sequence[float]]) -> list[str]:
        expected, is_finite = self.expected(expressions, weights)
        at_right = expected.masked_fill(~self._right, math.inf).amin(2)
        at_wrong, place = expected.masked_fill(~self._wrong, math.inf).min(2)
        is_broken = at_wrong <= at_right + _LEAST_LEAD * (1 + at_right.abs() + at_wrong.abs())
        first = is_broken.byte().argmax(1)
        found = is_finite, is_broken.any(1), first, place.gather(1, first[:, None])[:, 0]
        return [self._reason(*row) for row in torch.stack(found, 1).tolist()]

    def _reason(self, is_finite: int, is_broken: int, distribution: int, prediction: int) -> str:
        if not is_finite:
            return "its values or gradients are not finite"
        return self._sentence(distribution, prediction) if is_broken else ""


def _grid(link: Link, outputs: int) -> Grid:
    if link is Link.SOFTMAX:
        return of_classes(outputs)
    return of_bits() if link is Link.SIGMOID else of_values()


def of_values() -> Grid:
    """The grid of regression: outputs as they are, and standardised targets."""
    far = torch.tensor(_FAR)
    outputs = torch.cat((-far.flip(0), torch.tensor(_OUTPUTS), far))
    distributions = torch.zeros(len(_CENTRES), len(_TARGETS))
    for row, first in zip(distributions, range(len(_CENTRES)), strict=True):
        row[first : first + len(_NOISE)] = torch.tensor(_NOISE)
    centres = torch.tensor(_CENTRES)[:, None]
    # Wide enough for losses that shrink outputs, which can be worth it on few rows.
    right = (outputs - centres).abs() <= 0.5 + 0.5 * centres.abs()

    def sentence(distribution: int, prediction: int) -> str:
        return (
            f"for targets around {_CENTRES[distribution]:g} it is no higher at the output {outputs[prediction]:g} "
            "than near them"
        )

    is_near = outputs.abs() <= _FINITE_WITHIN
    alike = _all_different(len(outputs), len(_TARGETS))
    return Grid(outputs[:, None], torch.tensor(_TARGETS), alike, distributions, right, ~right, is_near, sentence)


def of_bits() -> Grid:
    """The grid of a single probability, for binary and multilabel tasks."""
    positives = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 1.0])
    predictions = torch.tensor((0.0, *_SHARES))
    right = ((predictions > 0.5) == (positives[:, None] > 0.5)) & (predictions != 0.5)

    def sentence(distribution: int, prediction: int) -> str:
        return (
            f"for a label that is 1 with probability {positives[distribution]:g} it is no higher at the prediction "
            f"{predictions[prediction]:g} than on the label's side of 0.5"
        )

    logits = predictions.logit().clamp(_LEAST_LOGIT, -_LEAST_LOGIT)
    distributions = torch.stack((1 - positives, positives), 1)
    everywhere = torch.ones(len(predictions), dtype=torch.bool)
    alike = _all_different(len(predictions), 2)
    return Grid(logits[:, None], torch.tensor([0, 1]), alike, distributions, right, ~right, everywhere, sentence)


def of_classes(classes: int) -> Grid:
    """The grid of a softmax, in which the first class is the most probable one: all classes are alike to a loss.

    Beyond the third class all have equal probabilities, so that one target stands for them.
    """
    uniform = torch.full((classes,), 1 / classes)
    vertices = torch.eye(classes)[: min(3, classes)]
    pairs = [share * vertices[0] + (1 - share) * vertices[1] for share in _FIRST_OF_TWO]
    likely = [
        *(_blended(vertices[0], uniform, noise) for noise in (0.0, 0.2, 0.4, 0.6)),
        *(_blended(pair, uniform, noise) for pair in pairs[-4:] for noise in (0.0, 0.2)),
    ]
    if classes > 2:
        likely.append(torch.einsum("c,cd->d", torch.tensor([0.4, 0.3, 0.3]), vertices))
    predictions = torch.stack(
        [
            uniform,
            *(_blended(vertices[0], uniform, 1 - share) for share in _SHARES),
            *(_blended(vertex, uniform, 1 - share) for vertex in vertices[1:] for share in (0.1, 0.3, 0.6, 1.0)),
            *((1 - vertex) / (classes - 1) for vertex in vertices),
            *pairs,
            *(_blended(pair, uniform, 0.2) for pair in pairs[2:9]),
            *likely,
        ]
    )
    probabilities = torch.stack(likely)
    representatives = torch.arange(min(4, classes))
    count_of = torch.tensor([1.0, 1.0, 1.0, classes - 3.0])[: len(representatives)]
    ahead = predictions[:, 0] - predictions[:, 1:].amax(1)
    is_clear = (probabilities[:, 0] - probabilities[:, 1:].amax(1))[:, None] > 0.25
    right = (ahead > _TIE).expand(len(likely), -1)
    wrong = (ahead < -_TIE) | (is_clear & ~right)
    alike = torch.tensor([[row.index(value) for value in row] for row in predictions[:, representatives].tolist()])

    def sentence(distribution: int, prediction: int) -> str:
        return (
            f"for classes of probability {_listed(probabilities[distribution])} it is no higher at the prediction "
            f"{_listed(predictions[prediction])} than with the first class ahead"
        )

    logits = predictions.log().clamp(min=_LEAST_LOGIT)
    everywhere = torch.ones(len(predictions), dtype=torch.bool)
    distributions = probabilities[:, representatives] * count_of
    return Grid(logits, representatives, alike, distributions, right, wrong, everywhere, sentence)


def _all_different(predictions: int, targets: int) -> Tensor:
    return torch.arange(targets).expand(predictions, -1)


def _blended(distribution: Tensor, uniform: Tensor, noise: float) -> Tensor:
    return (1 - noise) * distribution + noise * uniform


def _listed(probabilities: Tensor) -> str:
    shown = ", ".join(f"{value:.2g}" for value in probabilities[:4].tolist())
    return f"({shown}, …)" if len(probabilities) > 4 else f"({shown})"
