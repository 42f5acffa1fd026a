"""Losses side by side: what an output costs, over its probability or its error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.analysis.line_scans import FloatArray, with_gradient
from evomal.analysis.loss_families import OUTPUT_LOSSES, families_named, output_loss
from evomal.analysis.shapes import Curve, error_curves, shape_positions
from evomal.errors import InputError
from evomal.losses.catalogue import name_of
from evomal.losses.contract import Kind, Loss
from evomal.losses.elementwise import ElementwiseLoss
from evomal.losses.task_losses import CrossEntropyLoss

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
