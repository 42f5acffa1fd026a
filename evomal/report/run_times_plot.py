"""What searches took: a bar a method, made of its stages."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evomal.analysis.counting import counted
from evomal.analysis.run_times import MethodTimes, RunTimes
from evomal.report.bands import add_note
from evomal.report.harmless import cut
from evomal.report.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    SKY,
    figure_style,
    in_figure,
    new_figure,
    sentence_figure,
)

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
            axes.set_title(in_figure(cut(task, _LONGEST_TITLE)), loc="left")
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
    generations = counted(most, "generation") if fewest == most else f"{fewest} to {most} generations"
    ended = "" if group.complete == group.searches else f" ({group.complete} complete)"
    return f"{counted(group.searches, 'search')}{ended} of {generations}"


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
    axes.set_yticks(range(len(groups)), [in_figure(cut(group.method, 20)) for group in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    hardware = "; ".join(dict.fromkeys(group.hardware for group in groups))
    axes.set_xlabel(f"{unit} a search ({in_figure(cut(hardware, _LONGEST_TITLE))})")


def _handles(stages: Sequence[str]) -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=_COLOURS.get(stage, GREY), linewidth=0, label=stage) for stage in stages]
