"""The shape of a loss: its value and gradient over the probability or the error, beside the task loss."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.checks import MOST_CLASSES, MOST_POINTS, Kind, whole_number
from evomal.figures import style
from evomal.figures.data import single_precision, with_gradient
from evomal.figures.loss_properties import Line, Property, properties_of, scanned
from evomal.figures.style import GREY, Axes, Figure, FloatArray
from evomal.losses import CrossEntropyLoss, SquaredErrorLoss
from evomal.losses.loss import Loss
from evomal.losses.priors import PriorLoss

_GOALS: dict[Kind, dict[int, float]] = {
    "regression": {-1: 0.0, 0: 0.0, 1: 0.0},
    "multilabel": {1: np.inf, 0: -np.inf},
    "classification": {1: np.inf},
}
"""The targets y at which a loss is sampled, and where it should be lowest: by the error, or by the log-odds of p."""
_LARGEST_ERROR = 3.0
_SMALLEST_PROBABILITY = 1e-3


@dataclass(frozen=True)
class Curve:
    """A loss and its gradient at the positions of a shape."""

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
    if loss.kind != "classification" or not loss.is_learned:
        return curves, ()
    outputs = {"target's output": 1, "another output": 0}
    return curves, tuple(output_curve(name, loss, y, positions, classes=2) for name, y in outputs.items())


def output_curve(name: str, loss: Loss, y: int, probabilities: FloatArray, *, classes: int) -> Curve:
    """Return what one output adds to a loss for classification, over its probability and with the gradient by it."""
    return Curve(name, *with_gradient(lambda p: loss.output_cost(p, y, classes), probabilities))


def shape_positions(kind: Kind, *, points: int, classes: int) -> FloatArray:
    """Return the probabilities, or errors, at which losses of a kind are sampled."""
    whole_number("points", points, at_least=3, at_most=MOST_POINTS)
    whole_number("classes", classes, at_least=2, at_most=MOST_CLASSES)
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
    return [
        Line("sample" if loss.kind == "classification" else f"y = {y}", _loss_of_sample(loss, y, classes), goal)
        for y, goal in _GOALS[loss.kind].items()
    ]


def _loss_of_sample(loss: Loss, y: int, classes: int) -> Callable[[Tensor], Tensor]:
    """The loss as a function of the error, or of the log-odds; class weights and priors are left out of it."""
    if isinstance(loss, PriorLoss):
        loss = loss.with_priors(None)

    def loss_at(place: Tensor) -> Tensor:
        if loss.kind == "regression":
            return loss.of_values(place + y, torch.full_like(place, y))
        if loss.kind == "multilabel":
            return loss.of_bits(place, torch.full_like(place, y, dtype=torch.int64))
        # The others' logits are 0, so that together they weigh as much as one logit of log(C - 1).
        target = place.unsqueeze(1) + np.log(classes - 1)
        logits = torch.cat((target, torch.zeros(len(place), classes - 1, dtype=place.dtype)), dim=1)
        return loss.of_classes(logits, torch.zeros(len(place), dtype=torch.int64), None)

    return loss_at


def _references(kind: Kind, classes: int, places: FloatArray) -> tuple[Curve, ...]:
    lines = _lines(SquaredErrorLoss() if kind == "regression" else CrossEntropyLoss(kind=kind), classes)
    if kind == "multilabel":
        return tuple(Curve(f"cross-entropy, {line.name}", *line.evaluated(places)) for line in lines)
    name = "squared error" if kind == "regression" else "cross-entropy"  # the same at any y
    return (Curve(name, *lines[0].evaluated(places)),)


_HEIGHT = 2.5
_UNLIKE = 10.0  # times: from here on one of the two lines would look flat beside the other
_FAR_OFF = 2.0  # times the loss's span
_LABELS: dict[Kind, tuple[str, str, str]] = {
    "classification": (
        "probability $p$ of the target class", "loss of a sample", "gradient by the target's logit",
    ),
    "multilabel": ("probability $p$ of the label", "loss of a label", "gradient by the label's logit"),
    "regression": ("error $f - y$ (units of $y$)", "loss of a sample", "gradient by $f$ (per unit of $y$)"),
}  # fmt: skip
"""What position, value and gradient are."""
_REFERENCE_STYLES: tuple[tuple[str, Any], ...] = ((GREY, "-"), (GREY, (0, (4, 1.6))))


@style.figure_style()
def draw_loss(shape: LossShape) -> Figure:
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
    learned, scale = _distinct(shape), reference_scale(shape)
    times = "" if scale == 1 else f" × $10^{{{round(math.log10(scale))}}}$"
    references = [Curve(f"{one.name}{times}", one.value * scale, one.gradient * scale) for one in shape.references]
    lowered = _lowered([*learned, *shape.outputs], _largest_span(learned))
    position, *labels = _LABELS[shape.kind]
    if shape.is_standardised:
        position, labels[1] = position.replace("units of $y$", "standardised"), "gradient by $f$ (standardised)"
    of_value, of_gradient = figure.subplots(1, 2, gridspec_kw={"wspace": 0.08})
    draw_curves(of_value, shape.positions, "value", lowered, references)
    draw_curves(of_gradient, shape.positions, "gradient", learned, references)
    for axes, label in zip((of_value, of_gradient), labels, strict=True):
        axes.set_xlabel(position)
        axes.set_ylabel(label)
    names = of_value.get_legend_handles_labels()
    figure.legend(*names, loc="outside upper center", ncols=len(names[1]))
    return figure


def draw_curves(
    axes: Axes,
    positions: FloatArray,
    quantity: str,
    curves: Sequence[Curve],
    references: Sequence[Curve],
    *,
    styles: Sequence[tuple[str, Any]] = style.LINE_STYLES,
    inner: tuple[float, float] = (0.02, 0.98),
    **options: Any,
) -> None:
    """Draw the values or the gradients of curves over those of references, within limits that spikes do not move.

    `inner` are the quantiles of `axis_limits`; further options are those of `Axes.plot`.
    """
    drawn = []
    styled = (*zip(curves, styles, strict=False), *zip(references, _REFERENCE_STYLES, strict=False))
    for curve, (colour, dashes) in styled:
        drawn.append(single_precision(getattr(curve, quantity)))
        label = curve.name.replace("y = ", "$y$ = ").replace("= -", "= −") or "this loss"
        order = 1 + (colour != GREY)  # references lie below, though the legend names them last
        axes.plot(positions, drawn[-1], color=colour, linestyle=dashes, label=label, zorder=order, **options)
    axes.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    axes.set_xlim(np.round(positions[0], 2), np.round(positions[-1], 2))
    axes.set_ylim(*style.axis_limits(np.concatenate(drawn), inner))
    if not np.any(drawn):
        axes.set_yticks([0])
        axes.text(0.5, 0.6, "zero everywhere", ha="center", color=GREY, fontsize=7, transform=axes.transAxes)


def _distinct(shape: LossShape) -> list[Curve]:
    """The curves under their names in the legend; a single one if all are equal."""
    first = shape.curves[0]
    if len(shape.curves) == 1:
        return [replace(first, name="this loss")]
    if are_equal(shape.curves):
        return [replace(first, name="this loss, any $y$")]
    return [replace(curve, name=f"this loss, {curve.name}") for curve in shape.curves]


def reference_scale(shape: LossShape) -> float:
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


def _largest_span(curves: Sequence[Curve]) -> float:
    """The largest span of values without the outer quantiles."""
    found = [_finite(curve.value) for curve in curves]
    return max(float(np.ptp(np.quantile(finite, (0.02, 0.98)))) if finite.size else 0.0 for finite in found)


def _finite(values: FloatArray) -> FloatArray:
    values = single_precision(values)
    return values[np.isfinite(values)]
