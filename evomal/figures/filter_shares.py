"""What became of candidates, generation by generation (EvoMAL, figure 5)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from evomal.figures.scans import FloatArray
from evomal.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    add_note,
    counting_axis,
    figure_style,
    in_figure,
    new_figure,
    sentence_figure,
)
from evomal.methods.outcomes import State
from evomal.runs.reading import Run, Runs
from evomal.text import plural, shorten


@dataclass(frozen=True)
class OutcomeShares:
    """Shares of the candidates of a generation, elites not counted, for the searches of one method."""

    task: str
    """The task they searched on, or how many tasks the shares are averaged over."""
    method: str
    generations: npt.NDArray[np.int64]
    """From 1 on, those in which any search had something to compute."""
    shares: Mapping[State, FloatArray]
    """Mean over the searches that have the generation; only outcomes that occur."""
    searches: npt.NDArray[np.int64]
    """How many have it."""
    totals: Mapping[State, int]
    """Candidates of all searches and generations together."""
    total_searches: int


@dataclass(frozen=True)
class FilterShares:
    """Shares by task and method."""

    groups: tuple[OutcomeShares, ...]
    sentence: str
    """Why there are none."""
    notes: tuple[str, ...] = ()

    def columns(self) -> dict[str, list[Any]]:
        """A row for each outcome of each generation."""
        names = ("task", "method", "generation", "outcome", "share", "searches")
        rows = [
            (group.task, group.method, int(generation), str(state), float(share), int(searches))
            for group in self.groups
            for state, shares in group.shares.items()
            for generation, share, searches in zip(group.generations, shares, group.searches, strict=True)
        ]
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def filter_shares(runs: Runs, *, across_tasks: bool = False) -> FilterShares:
    """Candidates by outcome: the shares of each search in a generation, then their mean.

    Args:
        runs: The searches.
        across_tasks: Average over the searches of all tasks, as the paper's figure 5 does, instead of showing each task
            by itself.

    Returns:
        One group per method, or one per task and method.
    """
    by_task = runs.by_method()
    groups = [(task, group) for (task, _), methods in by_task.items() for group in methods.values()]
    if across_tasks:
        together = f"mean over {plural(len({task for task, _ in by_task}), 'task')}"
        by_method: dict[str, list[Run]] = {}
        for _, group in groups:
            by_method.setdefault(group[0].method, []).extend(group)
        groups = [(together, group) for group in by_method.values()]
    found = tuple(shares for task, group in groups if (shares := _shares(group, task)) is not None)
    sentence = runs.sentence or ("" if found else "nothing is recorded yet in these runs")
    return FilterShares(found, sentence, runs.notes)


def _shares(group: Sequence[Run], task: str) -> OutcomeShares | None:
    longest = max(run.generations for run in group)
    counts = np.zeros((len(group), longest, len(State)))
    places = {state: place for place, state in enumerate(State)}
    for number, run in enumerate(group):
        for candidate in run.computed:
            counts[number, candidate.generation, places[candidate.state]] += 1
    sizes = counts.sum(axis=2)
    searches = (sizes > 0).sum(axis=0)
    is_known = searches > 0
    if not is_known.any():
        return None
    # Where a search has nothing all its counts are zero, and so is what it adds to the sum.
    means = (counts / np.maximum(sizes, 1)[:, :, None]).sum(axis=0)[is_known] / searches[is_known][:, None]
    totals = Counter(candidate.state for run in group for candidate in run.computed)
    occurring = [state for state in State if totals[state]]
    return OutcomeShares(
        task, group[0].method, 1 + np.flatnonzero(is_known),
        {state: means[:, places[state]] for state in occurring}, searches[is_known],
        {state: totals[state] for state in occurring}, len(group),
    )  # fmt: skip


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
            searches = plural(group.total_searches, "search")
            axes.set_title(
                f"{in_figure(shorten(group.method, _LONGEST_NAME))}, {searches}"
                + ("" if has_one_task else f"\n{in_figure(shorten(group.task, _LONGEST_TITLE))}")
            )
            _draw(axes, group)
        for axes in panels.flat[len(data.groups) :]:
            axes.set_axis_off()
        for axes in panels[:, 0]:
            axes.set_ylabel("share of candidates (%)")
        occurring = [state for state in OUTCOME_COLOURS if any(state in group.shares for group in data.groups)]
        about = f"{shorten(data.groups[0].task, 2 * _LONGEST_TITLE)}: " if has_one_task else ""
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
