"""Losses side by side: what an output costs, over its probability or its error."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.figures.loss_families import OUTPUT_LOSSES, families_named, output_loss
from evomal.figures.loss_shape import Curve, error_curves, shape_positions
from evomal.figures.scans import FloatArray, single_precision, with_gradient
from evomal.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LINE_STYLES,
    ORANGE,
    SKY,
    VERMILLION,
    figure_style,
    in_figure,
    new_figure,
    sentence_figure,
)
from evomal.losses.catalogue import name_of
from evomal.losses.contract import Kind, Loss
from evomal.losses.elementwise import ElementwiseLoss
from evomal.losses.standard import CrossEntropyLoss
from evomal.text import shorten

PANELS: dict[Kind, tuple[str, ...]] = {
    "classification": ("target", "non-target"),
    "multilabel": ("label present", "label absent"),
    "regression": ("any target",),
}
_LARGEST = 3.0  # standardised targets and outputs


@dataclass(frozen=True)
class Panel:
    """Curves that belong on the same axes: their values on one pair, their gradients by f on another."""

    name: str
    curves: tuple[Curve, ...]
    references: tuple[Curve, ...]
    """The task loss beside them."""


@dataclass(frozen=True)
class Row:
    """One loss, or one family of losses."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class ShapePanels:
    """A row of panels for each loss."""

    kind: Kind
    classes: int
    positions: FloatArray
    """The output f, a probability, or the error f - y (regression)."""
    rows: tuple[Row, ...]
    is_standardised: bool = False
    """Whether f and y are in standardised units, because a loss was learned in them."""

    def columns(self) -> dict[str, list[Any]]:
        """A row for each point of each curve."""
        columns: dict[str, list[Any]] = {
            name: [] for name in ("loss", "output", "curve", self.position_name, "value", "gradient")
        }
        for row in self.rows:
            for panel in row.panels:
                for curve in (*panel.curves, *panel.references):
                    count = len(self.positions)
                    columns["loss"] += [row.title] * count
                    columns["output"] += [panel.name] * count
                    columns["curve"] += [curve.name] * count
                    columns[self.position_name] += self.positions.tolist()
                    columns["value"] += curve.value.tolist()
                    columns["gradient"] += curve.gradient.tolist()
        return columns

    @property
    def position_name(self) -> str:
        """What the positions are."""
        return "f - y" if self.kind == "regression" else "f"


def shape_panels(
    losses: Mapping[str, Loss], families: Sequence[str] = (), *, points: int = 201, classes: int = 10
) -> ShapePanels:
    """Sample losses by name, and the hand-made families of those names (EvoMAL, figures 9 to 11, 13, 16, 17).

    Classification: what one output f between 0.001 and 0.999 adds to a sample's loss as the target and as any other
    class, with the gradient by f, every output being free. Regression: over f - y from -3 to 3, at y of -1, 0 and 1.
    """
    kind = _common_kind(losses, families)
    positions = shape_positions(kind, points=points, classes=classes)
    rows = [_row(name, {"": loss}, positions, classes) for name, loss in losses.items()]
    for name in families:
        rows += [_row(family.title, dict(family.members()), positions, classes) for family in families_named(name)]
    return ShapePanels(kind, classes, positions, tuple(rows), _any_has_units(losses))


@dataclass(frozen=True)
class Surface:
    """A loss of regression over target and output."""

    name: str
    value: FloatArray
    """[f, y]."""
    gradient: FloatArray
    """By f."""


@dataclass(frozen=True)
class Surfaces:
    """Several of them over the same square."""

    positions: FloatArray
    """Of y as of f."""
    surfaces: tuple[Surface, ...]
    is_standardised: bool = False
    """Whether f and y are in standardised units, because a loss was learned in them."""

    def columns(self) -> dict[str, list[Any]]:
        """A row for each point of each surface."""
        f, y = (grid.reshape(-1).tolist() for grid in np.meshgrid(self.positions, self.positions, indexing="ij"))
        count = len(self.surfaces)
        return {
            "loss": [surface.name for surface in self.surfaces for _ in f],
            "y": y * count,
            "f": f * count,
            "value": [value for surface in self.surfaces for value in surface.value.reshape(-1).tolist()],
            "gradient": [value for surface in self.surfaces for value in surface.gradient.reshape(-1).tolist()],
        }


def loss_surfaces(losses: Mapping[str, Loss], *, points: int = 61) -> Surfaces:
    """Losses of regression at y and f from -3 to 3, in double precision."""
    if points < 3:
        raise InputError(f"points must be at least 3 but got {points}")
    for name, loss in losses.items():
        if loss.kind != "regression":
            raise InputError(f"a surface over y and f is of regression losses, but {name} is for {loss.kind}")
    positions = np.linspace(-_LARGEST, _LARGEST, points)
    f, y = (grid.reshape(-1) for grid in np.meshgrid(positions, positions, indexing="ij"))
    target = torch.from_numpy(y.copy())
    surfaces = []
    for name, loss in losses.items():
        value, gradient = with_gradient(_values(loss, target), f)
        surfaces.append(Surface(name, value.reshape(points, points), gradient.reshape(points, points)))
    return Surfaces(positions, tuple(surfaces), _any_has_units(losses))


def _any_has_units(losses: Mapping[str, Loss]) -> bool:
    return any(loss.units is not None for loss in losses.values())


def _values(loss: Loss, target: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda output: loss.of_values(output, target)


def _common_kind(losses: Mapping[str, Loss], families: Sequence[str]) -> Kind:
    kinds: dict[Kind, str] = {}
    for name, loss in losses.items():
        kinds.setdefault(loss.kind, name)
    if families:
        kinds.setdefault("classification", families[0])
    if len(kinds) > 1:
        listed = ", ".join(f"{name} is for {kind}" for kind, name in kinds.items())
        raise InputError(f"a figure of shapes is of losses of one kind, but {listed}")
    return next(iter(kinds), "classification")


def _row(title: str, losses: Mapping[str, Loss], positions: FloatArray, classes: int) -> Row:
    """One loss beside the task loss, or a family, which has the task loss among its members."""
    kind = next(iter(losses.values())).kind
    if kind == "regression":
        (loss,) = losses.values()
        squared = Curve("squared error", *with_gradient(torch.square, positions))
        return Row(title, (Panel(PANELS[kind][0], _merged(error_curves(loss, positions)), (squared,)),))
    references = {} if len(losses) > 1 else {"cross-entropy": CrossEntropyLoss(kind=kind)}
    panels = []
    for name, y in zip(PANELS[kind], (1, 0), strict=True):
        curves, beside = (
            tuple(Curve(label, *with_gradient(_output(loss, y, classes), positions)) for label, loss in group.items())
            for group in (losses, references)
        )
        panels.append(Panel(name, curves, beside))
    return Row(title, tuple(panels))


def _merged(curves: tuple[Curve, ...]) -> tuple[Curve, ...]:
    """One curve for all targets where they lie upon each other."""
    first = curves[0]
    if all(np.allclose(curve.value, first.value, equal_nan=True) for curve in curves):
        return (Curve("", first.value, first.gradient),)
    return curves


def _output(loss: Loss, y: int, classes: int) -> Callable[[Tensor], Tensor]:
    """What an output costs, as a function of its probability."""
    if loss.kind == "multilabel":
        return lambda p: loss.of_bits(torch.logit(p), torch.full_like(p, y, dtype=torch.int64))
    if isinstance(loss, ElementwiseLoss):
        return lambda p: loss.value(p, torch.full_like(p, y))
    name = name_of(loss)
    if name not in OUTPUT_LOSSES:
        raise InputError(f"{type(loss).__name__} does not say what a single output costs")
    options = {option: getattr(loss, option) for option in loss.option_names}
    return lambda p: output_loss(name, torch, p, y, classes, options)


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_HEIGHT, _FOOT = 1.45, 0.3
_BETWEEN, _ABOVE = 0.1, 0.15  # inches between two rows and above the first, for the titles
_LONGEST_TITLE = 90
_FAR_OUT = 4.0  # times the span of all but the outermost values
_INNER = (0.08, 0.96)
_MARGIN = 0.06
_SURFACES_A_ROW = 3
_LEVELS = 12

# From cold to warm, as the option grows, with dashes for black and white.
_IN_ORDER: tuple[tuple[str, Any], ...] = (
    (INK, "-"),
    (BLUE, (0, (7, 1.5))),
    (SKY, (0, (4, 1.6))),
    (GREEN, (0, (5, 1.2, 1.2, 1.2))),
    (ORANGE, (0, (1.2, 1.2))),
    (VERMILLION, "-"),
)


def draw_shape_panels(shapes: ShapePanels) -> "Figure":
    """A figure of page width: loss on the left, gradient on the right, a row for each loss or family."""
    if not shapes.rows:
        return sentence_figure("there is no loss to draw", "page")
    height = _ROW_HEIGHT * len(shapes.rows) + _FOOT
    figure = new_figure("page", height)
    panels = len(shapes.rows[0].panels)
    with figure_style():
        figure.set_layout_engine("constrained", h_pad=_BETWEEN, rect=(0, 0, 1, 1 - _ABOVE / height))
        axes = figure.subplots(len(shapes.rows), 2 * panels, squeeze=False, sharex=True)
        for line, row in zip(axes, shapes.rows, strict=True):
            _draw_row(line, row, shapes)
        units = "standardised" if shapes.is_standardised else "units of $y$"
        for last in axes[-1]:
            last.set_xlabel(f"error $f - y$ ({units})" if shapes.kind == "regression" else "output $f$")
    return figure


def draw_surfaces(data: Surfaces) -> "Figure":
    """A panel for each loss of regression, three in a row: target across, output upwards, loss as colour."""
    if not data.surfaces:
        return sentence_figure("there is no loss to draw", "page")
    across = min(len(data.surfaces), _SURFACES_A_ROW)
    down = math.ceil(len(data.surfaces) / across)
    figure = new_figure("column" if across == 1 else "page", 2.2 * down if across > 1 else 2.9)
    with figure_style():
        panels = figure.subplots(down, across, squeeze=False).reshape(-1)
        for axes, surface in zip(panels, data.surfaces, strict=False):
            _draw_surface(axes, surface, data)
        for axes in panels[len(data.surfaces) :]:
            axes.set_axis_off()
    return figure


def _draw_row(line: Sequence["Axes"], row: Row, shapes: ShapePanels) -> None:
    styles = LINE_STYLES if shapes.kind == "regression" or len(row.panels[0].curves) == 1 else _IN_ORDER
    count = len(row.panels)
    for axes, panel in zip(line, (*row.panels, *row.panels), strict=True):
        quantity = "value" if axes in line[:count] else "gradient"
        _draw_panel(axes, panel, quantity, shapes, styles)
        of_output = "" if shapes.kind == "regression" else f"{panel.name}: "
        axes.set_title(f"{of_output}{'loss' if quantity == 'value' else 'gradient by $f$'}", fontsize=7, pad=3)
    title = in_figure(shorten(row.title, _LONGEST_TITLE))
    # Out of the layout, which would else make the first panel as wide as its title.
    line[0].annotate(
        title, (0, 1), (0, 13), xycoords="axes fraction", textcoords="offset points", fontweight="bold", in_layout=False
    )
    handles, labels = line[-1].get_legend_handles_labels()
    line[-1].legend(handles, labels, loc="upper left", bbox_to_anchor=(1.02, 1.05), borderaxespad=0)


def _draw_panel(
    axes: "Axes", panel: Panel, quantity: str, shapes: ShapePanels, styles: Sequence[tuple[str, Any]]
) -> None:
    drawn: list[FloatArray] = []
    for curve, (colour, dashes), order in (
        *((curve, style, 2) for curve, style in zip(panel.curves, _repeated(styles, len(panel.curves)), strict=True)),
        *((curve, (GREY, "-"), 1) for curve in panel.references),
    ):
        drawn.append(single_precision(getattr(curve, quantity)))
        axes.plot(
            shapes.positions, drawn[-1], color=colour, linestyle=dashes, label=_label(curve), zorder=order,
            linewidth=1.2,
        )  # fmt: skip
    axes.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    axes.set_xlim(np.round(shapes.positions[0], 2), np.round(shapes.positions[-1], 2))
    axes.set_ylim(*_window(np.concatenate(drawn)))
    if not np.any(drawn):
        axes.set_yticks([0])
        axes.text(0.5, 0.6, "zero everywhere", ha="center", color=GREY, fontsize=7, transform=axes.transAxes)


def _repeated(styles: Sequence[tuple[str, Any]], count: int) -> list[tuple[str, Any]]:
    return [styles[place % len(styles)] for place in range(count)]


def _label(curve: Curve) -> str:
    return curve.name.replace("y = ", "$y$ = ").replace("-1", "−1") or "this loss"


def _window(values: FloatArray) -> tuple[float, float]:
    """All values, or all but the outermost where those would make a flat line of the rest."""
    values = values[np.isfinite(values)]
    if not values.size:
        return -1.0, 1.0
    low, high = float(values.min()), float(values.max())
    inner_low, inner_high = (float(bound) for bound in np.quantile(values, _INNER))
    if high - low > _FAR_OUT * (inner_high - inner_low) > 0:
        low, high = inner_low, inner_high
    margin = _MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def _draw_surface(axes: "Axes", surface: Surface, data: Surfaces) -> None:
    positions, units = data.positions, " (standardised)" if data.is_standardised else ""
    values = np.ma.masked_invalid(single_precision(surface.value))
    axes.set_title(in_figure(shorten(surface.name, 30)), loc="left", fontweight="bold")
    axes.set_xlabel(f"target $y${units}")
    axes.set_ylabel(f"output $f${units}")
    axes.set_aspect("equal")
    if values.count() == 0:
        axes.text(0.5, 0.5, "nowhere finite", ha="center", va="center", transform=axes.transAxes)
        return
    lowest, highest = float(values.min()), float(values.max())
    low, high = _window(values.compressed())
    low, high = max(low, lowest), min(high, highest)
    levels = np.linspace(low, high if high > low else low + 1, _LEVELS)
    beyond = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    filled = axes.contourf(
        positions, positions, values, levels=levels, cmap="cividis", extend=beyond[lowest < low, highest > high]
    )
    axes.plot(positions, positions, color="white", linewidth=0.8, linestyle=(0, (4, 1.6)))
    bar = axes.figure.colorbar(filled, ax=axes, shrink=0.6, ticks=np.linspace(levels[0], levels[-1], 5), format="%.3g")
    bar.set_label("loss")
    bar.outline.set_linewidth(0.4)
