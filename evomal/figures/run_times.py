"""The time that searches take, by method and stage (EvoMAL, table 5)."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evomal.figures import style
from evomal.figures.data import NOTHING_RECORDED, table
from evomal.figures.style import BLUE, GREY, INK, ORANGE, SKY, Axes, Figure
from evomal.methods.evaluation import TIMED_AS
from evomal.runs.recorded_run import Run, Runs
from evomal.text import plural

_STAGES = (*dict.fromkeys(TIMED_AS.values()), "other")
"""In the order in which a candidate passes them; `other` is what else a record names."""
_LONGEST = 1e100  # seconds; larger numbers in a record cannot be times, and their sum would not be finite


@dataclass(frozen=True)
class MethodTimes:
    """The recorded times of the searches of one method on one task."""

    task: str
    method: str
    hardware: str
    stages: Mapping[str, float]
    """Mean seconds of a search by stage."""
    total: float
    deviation: float
    """The standard deviation of the total; NaN for a single search."""
    searches: int
    complete: int
    """How many searches are complete; a budget or an interruption ended the others."""
    generations: tuple[int, int]
    """The fewest and the most of a search."""


@dataclass(frozen=True)
class RunTimes:
    """The times by task and method."""

    groups: tuple[MethodTimes, ...]
    sentence: str
    """Why there are none."""
    notes: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """All stages that occur."""
        return tuple(stage for stage in _STAGES if any(stage in group.stages for group in self.groups))

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per stage of each method, with the total beside it."""
        return table(
            (
                "task", "method", "hardware", "stage", "mean seconds", "mean total", "standard deviation of total",
                "searches", "complete", "fewest generations", "most generations",
            ),
            (
                (
                    group.task, group.method, group.hardware, stage, seconds, group.total, group.deviation,
                    group.searches, group.complete, *group.generations,
                )
                for group in self.groups
                for stage, seconds in group.stages.items()
            ),
        )  # fmt: skip


def run_times(runs: Runs) -> RunTimes:
    """Average the recorded times of candidates; the time to start a search or to draw its figures is not recorded."""
    found = [group for methods in runs.by_method().values() for group in methods.values()]
    begun = [[run for run in group if run.candidates] for group in found]
    groups = tuple(_times(group) for group in begun if group)
    return RunTimes(groups, runs.sentence or ("" if groups else NOTHING_RECORDED), runs.notes)


def _times(group: Sequence[Run]) -> MethodTimes:
    each = [_seconds(run) for run in group]
    totals = [math.fsum(seconds.values()) for seconds in each]
    generations = [run.generations for run in group]
    return MethodTimes(
        task=group[0].task,
        method=group[0].method,
        hardware="; ".join(sorted({run.hardware for run in group})),
        stages={
            stage: math.fsum(seconds.get(stage, 0.0) for seconds in each) / len(each)
            for stage in _STAGES
            if any(stage in seconds for seconds in each)
        },
        total=math.fsum(totals) / len(totals),
        deviation=statistics.stdev(totals) if len(totals) > 1 else math.nan,
        searches=len(group),
        complete=sum(run.is_complete for run in group),
        generations=(min(generations), max(generations)),
    )


def _seconds(run: Run) -> dict[str, float]:
    """The seconds of all candidates by stage."""
    found: dict[str, list[float]] = {}
    for candidate in run.computed:
        for stage, seconds in candidate.seconds.items():
            # A record may name any stage, and a figure has few colours.
            found.setdefault(stage if stage in _STAGES else "other", []).append(min(seconds, _LONGEST))
    return {stage: math.fsum(seconds) for stage, seconds in found.items()}


_BAR_HEIGHT, _TASK_HEIGHT, _REST_HEIGHT = 0.34, 0.6, 0.55
_COLOURS = {"filter": ORANGE, "optimise": SKY, "evaluate": BLUE}
_UNITS = ((7200.0, 3600.0, "hours"), (600.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""The fewest seconds that a unit is used for, its length in seconds, and its name."""
_LONGEST_TITLE = 80


@style.figure_style()
def draw_run_times(data: RunTimes) -> Figure:
    """Draw one stacked bar per method, with a panel for each task."""
    if not data.groups:
        return style.sentence_figure(data.sentence, "page")
    tasks: dict[str, list[MethodTimes]] = {}
    for group in data.groups:
        tasks.setdefault(group.task, []).append(group)
    heights = [_BAR_HEIGHT * len(groups) + _TASK_HEIGHT for groups in tasks.values()]
    figure = style.new_figure("page", sum(heights) + _REST_HEIGHT)
    grid = figure.subplots(len(tasks), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, (task, groups) in zip(grid, tasks.items(), strict=True):
        axes.set_title(style.figure_text(task, _LONGEST_TITLE), loc="left")
        _draw(axes, groups)
    style.add_note(figure, "mean of the searches; line: ±1 standard deviation of the total")
    style.add_patch_legend(figure, {stage: _COLOURS.get(stage, GREY) for stage in data.stages})
    return figure


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the length in seconds, and the name, of the unit in which such a time is best given."""
    return next((length, name) for least, length, name in _UNITS if seconds >= least)


def described(group: MethodTimes) -> str:
    """Return how many searches the times are the mean of, and how many generations these have."""
    fewest, most = group.generations
    generations = plural(most, "generation") if fewest == most else f"{fewest} to {most} generations"
    ended = "" if group.complete == group.searches else f" ({group.complete} complete)"
    return f"{plural(group.searches, 'search')}{ended} of {generations}"


def _draw(axes: Axes, groups: Sequence[MethodTimes]) -> None:
    length, unit = unit_of(max(group.total for group in groups))
    right = 0.0
    for place, group in enumerate(groups):
        left = 0.0
        for stage, seconds in group.stages.items():
            axes.barh(place, seconds / length, left=left, height=0.62, color=_COLOURS.get(stage, GREY))
            left += seconds / length
        spread = 0.0 if math.isnan(group.deviation) else group.deviation / length
        if spread:
            axes.errorbar(left, place, xerr=[[min(spread, left)], [spread]], color=INK, linewidth=0.8, capsize=2)
        right = max(right, left + spread)
        axes.annotate(
            f"{group.total / length:.3g} {unit}\n{described(group)}", (left + spread, place), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=6.5,
        )  # fmt: skip
    axes.set_xlim(0, 1.6 * right or 1.0)  # room for the text behind the bars
    axes.set_yticks(range(len(groups)), [style.figure_text(group.method, 20) for group in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    hardware = "; ".join(dict.fromkeys(group.hardware for group in groups))
    axes.set_xlabel(f"{unit} per search ({style.figure_text(hardware, _LONGEST_TITLE)})")
