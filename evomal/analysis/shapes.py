"""The shape of a loss: value with gradient, over the probability or the error."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evomal.analysis.line_scans import FloatArray, Line, scanned, with_gradient
from evomal.analysis.loss_properties import Property, properties_of
from evomal.errors import InputError
from evomal.losses.contract import Kind, Loss
from evomal.losses.elementwise import ElementwiseLoss
from evomal.losses.task_losses import CrossEntropyLoss, SquaredErrorLoss

_TARGETS = (-1.0, 0.0, 1.0)
_LARGEST_ERROR = 3.0
_SMALLEST_PROBABILITY = 1e-3


@dataclass(frozen=True)
class Curve:
    """A loss along the positions of a shape."""

    name: str
    value: FloatArray
    gradient: FloatArray


@dataclass(frozen=True)
class LossShape:
    """What one sample costs, without class weights."""

    kind: Kind
    classes: int
    positions: FloatArray
    """The probability p of the target class, or of the label (multilabel), or the error f - y (regression)."""
    curves: tuple[Curve, ...]
    """The loss with its gradient by the target's logit, or by f: one curve, or one for each y."""
    outputs: tuple[Curve, ...]
    """What an output of probability p adds as target and as any other class, with the gradient by p; of classification
    losses that are sums over outputs."""
    references: tuple[Curve, ...]
    """The task loss: cross-entropy or squared error."""
    range_of_validity: tuple[Property, ...]
    is_standardised: bool = False
    """Whether f and y are in standardised units, because the loss was learned in them."""

    @property
    def position_name(self) -> str:
        """What the positions are."""
        return "f - y" if self.kind == "regression" else "p"

    def columns(self) -> dict[str, list[float]]:
        """All curves as columns of a table."""
        columns = {self.position_name: self.positions.tolist()}
        for curve in (*self.curves, *self.outputs, *self.references):
            columns[f"{curve.name}: value"] = curve.value.tolist()
            columns[f"{curve.name}: gradient"] = curve.gradient.tolist()
        return columns


def loss_shape(loss: Loss, *, points: int = 201, classes: int = 10) -> LossShape:
    """Sample a loss in double precision.

    Classification: over the target's probability p from 0.001 to 0.999, the other classes sharing the rest equally.
    Multilabel: over the label's probability, at y of 1 and 0. Regression: over f - y from -3 to 3, at y of -1, 0 and 1,
    all of them standardised where the loss has units.
    """
    positions = shape_positions(loss.kind, points=points, classes=classes)
    places, lines = _places(loss.kind, positions), _lines(loss, classes)
    curves, outputs = loss_curves(loss, positions, classes=classes)
    return LossShape(
        kind=loss.kind,
        classes=classes,
        positions=positions,
        curves=curves,
        outputs=outputs,
        references=_references(loss.kind, classes, places),
        range_of_validity=tuple(properties_of(loss.kind, classes, [scanned(line, places) for line in lines])),
        is_standardised=loss.units is not None,
    )


def loss_curves(loss: Loss, positions: FloatArray, *, classes: int = 10) -> tuple[tuple[Curve, ...], tuple[Curve, ...]]:
    """The curves of a shape and those of its outputs alone, without the properties, which take far longer."""
    places = _places(loss.kind, positions)
    curves = tuple(Curve(line.name, *line.evaluated(places)) for line in _lines(loss, classes))
    return curves, _outputs(loss, positions)


def shape_positions(kind: Kind, *, points: int, classes: int) -> FloatArray:
    """The probabilities, or errors, at which losses of a kind are sampled."""
    if points < 3:
        raise InputError(f"points must be at least 3 but got {points}")
    if classes < 2:
        raise InputError(f"classes must be at least 2 but got {classes}")
    if kind == "regression":
        return np.linspace(-_LARGEST_ERROR, _LARGEST_ERROR, points)
    return np.linspace(_SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY, points)


def error_curves(loss: Loss, errors: FloatArray) -> tuple[Curve, ...]:
    """A regression loss over the error: one curve for each of three targets."""
    return tuple(Curve(line.name, *line.evaluated(errors)) for line in _lines(loss, classes=0))


def _places(kind: Kind, positions: FloatArray) -> FloatArray:
    """Where lines are evaluated that belong to the positions: errors, or log-odds."""
    return positions if kind == "regression" else np.log(positions) - np.log1p(-positions)


def _lines(loss: Loss, classes: int) -> list[Line]:
    if loss.kind == "regression":
        return [Line(f"y = {y:g}", _regression(loss, y), goal=0.0) for y in _TARGETS]
    if loss.kind == "multilabel":
        return [Line(f"y = {bit}", _binary(loss, bit), goal=np.inf if bit else -np.inf) for bit in (1, 0)]
    return [Line("sample", _classification(loss, classes), goal=np.inf)]


def _references(kind: Kind, classes: int, places: FloatArray) -> tuple[Curve, ...]:
    if kind == "regression":
        anywhere = _lines(SquaredErrorLoss(), classes)[0]
        return (Curve("squared error", *anywhere.evaluated(places)),)
    names = {"classification": ["cross-entropy"], "multilabel": ["cross-entropy, y = 1", "cross-entropy, y = 0"]}[kind]
    lines = _lines(CrossEntropyLoss(kind=kind), classes)
    return tuple(Curve(name, *line.evaluated(places)) for name, line in zip(names, lines, strict=True))


def _classification(loss: Loss, classes: int) -> Callable[[Tensor], Tensor]:
    def loss_at(log_odds: Tensor) -> Tensor:
        # The others' logits are 0, so that together they weigh as much as one logit of log(C - 1).
        target = log_odds.unsqueeze(1) + np.log(classes - 1)
        logits = torch.cat((target, torch.zeros(len(log_odds), classes - 1, dtype=log_odds.dtype)), dim=1)
        return loss.of_classes(logits, torch.zeros(len(log_odds), dtype=torch.int64), None)

    return loss_at


def _binary(loss: Loss, bit: int) -> Callable[[Tensor], Tensor]:
    return lambda log_odds: loss.of_bits(log_odds, torch.full_like(log_odds, bit, dtype=torch.int64))


def _regression(loss: Loss, target: float) -> Callable[[Tensor], Tensor]:
    return lambda error: loss.of_values(error + target, torch.full_like(error, target))


def _outputs(loss: Loss, probabilities: FloatArray) -> tuple[Curve, ...]:
    if loss.kind != "classification" or not isinstance(loss, ElementwiseLoss):
        return ()
    targets = {"target's output": 1.0, "another output": 0.0}
    return tuple(Curve(name, *with_gradient(_output(loss, y), probabilities)) for name, y in targets.items())


def _output(loss: ElementwiseLoss, target: float) -> Callable[[Tensor], Tensor]:
    return lambda probability: loss.value(probability, torch.full_like(probability, target))
