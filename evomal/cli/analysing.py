"""`evomal analyse`: the figures of losses and of recorded runs, and how every figure is saved and summarised."""

import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from evomal.cli.options import (
    AsJson,
    Classes,
    Device,
    FigureFolder,
    RunFolder,
    RunFolders,
    echo,
    echo_json,
    given_options,
    listed,
    with_parameters,
)
from evomal.errors import InputError
from evomal.files import create_folder
from evomal.text import WIDTH, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from evomal.losses import Loss
    from evomal.runs.recorded_run import Runs

FIGURES = Path("figures")
_ANALYSED = (
    "ce", "absolute-ce", "absolute-ce:phi1=1.5", "label-smoothing", "sparse-label-smoothing", "focal",
    "focal-sparse-label-smoothing",
)  # fmt: skip

LossNames = Annotated[
    list[str] | None, typer.Argument(help='Names of losses or loss files, such as "focal:gamma=1".', show_default=False)
]


class FigureData(Protocol):
    """The data of a figure."""

    def columns(self) -> dict[str, list[Any]]:
        """Return the data as a table."""


Drawn = tuple[str, FigureData, "Figure", Iterable[str]]
"""The name of a figure, its data, the figure, and the lines that summarise it."""


def draws(command: Callable[..., Drawn]) -> Callable[..., None]:
    """Turns a function that draws a figure into a command with `--out` and `--json` that saves and summarises it."""

    @functools.wraps(command)
    def called(*, out: Path, as_json: bool, **given: Any) -> None:
        show(*command(**given), out=out, as_json=as_json)

    saving = inspect.signature(show).parameters
    return with_parameters(called, [*inspect.signature(command).parameters.values(), saving["out"], saving["as_json"]])


def show(
    name: str,
    data: FigureData,
    figure: "Figure",
    summary: Iterable[str],
    *,
    out: FigureFolder = FIGURES,
    as_json: AsJson = False,
) -> None:
    """Save a figure and its data as `out/name.*`, then print the summary, or everything as JSON."""
    from evomal.figures.style import save_figure

    columns, lines = data.columns(), list(map(printable, summary))
    files = [str(path) for path in save_figure(figure, create_folder(out) / name, columns)]
    if as_json:
        echo_json({"kind": name, "summary": lines, "data": columns, "files": files})
        return
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        echo(*textwrap.wrap(line, WIDTH, subsequent_indent=indent))
    for path in files:
        echo(f"wrote {path}")


@draws
def show_shapes(
    context: typer.Context,
    losses: LossNames = None,
    family: Annotated[
        list[str] | None,
        typer.Option(
            help="A family of losses: absolute-ce, label-smoothing, sparse-label-smoothing, focal or focal-sparse; "
            "may be repeated."
        ),
    ] = None,
    surface: Annotated[bool, typer.Option("--surface", help="Draw regression losses over target and output.")] = False,
    classes: Classes = 10,
) -> Drawn:
    """Draw losses and their gradients over the output or the error; by default all families."""
    from evomal.figures.shape_panels import FAMILIES, draw_shape_panels, draw_surfaces, loss_surfaces, shape_panels
    from evomal.report import figure_lines

    chosen = _losses(losses or [])
    if surface:
        if not chosen or given_options(context, "family", "classes"):
            rule = "needs the names or files of regression losses, and takes neither --family nor --classes"
            raise InputError(f"--surface {rule}")
        surfaces = loss_surfaces(chosen)
        return "surfaces", surfaces, draw_surfaces(surfaces), figure_lines.surface_lines(surfaces)
    if family and len(set(family)) < len(family):
        raise InputError(f"{next(name for name in family if family.count(name) > 1)} is given twice")
    for name, loss in chosen.items():
        if loss.kind == "regression" and given_options(context, "classes"):
            raise InputError(f"--classes is for classification losses, but {name} is for regression")
    shapes = shape_panels(chosen, family or (() if chosen else tuple(FAMILIES)), classes=classes)
    return "shapes", shapes, draw_shape_panels(shapes), figure_lines.shape_lines(shapes)


@draws
def show_behaviour(losses: LossNames = None, classes: Classes = 10) -> Drawn:
    """Draw how losses push outputs at the beginning and at the end of training, derived symbolically."""
    from evomal.paper.behaviour import behaviours, draw_behaviour
    from evomal.report.figure_lines import behaviour_lines

    found = behaviours(_losses(losses or list(_ANALYSED)), classes=classes)
    return "behaviour", found, draw_behaviour(found), behaviour_lines(found)


@draws
def show_smoothing_cost(
    device: Device = "auto",
    classes: Annotated[
        list[str] | None, typer.Option(help="Numbers of classes, comma-separated (default: from 3 to 10000).")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of rounds; the result is their median.")] = 15,
    threads: Annotated[int | None, typer.Option(help="Number of CPU threads (default: all).")] = None,
) -> Drawn:
    """Draw the run time of label smoothing and of sparse label smoothing over the number of classes."""
    from evomal.paper.smoothing_cost import CLASSES, draw_smoothing_cost, smoothing_cost
    from evomal.report.figure_lines import cost_lines

    try:
        counts = [int(part) for part in listed(classes) or () if part] if classes else CLASSES
    except ValueError:
        received = ",".join(classes or ())
        raise InputError(f"classes must be whole numbers, comma-separated, but got {received!r}") from None
    cost = smoothing_cost(counts, device=device, rounds=rounds, threads=threads)
    return "smoothing-cost", cost, draw_smoothing_cost(cost), cost_lines(cost)


@draws
def show_filters(
    folders: RunFolders,
    across_tasks: Annotated[
        bool, typer.Option("--across-tasks", help="Average over all tasks, as in the paper.")
    ] = False,
) -> Drawn:
    """Draw what became of the candidates of each generation."""
    from evomal.figures.filter_shares import draw_filter_shares, filter_shares
    from evomal.report.figure_lines import filter_lines

    data = filter_shares(_runs(folders), across_tasks=across_tasks)
    return "filters", data, draw_filter_shares(data), filter_lines(data)


def _of_runs(
    kind: str, about: str, module: str, data: str, draw: str, lines: str, *, several: bool = False
) -> Callable[..., None]:
    """Returns a command that draws a figure of one recorded run or of several, by the functions of these names."""

    def drawn(folders: Sequence[Path]) -> Drawn:
        from evomal.report import figure_lines

        figure = importlib.import_module(f"evomal.figures.{module}")
        found = getattr(figure, data)(_runs(folders))
        return kind, found, getattr(figure, draw)(found), getattr(figure_lines, lines)(found)

    def of_one(folder: RunFolder) -> Drawn:
        return drawn([folder])

    def of_several(folders: RunFolders) -> Drawn:
        return drawn(folders)

    command = of_several if several else of_one
    command.__doc__ = about
    return draws(command)


KINDS: dict[str, Callable[..., None]] = {
    "shapes": show_shapes,
    "behaviour": show_behaviour,
    "smoothing-cost": show_smoothing_cost,
    "curves": _of_runs(
        "curves", "Draw the best value so far over generations and evaluations, one line per method.",
        "search_curves", "search_curves", "draw_search_curves", "curve_lines", several=True,
    ),
    "filters": show_filters,
    "runtime": _of_runs(
        "runtime", "Draw the time that searches took, by method and stage.",
        "run_times", "run_times", "draw_run_times", "time_lines", several=True,
    ),
    "front": _of_runs(
        "front", "Draw fitness over size for every loss that a run trained.",
        "front", "front", "draw_front", "front_lines",
    ),
    "rungs": _of_runs(
        "rungs", "Draw whether the candidates of a run that led on a rung lead on the next.",
        "rungs", "rung_steps", "draw_rungs", "rung_lines",
    ),
    "headroom": _of_runs(
        "headroom", "Draw the known losses that a run measured first, beside the noise of their differences.",
        "known_losses", "run_headroom", "draw_headroom", "headroom_lines",
    ),
    "ancestry": _of_runs(
        "ancestry", "Draw the ancestors of the best loss of a run.",
        "ancestry", "ancestry", "draw_ancestry", "ancestry_lines",
    ),
}  # fmt: skip


def _losses(specs: Sequence[str]) -> "dict[str, Loss]":
    """The losses by the names that a figure shows: names as they are given, files by their own names."""
    from evomal.losses import CATALOGUE, load_loss
    from evomal.losses.catalogue import is_specified, specified_loss
    from evomal.losses.files import is_loss_file

    found: dict[str, Loss] = {}
    for spec in specs:
        if not is_specified(spec) and not is_loss_file(spec):
            names = ", ".join(CATALOGUE)
            raise InputError(f"a loss must be a name ({names}) or a loss file, but there is no {spec!r}")
        loss = specified_loss(spec) if is_specified(spec) else load_loss(spec)
        name = spec if is_specified(spec) else Path(spec).stem
        name = printable(spec if name in found else name)
        if name in found:
            raise InputError(f"{name} is given twice")
        found[name] = loss
    return found


def _runs(folders: Sequence[Path]) -> "Runs":
    from evomal.runs.reading import read_runs

    runs = read_runs(folders, progress=True)
    if not runs.runs:
        raise InputError(runs.sentence)
    return runs
