"""Losses side by side: the loss of one output over its probability or error, or over target and output.

Besides single losses there are families: one hand-made loss at several values of one option (EvoMAL, figures 9 to 17).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from evomal.checks import MOST_POINTS, Kind, unknown_name, whole_number
from evomal.errors import InputError
from evomal.figures import style
from evomal.figures.data import single_precision, table, with_gradient
from evomal.figures.loss_shape import Curve, are_equal, draw_curves, loss_curves, output_curve, shape_positions
from evomal.figures.style import BLUE, GREEN, INK, ORANGE, SKY, VERMILLION, Axes, Figure, FloatArray
from evomal.losses import CrossEntropyLoss
from evomal.losses.catalogue import named_loss
from evomal.losses.loss import Loss

_LETTERS = {"phi0": "φ0", "phi1": "φ1", "smoothing": "ξ", "gamma": "γ"}


@dataclass(frozen=True)
class Family:
    """One loss at several values of one option."""

    loss: str
    option: str
    values: tuple[float, ...]
    fixed: Mapping[str, float]
    """The other options."""

    @property
    def title(self) -> str:
        """The name of the loss and its fixed options."""
        return f"{self.loss}{''.join(f', {_LETTERS[option]} = {value:g}' for option, value in self.fixed.items())}"

    def members(self) -> dict[str, Loss]:
        """Return the losses by the value of their option."""
        return {
            f"{_LETTERS[self.option]} = {value:g}": named_loss(self.loss, **{self.option: value}, **self.fixed)
            for value in self.values
        }


_SMOOTHINGS = (0.0, 0.05, 0.1, 0.2, 0.4)
_GAMMAS = (0.0, 0.5, 1.0, 2.0, 5.0)  # as in Lin et al. (2017)
_FOCAL_SPARSE = "focal-sparse-label-smoothing"
FAMILIES = {
    "absolute-ce": (Family("absolute-ce", "phi1", (1.0, 1.1, 1.25, 1.5, 1.9), {}),),
    "label-smoothing": (Family("label-smoothing", "smoothing", _SMOOTHINGS, {}),),
    "sparse-label-smoothing": (Family("sparse-label-smoothing", "smoothing", _SMOOTHINGS, {}),),
    "focal": (Family("focal", "gamma", _GAMMAS, {}),),
    "focal-sparse": (
        Family(_FOCAL_SPARSE, "gamma", _GAMMAS, {"smoothing": 0.2}),  # EvoMAL, figure 17
        Family(_FOCAL_SPARSE, "smoothing", _SMOOTHINGS, {"gamma": 2.0}),
    ),
}
"""The families by name, with one entry for each option that is varied."""

_PANEL_NAMES: dict[Kind, tuple[str, ...]] = {
    "classification": ("target", "non-target"),
    "multilabel": ("label present", "label absent"),
    "regression": ("any target",),
}
_LARGEST = 3.0  # standardised targets and outputs


@dataclass(frozen=True)
class Panel:
    """Curves that share axes: one pair for their values, one for their gradients by f."""

    name: str
    curves: tuple[Curve, ...]
    references: tuple[Curve, ...]
    """The task loss."""


@dataclass(frozen=True)
class Row:
    """One loss, or one family of losses."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class ShapePanels:
    """A row of panels for each loss or family."""

    kind: Kind
    classes: int
    positions: FloatArray
    """The output f, a probability, or the error f - y (regression)."""
    rows: tuple[Row, ...]
    is_standardised: bool = False
    """Whether f and y are in standardised units, because a loss was learned in them."""

    @property
    def position_name(self) -> str:
        """What the positions are."""
        return "f - y" if self.kind == "regression" else "f"

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per point of each curve."""
        return table(
            ("loss", "output", "curve", self.position_name, "value", "gradient"),
            (
                (row.title, panel.name, curve.name, *map(float, point))
                for row in self.rows
                for panel in row.panels
                for curve in (*panel.curves, *panel.references)
                for point in zip(self.positions, curve.value, curve.gradient, strict=True)
            ),
        )


def shape_panels(
    losses: Mapping[str, Loss], families: Sequence[str] = (), *, points: int = 201, classes: int = 10
) -> ShapePanels:
    """Sample losses, and families of hand-made losses, for one figure.

    Args:
        losses: Losses of one kind by the names that the figure shows. Classification and multilabel are sampled over an
            output f between 0.001 and 0.999, as the target and as any other class, with every output a free variable;
            regression over f - y from -3 to 3, at y = -1, 0 and 1.
        families: Names of families, which are for classification.
        points: The number of positions.
        classes: The number of classes.

    Returns:
        One row per loss, and one per family and option that is varied.

    Raises:
        InputError: If the kinds differ, a family is unknown, or a loss has no value for a single output.

    Example:
        >>> [row.title for row in shape_panels({}, ["focal"]).rows]
        ['focal']
    """
    kind = _common_kind(losses, families)
    positions = shape_positions(kind, points=points, classes=classes)
    rows = [_row(name, {"": loss}, positions, classes) for name, loss in losses.items()]
    for name in families:
        if name not in FAMILIES:
            raise unknown_name("family", name, FAMILIES)
        rows += [_row(family.title, family.members(), positions, classes) for family in FAMILIES[name]]
    return ShapePanels(kind, classes, positions, tuple(rows), _is_standardised(losses))


def _is_standardised(losses: Mapping[str, Loss]) -> bool:
    return any(loss.units is not None for loss in losses.values())


def _common_kind(losses: Mapping[str, Loss], families: Sequence[str]) -> Kind:
    kinds: dict[Kind, str] = {}
    for name, loss in losses.items():
        kinds.setdefault(loss.kind, name)
    if families:
        kinds.setdefault("classification", families[0])
    if len(kinds) > 1:
        listed = ", ".join(f"{name} is for {kind}" for kind, name in kinds.items())
        raise InputError(f"the losses of one figure must be of one kind, but {listed}")
    return next(iter(kinds), "classification")


def _row(title: str, losses: Mapping[str, Loss], positions: FloatArray, classes: int) -> Row:
    """One loss beside the task loss, or a family, which has the task loss among its members."""
    first = next(iter(losses.values()))
    names = _PANEL_NAMES[first.kind]
    if first.kind == "regression":
        curves, _ = loss_curves(first, positions)
        curves = (replace(curves[0], name=""),) if are_equal(curves) else curves
        squared = Curve("squared error", *with_gradient(torch.square, positions))
        return Row(title, (Panel(names[0], curves, (squared,)),))
    references: dict[str, Loss] = {} if len(losses) > 1 else {"cross-entropy": CrossEntropyLoss(kind=first.kind)}
    return Row(
        title,
        tuple(
            Panel(name, *(_output_curves(group, y, positions, classes) for group in (losses, references)))
            for name, y in zip(names, (1, 0), strict=True)
        ),
    )


def _output_curves(losses: Mapping[str, Loss], y: int, f: FloatArray, classes: int) -> tuple[Curve, ...]:
    """The loss of one output over its probability, for each loss."""

    def curve(name: str, loss: Loss) -> Curve:
        if loss.kind == "classification":
            return output_curve(name, loss, y, f, classes=classes)
        bits = torch.full((len(f),), y)
        return Curve(name, *with_gradient(lambda p: loss.of_bits(torch.logit(p), bits), f))

    return tuple(curve(name, loss) for name, loss in losses.items())


@dataclass(frozen=True)
class Surfaces:
    """Several regression losses over the same square of target and output."""

    positions: FloatArray
    """The values of y, and of f."""
    surfaces: tuple[Curve, ...]
    """Values, and gradients by f, indexed by f, then y."""
    is_standardised: bool = False
    """Whether f and y are in standardised units, because a loss was learned in them."""

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per point of each surface."""
        return table(
            ("loss", "y", "f", "value", "gradient"),
            (
                (surface.name, float(y), float(f), float(surface.value[i, j]), float(surface.gradient[i, j]))
                for surface in self.surfaces
                for i, f in enumerate(self.positions)
                for j, y in enumerate(self.positions)
            ),
        )


def loss_surfaces(losses: Mapping[str, Loss], *, points: int = 61) -> Surfaces:
    """Sample regression losses, given by name, over target and output, both from -3 to 3, in double precision."""
    whole_number("points", points, at_least=3, at_most=MOST_POINTS)
    positions = np.linspace(-_LARGEST, _LARGEST, points)
    f, y = (grid.reshape(-1) for grid in np.meshgrid(positions, positions, indexing="ij"))
    target = torch.from_numpy(y.copy())
    surfaces = []
    for name, loss in losses.items():
        if loss.kind != "regression":
            raise InputError(f"a surface over y and f needs a regression loss, but {name} is for {loss.kind}")
        sampled = with_gradient(lambda output, loss=loss: loss.of_values(output, target), f)  # type: ignore[misc]
        surfaces.append(Curve(name, *(values.reshape(points, points) for values in sampled)))
    return Surfaces(positions, tuple(surfaces), _is_standardised(losses))


_ROW_HEIGHT, _FOOT = 1.45, 0.3
_BETWEEN, _ABOVE = 0.1, 0.15  # inches between two rows and above the first, for the titles
_LONGEST_TITLE = 90
_INNER = (0.08, 0.96)
_LEVELS = 12

# From cold to warm colours as the option grows, with dashes for black and white.
_IN_ORDER: tuple[tuple[str, Any], ...] = (
    (INK, "-"),
    (BLUE, (0, (7, 1.5))),
    (SKY, (0, (4, 1.6))),
    (GREEN, (0, (5, 1.2, 1.2, 1.2))),
    (ORANGE, (0, (1.2, 1.2))),
    (VERMILLION, "-"),
)


@style.figure_style()
def draw_shape_panels(shapes: ShapePanels) -> Figure:
    """Draw one row of panels per loss or family: losses on the left, gradients on the right."""
    if not shapes.rows:
        return style.sentence_figure("there is no loss to draw", "page")
    height = _ROW_HEIGHT * len(shapes.rows) + _FOOT
    figure = style.new_figure("page", height)
    figure.set_layout_engine("constrained", h_pad=_BETWEEN, rect=(0, 0, 1, 1 - _ABOVE / height))
    grid = figure.subplots(len(shapes.rows), 2 * len(shapes.rows[0].panels), squeeze=False, sharex=True)
    for line, row in zip(grid, shapes.rows, strict=True):
        _draw_row(line, row, shapes)
    units = "standardised" if shapes.is_standardised else "units of $y$"
    for last in grid[-1]:
        last.set_xlabel(f"error $f - y$ ({units})" if shapes.kind == "regression" else "output $f$")
    return figure


def _draw_row(line: Sequence[Axes], row: Row, shapes: ShapePanels) -> None:
    count = len(row.panels)
    for place, (axes, panel) in enumerate(zip(line, (*row.panels, *row.panels), strict=True)):
        quantity, words = ("value", "loss") if place < count else ("gradient", "gradient by $f$")
        is_family = shapes.kind != "regression" and len(panel.curves) > 1
        styles = _IN_ORDER if is_family else style.LINE_STYLES
        draw_curves(
            axes, shapes.positions, quantity, panel.curves, panel.references, styles=styles, inner=_INNER, linewidth=1.2
        )
        axes.set_title(words if shapes.kind == "regression" else f"{panel.name}: {words}", fontsize=7, pad=3)
    # Out of the layout, which would otherwise make the first panel as wide as its title.
    line[0].annotate(
        style.figure_text(row.title, _LONGEST_TITLE), (0, 1), (0, 13), xycoords="axes fraction",
        textcoords="offset points", fontweight="bold", in_layout=False,
    )  # fmt: skip
    line[-1].legend(loc="upper left", bbox_to_anchor=(1.02, 1.05), borderaxespad=0)


@style.figure_style()
def draw_surfaces(data: Surfaces) -> Figure:
    """Draw one panel per regression loss, with the target across, the output upwards and the loss as colour."""
    if not data.surfaces:
        return style.sentence_figure("there is no loss to draw", "page")
    count = len(data.surfaces)
    figure, grid = style.panels(count, most=3, height=2.9 if count == 1 else 2.2, rest=0.0)
    for axes, surface in zip(grid, data.surfaces, strict=True):
        _draw_surface(axes, surface, data)
    return figure


def _draw_surface(axes: Axes, surface: Curve, data: Surfaces) -> None:
    positions, units = data.positions, " (standardised)" if data.is_standardised else ""
    values = np.ma.masked_invalid(single_precision(surface.value))
    axes.set_title(style.figure_text(surface.name, 30), loc="left", fontweight="bold")
    axes.set_xlabel(f"target $y${units}")
    axes.set_ylabel(f"output $f${units}")
    axes.set_aspect("equal")
    if values.count() == 0:
        axes.text(0.5, 0.5, "nowhere finite", ha="center", va="center", transform=axes.transAxes)
        return
    lowest, highest = float(values.min()), float(values.max())
    low, high = style.axis_limits(values.compressed(), _INNER)
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
