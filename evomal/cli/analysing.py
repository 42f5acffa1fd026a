"""`evomal analyse`: the figures of losses and of recorded runs, and how every figure is saved and summarised."""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
import typer

from evomal.cli.options import AsJson, Classes, FigureFolder, RunFolder, RunFolders, echo_json
from evomal.errors import InputError
from evomal.figures.ancestry import Ancestry, ancestry, change_lines, draw_ancestry
from evomal.figures.filter_shares import FilterShares, draw_filter_shares, filter_shares
from evomal.figures.front import Front, draw_front, front
from evomal.figures.run_times import RunTimes, described, draw_run_times, run_times, unit_of
from evomal.figures.search_curves import SearchCurves, draw_search_curves, search_curves
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
from evomal.files import create_folder
from evomal.losses import CATALOGUE, Loss, load_loss
from evomal.losses.catalogue import is_specified, specified_loss
from evomal.paper.behaviour import OUTPUTS, Behaviours, behaviours, draw_behaviour
from evomal.paper.smoothing_cost import CLASSES as TIMED_CLASSES
from evomal.paper.smoothing_cost import WITH, WITHOUT, SmoothingCost, draw_smoothing_cost, smoothing_cost
from evomal.runs.reading import Runs, read_runs
from evomal.text import plural, printable, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = Path("figures")
WIDTH = 80
_MOST_LOSSES, _MOST_FORMULAS, _MOST_STEPS = 12, 5, 8
_ANALYSED = (
    "ce", "absolute-ce", "absolute-ce:phi1=1.5", "label-smoothing", "sparse-label-smoothing", "focal",
    "focal-sparse-label-smoothing",
)  # fmt: skip

Losses = Annotated[
    list[str] | None,
    typer.Argument(help='Loss files or names, such as "focal" or "focal:gamma=1".', show_default=False),
]


class FigureData(Protocol):
    """The data of a figure."""

    def columns(self) -> dict[str, list[Any]]:
        """Return the data as a table."""


def show(name: str, data: FigureData, figure: "Figure", summary: Iterable[str], *, out: Path, as_json: bool) -> None:
    """Save a figure and its data as `out/name.*`, then print the summary, or everything as JSON."""
    columns, lines = data.columns(), list(map(printable, summary))
    files = [str(path) for path in save_figure(figure, create_folder(out) / name, columns)]
    if as_json:
        echo_json({"kind": name, "summary": lines, "data": columns, "files": files})
        return
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        typer.echo("\n".join(textwrap.wrap(line, WIDTH, subsequent_indent=indent)))
    for path in files:
        typer.echo(f"wrote {path}")


def show_shapes(
    losses: Losses = None,
    family: Annotated[
        list[str] | None, typer.Option(help=f"A family of losses: {', '.join(FAMILIES)}; may be repeated.")
    ] = None,
    surface: Annotated[bool, typer.Option("--surface", help="Regression losses over target and output.")] = False,
    classes: Classes = 10,
    out: FigureFolder = FIGURES,
    as_json: AsJson = False,
) -> None:
    """Losses and their gradients, over the probability of an output or the error; by default all families."""
    chosen = _losses(losses or [])
    if surface:
        if family or not chosen:
            raise InputError("--surface needs the names or files of regression losses, and takes no --family")
        surfaces = loss_surfaces(chosen)
        show("surfaces", surfaces, draw_surfaces(surfaces), _surface_lines(surfaces), out=out, as_json=as_json)
        return
    if family and len(set(family)) < len(family):
        raise InputError(f"{next(name for name in family if family.count(name) > 1)} is given twice")
    shapes = shape_panels(chosen, family or (() if chosen else tuple(FAMILIES)), classes=classes)
    show("shapes", shapes, draw_shape_panels(shapes), _shape_lines(shapes), out=out, as_json=as_json)


def show_behaviour(
    losses: Losses = None, classes: Classes = 10, out: FigureFolder = FIGURES, as_json: AsJson = False
) -> None:
    """How losses push outputs at the beginning and at the end of training, derived symbolically."""
    found = behaviours(_losses(losses or list(_ANALYSED)), classes=classes)
    show("behaviour", found, draw_behaviour(found), _behaviour_lines(found), out=out, as_json=as_json)


def show_smoothing_cost(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    classes: Annotated[str, typer.Option(help="Numbers of classes, comma-separated.")] = ",".join(
        map(str, TIMED_CLASSES)
    ),
    rounds: Annotated[int, typer.Option(help="Rounds to take the median of.")] = 15,
    threads: Annotated[int | None, typer.Option(help="Threads of the processor (default: all).")] = None,
    out: FigureFolder = FIGURES,
    as_json: AsJson = False,
) -> None:
    """Run time of label smoothing against sparse label smoothing, over the number of classes."""
    try:
        counts = [int(part) for part in classes.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"classes must be whole numbers, comma-separated, but got {classes!r}") from None
    cost = smoothing_cost(counts, device=device, rounds=rounds, threads=threads, progress=True)
    show("smoothing-cost", cost, draw_smoothing_cost(cost), _cost_lines(cost), out=out, as_json=as_json)


def show_curves(folders: RunFolders, out: FigureFolder = FIGURES, as_json: AsJson = False) -> None:
    """The best value so far against generations and evaluations, one line per method."""
    data = search_curves(_runs(folders))
    show("curves", data, draw_search_curves(data), _curve_lines(data), out=out, as_json=as_json)


def show_filters(
    folders: RunFolders,
    across_tasks: Annotated[
        bool, typer.Option("--across-tasks", help="Average over all tasks, as the paper's figure does.")
    ] = False,
    out: FigureFolder = FIGURES,
    as_json: AsJson = False,
) -> None:
    """The outcomes of candidates, by generation."""
    data = filter_shares(_runs(folders), across_tasks=across_tasks)
    show("filters", data, draw_filter_shares(data), _filter_lines(data), out=out, as_json=as_json)


def show_runtime(folders: RunFolders, out: FigureFolder = FIGURES, as_json: AsJson = False) -> None:
    """The time that searches took, by method and stage."""
    data = run_times(_runs(folders))
    show("runtime", data, draw_run_times(data), _time_lines(data), out=out, as_json=as_json)


def show_front(folder: RunFolder, out: FigureFolder = FIGURES, as_json: AsJson = False) -> None:
    """Size against fitness of every loss that a run trained."""
    data = front(_runs([folder]))
    show("front", data, draw_front(data), _front_lines(data), out=out, as_json=as_json)


def show_ancestry(folder: RunFolder, out: FigureFolder = FIGURES, as_json: AsJson = False) -> None:
    """How the best formula of a run was found."""
    data = ancestry(_runs([folder]))
    show("ancestry", data, draw_ancestry(data), _ancestry_lines(data), out=out, as_json=as_json)


KINDS: dict[str, Callable[..., None]] = {
    "shapes": show_shapes,
    "behaviour": show_behaviour,
    "smoothing-cost": show_smoothing_cost,
    "curves": show_curves,
    "filters": show_filters,
    "runtime": show_runtime,
    "front": show_front,
    "ancestry": show_ancestry,
}


def _losses(specs: Sequence[str]) -> dict[str, Loss]:
    """The losses by the names that a figure shows: names as they are given, files by their own names."""
    found: dict[str, Loss] = {}
    for spec in specs:
        if not is_specified(spec) and not Path(spec).exists():
            names = ", ".join(CATALOGUE)
            raise InputError(f"a loss must be a name ({names}) or a loss file, but there is no {spec!r}")
        loss = specified_loss(spec) if is_specified(spec) else load_loss(spec)
        name = spec if is_specified(spec) else Path(spec).stem
        name = printable(spec if name in found else name)
        if name in found:
            raise InputError(f"{name} is given twice")
        found[name] = loss
    return found


def _runs(folders: Sequence[Path]) -> Runs:
    runs = read_runs(folders, progress=True)
    if not runs.runs:
        raise InputError(runs.sentence)
    return runs


def _shape_lines(shapes: ShapePanels) -> Iterator[str]:
    is_regression = shapes.kind == "regression"
    units = ", in standardised units" if shapes.is_standardised else ""
    where = f"the error f - y{units}" if is_regression else f"an output f, C = {shapes.classes}"
    lowest = "lowest" if is_regression else f"lowest as {shapes.rows[0].panels[0].name}"
    yield f"loss and gradient by f over {where}; {lowest}:"
    for row in shapes.rows[:_MOST_LOSSES]:
        places = [
            _lowest(curve.value, shapes.positions) + (f" ({curve.name})" if curve.name else "")
            for curve in row.panels[0].curves
        ]
        shown = ", ".join(places) if len(places) <= 3 else f"{places[0]} to {places[-1]}"
        yield shorten(f"{row.title}: at {shapes.position_name} = {shown}", WIDTH)
    yield from _more(len(shapes.rows))


def _lowest(values: FloatArray, positions: FloatArray) -> str:
    finite = np.where(np.isfinite(values), values, np.inf)
    return f"{positions[finite.argmin()]:.2f}" if np.isfinite(finite).any() else "nowhere"


def _surface_lines(surfaces: Surfaces) -> Iterator[str]:
    units = ", in standardised units" if surfaces.is_standardised else ""
    yield f"loss over target y and output f, both from -3 to 3{units}"
    for surface in surfaces.surfaces[:_MOST_LOSSES]:
        finite = surface.value[np.isfinite(surface.value)]
        values = f"from {finite.min():.4g} to {finite.max():.4g}" if finite.size else "nowhere finite"
        yield shorten(f"{surface.name}: {values}", WIDTH)
    yield from _more(len(surfaces.surfaces))


def _more(count: int) -> Iterator[str]:
    if count > _MOST_LOSSES:
        yield f"and {count - _MOST_LOSSES} more"


def _behaviour_lines(found: Behaviours) -> Iterator[str]:
    yield f"push δ = -∂L/∂f, non-target / target, at C = {found.classes}"
    for loss in found.losses[:_MOST_LOSSES]:
        yield shorten(loss.name, WIDTH)
        for regime, words in (("null epoch", "null epoch"), ("zero error", "near zero error")):
            pushes = [loss.at(regime, output) for output in OUTPUTS]  # type: ignore[arg-type]
            formulas = " / ".join(push.text for push in pushes)
            values = " / ".join(f"{push.value:.4g}" for push in pushes)
            is_same = formulas.replace("oo", "inf") == values
            yield shorten(f"  {words}: {values}" + ("" if is_same else f"  ({formulas})"), WIDTH)
        yield f"  {loss.sentence}"
        by_epsilon = [push for push in loss.deltas if push.differs_by_epsilon]
        if by_epsilon:
            places = ", ".join(f"{push.exact:.4g} ({push.output}, {push.regime})" for push in by_epsilon)
            yield shorten(f"  with ε = 1e-7 it is {places}", WIDTH)
        numeric = sum(push.how == "numeric" for push in loss.deltas)
        if numeric:
            yield f"  {numeric} of {len(loss.deltas)} are numbers, as SymPy found no formula"
    yield from _more(len(found.losses))


def _cost_lines(cost: SmoothingCost) -> Iterator[str]:
    yield shorten(f"forward and backward, median of {cost.rounds} rounds; {cost.hardware}", WIDTH)
    for part in (WITH, WITHOUT):
        *others, sparse = cost.names(part)
        for name in others:
            pairs = list(zip(cost.line(part, name), cost.line(part, sparse), strict=True))
            ends = dict.fromkeys((pairs[0], pairs[-1]))
            ratios = ", ".join(f"{slow.median / fast.median:.2f} at {slow.classes}" for slow, fast in ends)
            yield shorten(f"{part}: {name} / sparse = {ratios}", WIDTH)


def _curve_lines(data: SearchCurves) -> Iterator[str]:
    lines = []
    for curve in data.curves:
        if curve.against == "generation":
            count, total = int(curve.searches[-1]), curve.total
            n = f"{count}" if count == total else f"{count} of {total}"
            value = _with_deviation(curve.mean[-1], curve.deviation[-1])
            after = f"after {plural(int(curve.positions[-1]), 'generation')} (n = {n})"
            lines.append((f"{curve.task}, best validation {curve.metric}", f"{_name(curve.method)} {value} {after}"))
    return _by_task(lines, data.sentence, *data.notes)


def _filter_lines(data: FilterShares) -> Iterator[str]:
    lines = []
    for group in data.groups:
        total = sum(group.totals.values())
        counts = ", ".join(f"{count} {state} ({_percent(count / total)})" for state, count in group.totals.items())
        number = f"{plural(total, 'candidate')} of {plural(group.total_searches, 'search')}"
        lines.append((group.task, f"{_name(group.method)} {number}: {counts}"))
    return _by_task(lines, data.sentence, *data.notes)


def _time_lines(data: RunTimes) -> Iterator[str]:
    lines = []
    for group in data.groups:
        length, unit = unit_of(group.total)
        total = _with_deviation(group.total / length, group.deviation / length, digits=3)
        stages = ", ".join(f"{stage} {seconds / length:.3g}" for stage, seconds in group.stages.items())
        text = f"{_name(group.method)} {total} {unit}, {described(group)}: {stages or 'no time is recorded'}"
        lines.append((f"{group.task}, {group.hardware}", text))
    return _by_task(lines, data.sentence, *data.notes)


def _front_lines(data: Front) -> Iterator[str]:
    if not data.points:
        yield data.sentence
        return
    trained = f"{len(data.points)} losses trained with" if len(data.points) > 1 else "one loss trained with"
    yield f"{data.task}, {data.method}: {trained}, {len(data.best)} on the front of size and {data.metric}"
    if len(data.points) > 1 and data.points[0].size == data.points[-1].size:
        yield "all of them have the same size, so that the front is the best one"
    if data.unsized:
        yield f"{data.unsized} more are no formulas, so that they have no size"
    shown = data.best[-_MOST_FORMULAS:]  # the fittest
    if len(shown) < len(data.best):
        yield f"  … {len(data.best) - len(shown)} smaller …"
    for point in shown:
        yield shorten(f"  size {point.size:>3} {point.value:>9.4g}  {point.formula()}", WIDTH)


def _ancestry_lines(data: Ancestry) -> Iterator[str]:
    if not data.ancestors:
        yield data.sentence
        return
    best, count = data.ancestors[-1], len(data.ancestors) - 1
    ancestors = f"with {plural(count, 'ancestor')}" if count else "without ancestors"
    yield f"{data.task}, {data.method}: {data.metric} {best.value:.4g} in generation {best.generation}, {ancestors}"
    if data.sentence:
        yield data.sentence
    yield from change_lines(data.changes(), most=_MOST_STEPS, length=WIDTH)
    if count:
        yield shorten(f"best {best.genome}", WIDTH)


def _by_task(pairs: Sequence[tuple[str, str]], *notes: str) -> Iterator[str]:
    """The texts, indented under a heading for each task, then the notes."""
    heading = None
    for task, text in pairs:
        if task != heading:
            heading = task
            yield task
        yield f"  {text}"
    yield from filter(None, notes)


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"


def _name(method: str) -> str:
    return f"{shorten(method, 20):<9}"


def _with_deviation(mean: float, deviation: float, *, digits: int = 4) -> str:
    return f"{mean:.{digits}g}" + ("" if math.isnan(deviation) else f" ± {deviation:.{digits}g}")
