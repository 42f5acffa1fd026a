"""The shape of a loss: its value and gradient over the probability or the error, beside the task loss."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evomal.checks import whole_number
from evomal.figures import style
from evomal.figures.data import single_precision, with_gradient
from evomal.figures.loss_properties import Line, Property, properties_of, scanned
from evomal.figures.style import GREY, FloatArray
from evomal.losses import CrossEntropyLoss, SquaredErrorLoss
from evomal.losses.contract import Kind
from evomal.losses.loss import Loss

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    """The loss of one sample, without class weights."""

    kind: Kind
    classes: int
    positions: FloatArray
    """The probability p of the target class, or of the label (multilabel), or the error f - y (regression)."""
    curves: tuple[Curve, ...]
    """The loss with its gradient by the target's logit, or by f: one curve, or one for each y."""
    outputs: tuple[Curve, ...]
    """For classification losses that are sums over outputs: what an output of probability p adds as the target and as
    any other class, with the gradient by p."""
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
        """Return all curves as columns of a table."""
        columns = {self.position_name: self.positions.tolist()}
        for curve in (*self.curves, *self.outputs, *self.references):
            columns[f"{curve.name}: value"] = curve.value.tolist()
            columns[f"{curve.name}: gradient"] = curve.gradient.tolist()
        return columns


def loss_shape(loss: Loss, *, points: int = 201, classes: int = 10) -> LossShape:
    """Sample a loss in double precision and find its properties.

    Args:
        loss: The loss. Classification is sampled over the target's probability p from 0.001 to 0.999, where the other
            classes share the rest equally; multilabel over the label's probability, at y = 1 and 0; regression over
            f - y from -3 to 3, at y = -1, 0 and 1, all standardised if the loss has units.
        points: The number of positions.
        classes: The number of classes.

    Returns:
        The curves, those of the task loss beside them, and the properties.

    Raises:
        InputError: If there are too few points or classes.

    Example:
        >>> from evomal.losses import named_loss
        >>> shape = loss_shape(named_loss("mse"), points=3)
        >>> shape.curves[1].value.tolist()  # at y = 0, over the errors -3, 0 and 3
        [9.0, 0.0, 9.0]
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
    """Return the curves of a shape and those of single outputs, without the properties, which take far longer."""
    places = _places(loss.kind, positions)
    curves = tuple(Curve(line.name, *line.evaluated(places)) for line in _lines(loss, classes))
    return curves, _outputs(loss, positions)


def shape_positions(kind: Kind, *, points: int, classes: int) -> FloatArray:
    """Return the probabilities, or errors, at which losses of a kind are sampled."""
    whole_number("points", points, at_least=3)
    whole_number("classes", classes, at_least=2)
    if kind == "regression":
        return np.linspace(-_LARGEST_ERROR, _LARGEST_ERROR, points)
    return np.linspace(_SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY, points)


def are_equal(curves: Sequence[Curve]) -> bool:
    """Return whether all curves have the same values."""
    return all(np.allclose(curve.value, curves[0].value, equal_nan=True) for curve in curves)


def _places(kind: Kind, positions: FloatArray) -> FloatArray:
    """The positions as lines take them: errors, or log-odds."""
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
    if loss.kind != "classification" or not loss.is_learned:
        return ()
    targets = {"target's output": 1, "another output": 0}
    return tuple(Curve(name, *with_gradient(_output(loss, y), probabilities)) for name, y in targets.items())


def _output(loss: Loss, target: int) -> Callable[[Tensor], Tensor]:
    return lambda probability: loss.output_cost(probability, target, 2)


_HEIGHT = 2.5
_UNLIKE = 10.0  # times: from here on one of the two lines would look flat beside the other
_FAR_OFF = 2.0  # times the loss's span

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
    """Draw a loss and its gradient beside the task loss.

    Args:
        shape: What `loss_shape` returned.

    Returns:
        A figure of page width. If the scales differ tenfold, the task loss is multiplied by a power of ten.

    Example:
        >>> from evomal.losses import named_loss
        >>> figure = draw_loss(loss_shape(named_loss("focal")))
    """
    figure = style.new_figure("page", _HEIGHT)
    learned, scale = _distinct(shape), _reference_scale(shape)
    references = [
        Curve(_scaled(curve.name, scale), curve.value * scale, curve.gradient * scale) for curve in shape.references
    ]
    with style.figure_style():
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
    """The curves under their names in the legend; a single one if all are equal."""
    first = shape.curves[0]
    if len(shape.curves) == 1:
        return [Curve("this loss", first.value, first.gradient)]
    if are_equal(shape.curves):
        return [Curve("this loss, any $y$", first.value, first.gradient)]
    names = [curve.name.replace("y = ", "$y$ = ").replace("-", "−") for curve in shape.curves]
    return [
        Curve(f"this loss, {name}", curve.value, curve.gradient)
        for name, curve in zip(names, shape.curves, strict=True)
    ]


def _reference_scale(shape: LossShape) -> float:
    """The power of ten that brings the task loss to the scale of the loss, if the two are far apart."""
    ratio = _largest_span(shape.curves) / _largest_span(shape.references)
    if ratio == 0 or 1 / _UNLIKE < ratio < _UNLIKE:
        return 1.0
    return float(10.0 ** round(math.log10(ratio)))


def _lowered(curves: Sequence[Curve], span: float) -> list[Curve]:
    """The curves, each moved to zero if it lies so far off that it would look flat."""
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
    styled = (*zip(curves, style.LINE_STYLES, strict=False), *zip(references, _REFERENCE_STYLES, strict=False))
    for curve, (colour, dashes) in styled:
        drawn.append(single_precision(getattr(curve, quantity)))
        # References lie below, though the legend names them last.
        axes.plot(
            shape.positions, drawn[-1], color=colour, linestyle=dashes, label=curve.name, zorder=1 + (colour != GREY)
        )
    axes.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    axes.set_xlim(np.round(shape.positions[0], 2), np.round(shape.positions[-1], 2))
    axes.set_ylim(*style.axis_limits(np.concatenate(drawn)))


def _largest_span(curves: Sequence[Curve]) -> float:
    return max(_span(curve.value) for curve in curves)


def _span(values: FloatArray) -> float:
    finite = _finite(values)
    return float(np.ptp(np.quantile(finite, (0.02, 0.98)))) if finite.size else 0.0


def _finite(values: FloatArray) -> FloatArray:
    values = single_precision(values)
    return values[np.isfinite(values)]
