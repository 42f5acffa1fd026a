"""The shape of a loss: value with gradient, over the probability or the error."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.figures.scans import FloatArray, Line, Property, properties_of, scanned, single_precision, with_gradient
from evomal.figures.style import GREY, LINE_STYLES, figure_style, new_figure
from evomal.losses.contract import Kind, Loss
from evomal.losses.elementwise import ElementwiseLoss
from evomal.losses.standard import CrossEntropyLoss, SquaredErrorLoss

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


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 2.5
_UNLIKE = 10.0  # times: from here on one of the two lines would look flat beside the other
_FAR_OFF = 2.0  # times the loss's span
_FAR_OUT = 4.0  # times the span of all but the outermost values
_MARGIN = 0.06

_POSITION = {
    "classification": "probability $p$ of the target class",
    "multilabel": "probability $p$ of the label",
    "regression": "error $f - y$ (units of $y$)",
}
_VALUE = {
    "classification": "loss of a sample",
    "multilabel": "loss of a label",
    "regression": "loss of a sample",
}
_GRADIENT = {
    "classification": "gradient by the target's logit",
    "multilabel": "gradient by the label's logit",
    "regression": "gradient by $f$ (per unit of $y$)",
}
_UNITS = "standardised"
_REFERENCE_STYLES: tuple[tuple[str, Any], ...] = ((GREY, "-"), (GREY, (0, (4, 1.6))))


def draw_loss(shape: LossShape) -> "Figure":
    """A figure of page width; where the scales differ tenfold, the task loss is drawn times a power of ten."""
    figure = new_figure("page", _HEIGHT)
    learned, scale = _distinct(shape), _reference_scale(shape)
    references = [
        Curve(_scaled(curve.name, scale), curve.value * scale, curve.gradient * scale) for curve in shape.references
    ]
    with figure_style():
        of_value, of_gradient = figure.subplots(1, 2, gridspec_kw={"wspace": 0.08})
        of_value.set_ylabel(_VALUE[shape.kind])
        of_gradient.set_ylabel(_in_units(_GRADIENT[shape.kind], shape))
        for axes in (of_value, of_gradient):
            axes.set_xlabel(_in_units(_POSITION[shape.kind], shape))
        _draw(of_value, shape, "value", _lowered([*learned, *shape.outputs], _largest_span(learned)), references)
        _draw(of_gradient, shape, "gradient", learned, references)
        handles, labels = of_value.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def _in_units(label: str, shape: LossShape) -> str:
    return label.replace("per unit of $y$", _UNITS).replace("units of $y$", _UNITS) if shape.is_standardised else label


def _distinct(shape: LossShape) -> list[Curve]:
    """The curves under the names the legend gives them, and one for all where they lie upon each other."""
    if len(shape.curves) == 1:
        return [Curve("this loss", shape.curves[0].value, shape.curves[0].gradient)]
    first = shape.curves[0]
    if all(np.allclose(curve.value, first.value, equal_nan=True) for curve in shape.curves):
        return [Curve("this loss, any $y$", first.value, first.gradient)]
    names = [curve.name.replace("y = ", "$y$ = ").replace("-", "−") for curve in shape.curves]
    return [
        Curve(f"this loss, {name}", curve.value, curve.gradient)
        for name, curve in zip(names, shape.curves, strict=True)
    ]


def _reference_scale(shape: LossShape) -> float:
    """The power of ten that brings the task loss to the size of the loss, where the two are far apart."""
    ratio = _largest_span(shape.curves) / _largest_span(shape.references)
    if ratio == 0 or 1 / _UNLIKE < ratio < _UNLIKE:
        return 1.0
    return float(10.0 ** round(math.log10(ratio)))


def _lowered(curves: Sequence[Curve], span: float) -> list[Curve]:
    """The curves, each moved down or up to zero if it lies so far off that the span would look flat."""
    moved = []
    for curve in curves:
        finite = _finite(curve.value)
        is_far_off = finite.size > 0 and abs(np.median(finite)) > _FAR_OFF * span > 0
        lowest = float(finite.min()) if is_far_off else 0.0
        name = f"{curve.name} {'+' if lowest < 0 else '−'} {abs(lowest):.4g}" if lowest else curve.name
        moved.append(Curve(name, curve.value - lowest, curve.gradient))
    return moved


def _scaled(name: str, scale: float) -> str:
    name = name.replace("y = ", "$y$ = ")
    return name if scale == 1 else f"{name} × $10^{{{round(math.log10(scale))}}}$"


def _draw(axes: "Axes", shape: LossShape, quantity: str, curves: Sequence[Curve], references: Sequence[Curve]) -> None:
    drawn = []
    styled = (*zip(curves, LINE_STYLES, strict=False), *zip(references, _REFERENCE_STYLES, strict=False))
    for curve, (colour, dashes) in styled:
        drawn.append(single_precision(getattr(curve, quantity)))
        # References lie below, though the legend names them last.
        axes.plot(
            shape.positions, drawn[-1], color=colour, linestyle=dashes, label=curve.name, zorder=1 + (colour != GREY)
        )
    axes.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    axes.set_xlim(np.round(shape.positions[0], 2), np.round(shape.positions[-1], 2))
    axes.set_ylim(*_limits(np.concatenate(drawn)))


def _limits(values: FloatArray) -> tuple[float, float]:
    """All values, or all but the outermost where those lie so far out that the rest would be a flat line."""
    values = _finite(values)
    low, high = values.min(), values.max()
    inner_low, inner_high = np.quantile(values, (0.02, 0.98))
    if high - low > _FAR_OUT * (inner_high - inner_low) > 0:
        low, high = inner_low, inner_high
    margin = _MARGIN * ((high - low) or 1.0)
    return float(low - margin), float(high + margin)


def _largest_span(curves: Sequence[Curve]) -> float:
    return max(_span(curve.value) for curve in curves)


def _span(values: FloatArray) -> float:
    finite = _finite(values)
    return float(np.ptp(np.quantile(finite, (0.02, 0.98)))) if finite.size else 0.0


def _finite(values: FloatArray) -> FloatArray:
    values = single_precision(values)
    return values[np.isfinite(values)]
