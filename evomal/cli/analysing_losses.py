"""`evomal analyse`: what its kinds have in common."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from evomal.cli.options import AsJson, echo_json
from evomal.errors import InputError
from evomal.figures.shape_panels import (
    FAMILIES,
    ShapePanels,
    Surfaces,
    draw_shape_panels,
    draw_surfaces,
    loss_surfaces,
    shape_panels,
)
from evomal.figures.style import FloatArray, save_figure
from evomal.files import made_folder
from evomal.losses import CATALOGUE, Loss, load_loss
from evomal.losses.catalogue import is_specified, specified_loss
from evomal.paper.behaviour import Behaviour, Behaviours, behaviours, draw_behaviour
from evomal.paper.smoothing_cost import CLASSES as TIMED_CLASSES
from evomal.paper.smoothing_cost import WITH, WITHOUT, SmoothingCost, draw_smoothing_cost, smoothing_cost
from evomal.text import printable, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Out = Annotated[Path, typer.Option(help="Folder for the figure (SVG, PDF, PNG) and its data (CSV).")]
FIGURES = Path("figures")


def show_figure(
    name: str,
    figure: "Figure",
    columns: Mapping[str, Sequence[Any]],
    summary: Iterable[str],
    *,
    out: Path,
    as_json: bool,
) -> None:
    """Save a figure as `out/name.*`, then print what it shows in a few lines, or its data as JSON."""
    files = [str(path) for path in save_figure(figure, made_folder(out) / name, columns)]
    if as_json:
        echo_json({"kind": name, "summary": list(summary), "data": columns, "files": files})
        return
    for line in (*summary, *(f"wrote {path}" for path in files)):
        typer.echo(line)


_WIDTH = 80
_ANALYSED = (
    "ce", "absolute-ce", "absolute-ce:phi1=1.5", "label-smoothing", "sparse-label-smoothing", "focal",
    "focal-sparse-label-smoothing",
)  # fmt: skip
_MANY, _FEW = 12, 3

Losses = Annotated[
    list[str] | None,
    typer.Argument(help='Loss files or names, such as "focal" or "focal:gamma=1".', show_default=False),
]
Classes = Annotated[int, typer.Option(help="Number of classes C.")]


def show_shapes(
    losses: Losses = None,
    family: Annotated[
        list[str] | None, typer.Option(help=f"A family of losses: {', '.join(FAMILIES)}; may be repeated.")
    ] = None,
    surface: Annotated[bool, typer.Option("--surface", help="Regression losses over target and output.")] = False,
    classes: Classes = 10,
    out: Out = FIGURES,
    as_json: AsJson = False,
) -> None:
    """Losses with their gradients, over an output's probability or over the error; all families if none is named."""
    chosen = _chosen(losses or [])
    if surface:
        if family or not chosen:
            raise InputError("--surface is of regression losses that are named, and of no family")
        surfaces = loss_surfaces(chosen)
        summary = _surface_summary(surfaces)
        show_figure("surfaces", draw_surfaces(surfaces), surfaces.columns(), summary, out=out, as_json=as_json)
        return
    if family and len(set(family)) < len(family):
        raise InputError(f"{next(name for name in family if family.count(name) > 1)} is named twice")
    shapes = shape_panels(chosen, family or (() if chosen else tuple(FAMILIES)), classes=classes)
    show_figure("shapes", draw_shape_panels(shapes), shapes.columns(), _shape_summary(shapes), out=out, as_json=as_json)


def show_behaviour(
    losses: Losses = None,
    classes: Classes = 10,
    out: Out = FIGURES,
    as_json: AsJson = False,
) -> None:
    """The push of losses on outputs at the beginning and at the end of training, derived symbolically."""
    found = behaviours(_chosen(losses or list(_ANALYSED)), classes=classes)
    show_figure(
        "behaviour", draw_behaviour(found), found.columns(), _behaviour_summary(found), out=out, as_json=as_json
    )


def show_smoothing_cost(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    classes: Annotated[str, typer.Option(help="Numbers of classes, comma-separated.")] = ",".join(
        map(str, TIMED_CLASSES)
    ),
    rounds: Annotated[int, typer.Option(help="Rounds to take the median of.")] = 15,
    threads: Annotated[int | None, typer.Option(help="Threads of the processor (default: all).")] = None,
    out: Out = FIGURES,
    as_json: AsJson = False,
) -> None:
    """Run time of label smoothing against sparse label smoothing, over the number of classes."""
    cost = smoothing_cost(_numbers(classes), device=device, rounds=rounds, threads=threads, progress=True)
    show_figure(
        "smoothing-cost", draw_smoothing_cost(cost), cost.columns(), _cost_summary(cost), out=out, as_json=as_json
    )


KINDS: dict[str, Callable[..., None]] = {
    "shapes": show_shapes,
    "behaviour": show_behaviour,
    "smoothing-cost": show_smoothing_cost,
}


def _chosen(specs: list[str]) -> dict[str, Loss]:
    """Losses by what the figure calls them: names as they are given, files by their own name."""
    found: dict[str, Loss] = {}
    for spec in specs:
        loss = _loss(spec)
        name = spec if is_specified(spec) else Path(spec).stem
        name = printable(spec if name in found else name)
        if name in found:
            raise InputError(f"{name} is named twice")
        found[name] = loss
    return found


def _loss(spec: str) -> Loss:
    if is_specified(spec):
        return specified_loss(spec)
    if not Path(spec).exists():
        names = ", ".join(CATALOGUE)
        raise InputError(f"a loss must be a name ({names}) or a loss file, but there is no {spec!r}")
    return load_loss(spec)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"classes must be whole numbers, comma-separated, but got {text!r}") from None


def _shape_summary(shapes: ShapePanels) -> Iterator[str]:
    is_regression = shapes.kind == "regression"
    units = ", in standardised units" if shapes.is_standardised else ""
    where = f"the error f - y{units}" if is_regression else f"an output f, C = {shapes.classes}"
    yield f"loss and gradient by f over {where}; {'lowest' if is_regression else f'lowest as {_first(shapes)}'}:"
    for row in shapes.rows[:_MANY]:
        curves = row.panels[0].curves
        places = [
            _lowest(curve.value, shapes.positions) + (f" ({curve.name})" if curve.name else "") for curve in curves
        ]
        said = ", ".join(places) if len(places) <= _FEW else f"{places[0]} to {places[-1]}"
        yield shorten(f"{row.title}: at {shapes.position_name} = {said}", _WIDTH)
    yield from _left_out(len(shapes.rows))


def _first(shapes: ShapePanels) -> str:
    return shapes.rows[0].panels[0].name


def _surface_summary(surfaces: Surfaces) -> Iterator[str]:
    units = ", in standardised units" if surfaces.is_standardised else ""
    yield f"loss over target y and output f, both from -3 to 3{units}"
    for surface in surfaces.surfaces[:_MANY]:
        finite = surface.value[np.isfinite(surface.value)]
        spread = f"from {finite.min():.4g} to {finite.max():.4g}" if finite.size else "nowhere finite"
        yield shorten(f"{surface.name}: {spread}", _WIDTH)
    yield from _left_out(len(surfaces.surfaces))


def _lowest(values: FloatArray, positions: FloatArray) -> str:
    if not np.isfinite(values).any():
        return "nowhere"
    return f"{positions[np.nanargmin(np.where(np.isfinite(values), values, np.nan))]:.2f}"


def _left_out(count: int) -> Iterator[str]:
    if count > _MANY:
        yield f"and {count - _MANY} more"


def _behaviour_summary(found: Behaviours) -> Iterator[str]:
    yield f"push δ = -∂L/∂f, non-target / target, at C = {found.classes}"
    for loss in found.losses[:_MANY]:
        yield shorten(loss.name, _WIDTH)
        for regime, words in (("null epoch", "null epoch"), ("zero error", "near zero error")):
            pushes = [loss.at(regime, output) for output in ("other", "target")]  # type: ignore[arg-type]
            formulas = " / ".join(push.text for push in pushes)
            values = " / ".join(f"{push.value:.4g}" for push in pushes)
            same = formulas.replace("oo", "inf") == values
            yield shorten(f"  {words}: {values}" + ("" if same else f"  ({formulas})"), _WIDTH)
        yield f"  {loss.sentence}"
        yield from _remarks(loss)
    yield from _left_out(len(found.losses))


def _remarks(loss: Behaviour) -> Iterator[str]:
    """What ε changes, and what SymPy could not do."""
    changed = [push for push in loss.deltas if push.differs_by_epsilon]
    if changed:
        places = ", ".join(f"{push.exact:.4g} ({push.output}, {push.regime})" for push in changed)
        yield shorten(f"  with ε = 1e-7 it is {places}", _WIDTH)
    count = sum(push.how == "numeric" for push in loss.deltas)
    if count:
        yield f"  {count} of {len(loss.deltas)} by numbers, as SymPy found no formula"


def _cost_summary(cost: SmoothingCost) -> Iterator[str]:
    yield shorten(f"forward and backward, median of {cost.rounds} rounds; {cost.hardware}", _WIDTH)
    for part in (WITH, WITHOUT):
        *others, sparse = cost.names(part)
        for name in others:
            pairs = list(zip(cost.line(part, name), cost.line(part, sparse), strict=True))
            ends = ", ".join(
                f"{slow.median / fast.median:.2f} at {slow.classes}"
                for slow, fast in dict.fromkeys((pairs[0], pairs[-1]))
            )
            yield shorten(f"{part}: {name} / sparse = {ends}", _WIDTH)
