"""What became of candidates: shares stacked over the generations, a panel a method."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from evomal.analysis.counting import counted
from evomal.analysis.filter_shares import FilterShares, OutcomeShares
from evomal.report.bands import add_note
from evomal.report.harmless import cut
from evomal.report.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    figure_style,
    in_figure,
    new_figure,
    sentence_figure,
)
from evomal.report.value_axis import counting_axis
from evomal.strategies import State

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTCOME_COLOURS = {
    State.EVALUATED: BLUE,
    State.CACHED: SKY,
    State.EQUIVALENT: GREEN,
    State.REJECTED: ORANGE,
    State.DEAD: GREY,
    State.DIVERGED: VERMILLION,
    State.FAILED: PURPLE,
}
"""In the order in which they are stacked."""

_COLUMNS = 3
_ROW_HEIGHT, _HEIGHT_OF_THE_REST = 1.75, 0.8
_LONGEST_TITLE, _LONGEST_NAME = 34, 20
_CAPTION = "mean share over the searches that came so far; elites are not counted"


def draw_filter_shares(data: FilterShares) -> "Figure":
    """A figure of page width; every panel adds up to all candidates of a generation."""
    if not data.groups:
        return sentence_figure(data.sentence, "page")
    rows = math.ceil(len(data.groups) / _COLUMNS)
    figure = new_figure("page", _ROW_HEIGHT * rows + _HEIGHT_OF_THE_REST)
    has_one_task = len({group.task for group in data.groups}) == 1
    with figure_style():
        columns = min(_COLUMNS, len(data.groups))
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes, group in zip(panels.flat, data.groups, strict=False):
            searches = counted(group.total_searches, "search")
            axes.set_title(
                f"{in_figure(cut(group.method, _LONGEST_NAME))}, {searches}"
                + ("" if has_one_task else f"\n{in_figure(cut(group.task, _LONGEST_TITLE))}")
            )
            _draw(axes, group)
        for axes in panels.flat[len(data.groups) :]:
            axes.set_axis_off()
        for axes in panels[:, 0]:
            axes.set_ylabel("share of candidates (%)")
        occurring = [state for state in OUTCOME_COLOURS if any(state in group.shares for group in data.groups)]
        about = f"{cut(data.groups[0].task, 2 * _LONGEST_TITLE)}: " if has_one_task else ""
        add_note(figure, f"{about}{_CAPTION}")
        handles = _handles(occurring)
        figure.legend(handles=handles, loc="outside upper center", ncols=min(7, len(handles)), handlelength=1.0)
    return figure


def _draw(axes: "Axes", group: OutcomeShares) -> None:
    # Generations without anything computed leave a gap, so every one has edges of its own.
    first, last = int(group.generations[0]), int(group.generations[-1])
    edges = np.arange(first, last + 2) - 0.5
    below = np.zeros(last - first + 1)
    for state, colour in OUTCOME_COLOURS.items():
        if state in group.shares:
            heights = np.zeros_like(below)
            heights[group.generations - first] = 100 * group.shares[state]
            axes.stairs(below + heights, edges, baseline=below, fill=True, color=colour, linewidth=0, label=str(state))
            below = below + heights
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 100)
    counting_axis(axes)
    axes.set_xlabel("generation")


def _handles(states: list[State]) -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=OUTCOME_COLOURS[state], linewidth=0, label=str(state)) for state in states]
