"""A loss beside the task loss: value on the left, gradient on the right."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evomal.analysis.line_scans import FloatArray, single_precision
from evomal.analysis.shapes import Curve, LossShape
from evomal.report.style import GREY, LINE_STYLES, figure_style, new_figure

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
