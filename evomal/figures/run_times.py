"""Seconds of a search, by method with the stages it spends them in (EvoMAL, table 5)."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evomal.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    SKY,
    add_note,
    figure_style,
    in_figure,
    new_figure,
    sentence_figure,
)
from evomal.methods.judging import TIMED_AS
from evomal.runs.reading import Run, Runs
from evomal.text import plural, shorten

OTHER = "other"
_LONGEST = 1e100  # seconds; sums of such still are numbers, and nobody waited longer
_STAGES = tuple(dict.fromkeys(TIMED_AS.values()))


@dataclass(frozen=True)
class MethodTimes:
    """What the searches of one method on one task took, as far as they are recorded."""

    task: str
    method: str
    hardware: str
    stages: Mapping[str, float]
    """Mean seconds of a search."""
    total: float
    deviation: float
    """Standard deviation of the total; NaN where there is one search alone."""
    searches: int
    complete: int
    """How many of them came to their end; a budget or an interruption ended the others."""
    generations: tuple[int, int]
    """The fewest and the most of a search."""


@dataclass(frozen=True)
class RunTimes:
    """Times by task and method."""

    groups: tuple[MethodTimes, ...]
    sentence: str
    """Why there are none."""
    notes: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """All that occur, in the order in which a candidate comes through them."""
        found = {stage for group in self.groups for stage in group.stages}
        return tuple(stage for stage in (*_STAGES, OTHER) if stage in found)

    def columns(self) -> dict[str, list[Any]]:
        """A row for each stage of each method, with the total beside it."""
        names = (
            "task", "method", "hardware", "stage", "mean seconds", "mean total", "standard deviation of total",
            "searches", "complete", "fewest generations", "most generations",
        )  # fmt: skip
        rows = [
            (
                group.task, group.method, group.hardware, stage, seconds, group.total, group.deviation,
                group.searches, group.complete, *group.generations,
            )
            for group in self.groups
            for stage, seconds in group.stages.items()
        ]  # fmt: skip
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def run_times(runs: Runs) -> RunTimes:
    """Seconds of the stages as recorded: what candidates took, not what starting or drawing did."""
    groups = []
    for methods in runs.by_method().values():
        for found in methods.values():
            begun = [run for run in found if run.candidates]
            if begun:
                groups.append(_times(begun))
    sentence = runs.sentence or ("" if groups else "nothing is recorded yet in these runs")
    return RunTimes(tuple(groups), sentence, runs.notes)


def _times(group: Sequence[Run]) -> MethodTimes:
    each = [_seconds(run) for run in group]
    totals = [math.fsum(seconds.values()) for seconds in each]
    stages = {
        stage: math.fsum(seconds.get(stage, 0.0) for seconds in each) / len(each)
        for stage in (*_STAGES, OTHER)
        if any(stage in seconds for seconds in each)
    }
    generations = [run.generations for run in group]
    return MethodTimes(
        task=group[0].task,
        method=group[0].method,
        hardware="; ".join(sorted({run.hardware for run in group})),
        stages=stages,
        total=math.fsum(totals) / len(totals),
        deviation=statistics.stdev(totals) if len(totals) > 1 else math.nan,
        searches=len(group),
        complete=sum(run.is_complete for run in group),
        generations=(min(generations), max(generations)),
    )


def _seconds(run: Run) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for candidate in run.computed:
        for stage, seconds in candidate.seconds.items():
            # Records of others may name stages as they like, and a figure has few colours.
            found.setdefault(stage if stage in _STAGES else OTHER, []).append(min(seconds, _LONGEST))
    return {stage: math.fsum(seconds) for stage, seconds in found.items()}


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR_HEIGHT, _HEIGHT_OF_A_TASK, _HEIGHT_OF_THE_REST = 0.34, 0.6, 0.55
_COLOURS = {"filter": ORANGE, "optimise": SKY, "evaluate": BLUE}
_UNITS = ((7200.0, 3600.0, "hours"), (600.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""From so many seconds on, what a unit holds of them, and its name."""
_LONGEST_TITLE = 80
_CAPTION = "mean of the searches; line: ±1 standard deviation of the total"


def draw_run_times(data: RunTimes) -> "Figure":
    """A figure of page width, the tasks below each other, each with an axis of its own."""
    if not data.groups:
        return sentence_figure(data.sentence, "page")
    tasks: dict[str, list[MethodTimes]] = {}
    for group in data.groups:
        tasks.setdefault(group.task, []).append(group)
    heights = [_BAR_HEIGHT * len(groups) + _HEIGHT_OF_A_TASK for groups in tasks.values()]
    figure = new_figure("page", sum(heights) + _HEIGHT_OF_THE_REST)
    with figure_style():
        panels = figure.subplots(len(tasks), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for axes, (task, groups) in zip(panels, tasks.items(), strict=True):
            axes.set_title(in_figure(shorten(task, _LONGEST_TITLE)), loc="left")
            _draw(axes, groups, data.stages)
        add_note(figure, _CAPTION)
        if handles := _handles(data.stages):
            figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), handlelength=1.0)
    return figure


def unit_of(seconds: float) -> tuple[float, str]:
    """How many seconds the unit holds in which such a time is best said, and its name."""
    return next((length, name) for least, length, name in _UNITS if seconds >= least)


def described(group: MethodTimes) -> str:
    """How many searches a bar is the mean of, and how far they came."""
    fewest, most = group.generations
    generations = plural(most, "generation") if fewest == most else f"{fewest} to {most} generations"
    ended = "" if group.complete == group.searches else f" ({group.complete} complete)"
    return f"{plural(group.searches, 'search')}{ended} of {generations}"


def _draw(axes: "Axes", groups: Sequence[MethodTimes], stages: Sequence[str]) -> None:
    length, unit = unit_of(max(group.total for group in groups))
    for place, group in enumerate(groups):
        left = 0.0
        for stage in stages:
            if stage in group.stages:
                width = group.stages[stage] / length
                axes.barh(place, width, left=left, height=0.62, color=_COLOURS.get(stage, GREY))
                left += width
        spread = 0.0 if math.isnan(group.deviation) else group.deviation / length
        if spread:
            axes.errorbar(left, place, xerr=[[min(spread, left)], [spread]], color=INK, linewidth=0.8, capsize=2)
        text = f"{group.total / length:.3g} {unit}\n{described(group)}"
        axes.annotate(
            text, (left + spread, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=6.5
        )
    longest = max(group.total + (0.0 if math.isnan(group.deviation) else group.deviation) for group in groups)
    axes.set_xlim(0, 1.6 * longest / length or 1.0)  # room for what stands behind the bars
    axes.set_yticks(range(len(groups)), [in_figure(shorten(group.method, 20)) for group in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    hardware = "; ".join(dict.fromkeys(group.hardware for group in groups))
    axes.set_xlabel(f"{unit} a search ({in_figure(shorten(hardware, _LONGEST_TITLE))})")


def _handles(stages: Sequence[str]) -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=_COLOURS.get(stage, GREY), linewidth=0, label=stage) for stage in stages]
