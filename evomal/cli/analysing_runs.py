"""`evomal analyse` of what runs recorded: curves, filters, runtime, front, ancestry."""

import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from evomal.cli.analysing_losses import FIGURES, Out, show_figure
from evomal.cli.options import AsJson
from evomal.errors import InputError
from evomal.figures.ancestry import Ancestry, ancestry, change_lines, draw_ancestry
from evomal.figures.filter_shares import FilterShares, draw_filter_shares, filter_shares
from evomal.figures.front import Front, draw_front, front
from evomal.figures.run_times import RunTimes, described, draw_run_times, run_times, unit_of
from evomal.figures.search_curves import SearchCurves, draw_search_curves, search_curves
from evomal.runs.reading import Runs, chosen_runs
from evomal.text import plural, printable, shorten

_WIDTH = 80
_MOST_FORMULAS = 5
_MOST_STEPS = 8

Folders = Annotated[list[Path], typer.Argument(help="Folders of runs, or of folders of runs.", show_default=False)]
Folder = Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)]


def show_curves(folders: Folders, out: Out = FIGURES, as_json: AsJson = False) -> None:
    """The best so far against generations and evaluations, a line a method."""
    data = search_curves(_runs(folders))
    lines = _curve_lines(data)
    show_figure("curves", draw_search_curves(data), data.columns(), lines, out=out, as_json=as_json)


def show_filters(
    folders: Folders,
    across_tasks: Annotated[
        bool, typer.Option("--across-tasks", help="Average over all tasks, as the paper's figure does.")
    ] = False,
    out: Out = FIGURES,
    as_json: AsJson = False,
) -> None:
    """What became of candidates, by generation."""
    data = filter_shares(_runs(folders), across_tasks=across_tasks)
    lines = _filter_lines(data)
    show_figure("filters", draw_filter_shares(data), data.columns(), lines, out=out, as_json=as_json)


def show_runtime(folders: Folders, out: Out = FIGURES, as_json: AsJson = False) -> None:
    """What searches took, by method and stage."""
    data = run_times(_runs(folders))
    lines = _time_lines(data)
    show_figure("runtime", draw_run_times(data), data.columns(), lines, out=out, as_json=as_json)


def show_front(folder: Folder, out: Out = FIGURES, as_json: AsJson = False) -> None:
    """Size against fitness of every loss that a run trained."""
    data = front(_runs([folder]))
    lines = _front_lines(data)
    show_figure("front", draw_front(data), data.columns(), lines, out=out, as_json=as_json)


def show_ancestry(folder: Folder, out: Out = FIGURES, as_json: AsJson = False) -> None:
    """How the best formula of a run came about."""
    data = ancestry(_runs([folder]))
    lines = _ancestry_lines(data)
    show_figure("ancestry", draw_ancestry(data), data.columns(), lines, out=out, as_json=as_json)


def _runs(folders: Sequence[Path]) -> Runs:
    runs = chosen_runs(folders, progress=True)
    if not runs.runs:
        raise InputError(runs.sentence)
    return runs


KINDS: dict[str, Callable[..., None]] = {
    "curves": show_curves,
    "filters": show_filters,
    "runtime": show_runtime,
    "front": show_front,
    "ancestry": show_ancestry,
}


def _curve_lines(data: SearchCurves) -> list[str]:
    lines = []
    for curve in data.curves:
        if curve.against == "generation":
            n = (
                f"{curve.searches[-1]}"
                if curve.searches[-1] == curve.total
                else f"{curve.searches[-1]} of {curve.total}"
            )
            value = _with_spread(curve.mean[-1], curve.deviation[-1])
            after = f"after {plural(int(curve.positions[-1]), 'generation')} (n = {n})"
            lines.append((f"{curve.task}, best validation {curve.metric}", f"{_name(curve.method)} {value} {after}"))
    return _by_task(lines, data.sentence, data.notes)


def _filter_lines(data: FilterShares) -> list[str]:
    lines = []
    for group in data.groups:
        total = sum(group.totals.values())
        counts = ", ".join(f"{count} {state} ({_percent(count / total)})" for state, count in group.totals.items())
        many = f"{plural(total, 'candidate')} of {plural(group.total_searches, 'search')}"
        lines.append((group.task, f"{_name(group.method)} {many}: {counts}"))
    return _by_task(lines, data.sentence, data.notes)


def _time_lines(data: RunTimes) -> list[str]:
    lines = []
    for group in data.groups:
        length, unit = unit_of(group.total)
        total = _with_spread(group.total / length, group.deviation / length, digits=3)
        stages = ", ".join(f"{stage} {seconds / length:.3g}" for stage, seconds in group.stages.items())
        text = f"{_name(group.method)} {total} {unit}, {described(group)}: {stages or 'no time is recorded'}"
        lines.append((f"{group.task}, {group.hardware}", text))
    return _by_task(lines, data.sentence, data.notes)


def _front_lines(data: Front) -> list[str]:
    if not data.points:
        return _wrapped(data.sentence)
    trained = f"{len(data.points)} losses trained with" if len(data.points) > 1 else "one loss trained with"
    lines = _wrapped(f"{data.task}, {data.method}: {trained}, {len(data.best)} on the front of size and {data.metric}")
    if len(data.points) > 1 and data.points[0].size == data.points[-1].size:
        lines += _wrapped("all of them have one size, so that the front is the best alone")
    if data.unsized:
        lines += _wrapped(f"{data.unsized} more have a size that cannot be told, as they are no formulas")
    shown = data.best[-_MOST_FORMULAS:]  # the fittest
    if len(shown) < len(data.best):
        lines.append(f"  … {len(data.best) - len(shown)} smaller …")
    lines += [_line(f"  size {point.size:>3} {point.value:>9.4g}  {point.formula()}") for point in shown]
    return lines


def _ancestry_lines(data: Ancestry) -> list[str]:
    if not data.ancestors:
        return _wrapped(data.sentence)
    best = data.ancestors[-1]
    count = len(data.ancestors) - 1
    with_them = f"with {plural(count, 'ancestor')}" if count else "without ancestors"
    lines = _wrapped(
        f"{data.task}, {data.method}: {data.metric} {best.value:.4g} in generation {best.generation}, {with_them}"
    )
    lines += _wrapped(data.sentence)
    lines += map(printable, change_lines(data.changes(), most=_MOST_STEPS, length=_WIDTH))
    return [*lines, _line(f"best {best.genome}")] if count else lines


def _by_task(pairs: Sequence[tuple[str, str]], sentence: str, notes: Sequence[str]) -> list[str]:
    """Lines under a heading for each task, then what else is to be said."""
    lines: list[str] = []
    heading = None
    for task, text in pairs:
        if task != heading:
            heading = task
            lines += _wrapped(task)
        lines += _wrapped(text, indent="  ")
    for note in (sentence, *notes):
        lines += _wrapped(note)
    return lines


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"


def _name(method: str) -> str:
    return f"{shorten(method, 20):<9}"


def _with_spread(mean: float, deviation: float, *, digits: int = 4) -> str:
    return f"{mean:.{digits}g}" + ("" if math.isnan(deviation) else f" ± {deviation:.{digits}g}")


def _line(text: str) -> str:
    return shorten(printable(text), _WIDTH)


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text), _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ", drop_whitespace=True
    )
