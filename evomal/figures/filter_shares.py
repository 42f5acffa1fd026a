"""The outcomes of candidates, generation by generation (EvoMAL, figure 5)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evomal.figures import style
from evomal.figures.data import NOTHING_RECORDED, table
from evomal.methods.candidates import State
from evomal.runs.recorded_run import Run, Runs
from evomal.text import plural, shorten


@dataclass(frozen=True)
class OutcomeShares:
    """The shares of outcomes among the candidates of each generation, without elites, for one method."""

    task: str
    """The task, or the number of tasks that the shares are averaged over."""
    method: str
    generations: npt.NDArray[np.int64]
    """Counted from 1; those in which any search computed something."""
    shares: Mapping[State, style.FloatArray]
    """The mean over the searches that have the generation; only outcomes that occur."""
    searches: npt.NDArray[np.int64]
    """How many searches have the generation."""
    totals: Mapping[State, int]
    """The candidates of all searches and generations."""
    total_searches: int


@dataclass(frozen=True)
class FilterShares:
    """The shares by task and method."""

    groups: tuple[OutcomeShares, ...]
    sentence: str
    """Why there are none."""
    notes: tuple[str, ...] = ()

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per outcome and generation."""
        return table(
            ("task", "method", "generation", "outcome", "share", "searches"),
            (
                (group.task, group.method, int(generation), str(state), float(share), int(searches))
                for group in self.groups
                for state, shares in group.shares.items()
                for generation, share, searches in zip(group.generations, shares, group.searches, strict=True)
            ),
        )


def filter_shares(runs: Runs, *, across_tasks: bool = False) -> FilterShares:
    """Count candidates by outcome: the shares in each generation of each search, then their mean.

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
    sentence = runs.sentence or ("" if found else NOTHING_RECORDED)
    return FilterShares(found, sentence, runs.notes)


def _shares(group: Sequence[Run], task: str) -> OutcomeShares | None:
    counts = np.zeros((len(group), max(run.generations for run in group), len(State)))
    places: dict[State | None, int] = {state: place for place, state in enumerate(State)}
    for number, run in enumerate(group):
        for candidate in run.computed:
            counts[number, candidate.generation, places[candidate.state]] += 1
    sizes = counts.sum(axis=2)
    searches = (sizes > 0).sum(axis=0)
    is_known = searches > 0
    if not is_known.any():
        return None
    # A search without candidates in a generation has counts of zero, and adds nothing to the sum.
    means = (counts / np.maximum(sizes, 1)[:, :, None]).sum(axis=0)[is_known] / searches[is_known][:, None]
    totals = Counter(candidate.state for run in group for candidate in run.computed)
    occurring = [state for state in State if totals[state]]
    return OutcomeShares(
        task, group[0].method, 1 + np.flatnonzero(is_known),
        {state: means[:, places[state]] for state in occurring}, searches[is_known],
        {state: totals[state] for state in occurring}, len(group),
    )  # fmt: skip


OUTCOME_COLOURS = {
    State.EVALUATED: style.BLUE,
    State.CACHED: style.SKY,
    State.EQUIVALENT: style.GREEN,
    State.REJECTED: style.ORANGE,
    State.INADMISSIBLE: style.YELLOW,
    State.DEAD: style.GREY,
    State.PASSED_OVER: style.PALE,
    State.DIVERGED: style.VERMILLION,
    State.FAILED: style.PURPLE,
}
"""In the order in which they are stacked."""

_LONGEST_TITLE, _LONGEST_NAME = 34, 20
_NOTE = "mean share over the searches that reached the generation; elites are not counted"


@style.figure_style()
def draw_filter_shares(data: FilterShares) -> style.Figure:
    """Draw one panel per group, in which the shares of each generation add up to 100 %."""
    if not data.groups:
        return style.sentence_figure(data.sentence, "page")
    has_one_task = len({group.task for group in data.groups}) == 1
    figure, grid = style.panels(len(data.groups), most=3, height=1.75, rest=0.8, width="page", sharey=True)
    for axes, group in zip(grid, data.groups, strict=True):
        title = f"{style.figure_text(group.method, _LONGEST_NAME)}, {plural(group.total_searches, 'search')}"
        axes.set_title(title if has_one_task else f"{title}\n{style.figure_text(group.task, _LONGEST_TITLE)}")
        _draw(axes, group)
    for axes in grid[::3]:
        axes.set_ylabel("share of candidates (%)")
    about = f"{shorten(data.groups[0].task, 2 * _LONGEST_TITLE)}: " if has_one_task else ""
    style.add_note(figure, about + _NOTE)
    occurring = {state for group in data.groups for state in group.shares}
    style.add_patch_legend(figure, {str(s): colour for s, colour in OUTCOME_COLOURS.items() if s in occurring})
    return figure


def _draw(axes: style.Axes, group: OutcomeShares) -> None:
    # Generations in which nothing was computed leave a gap, so every one has edges of its own.
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
    style.whole_number_axis(axes)
    axes.set_xlabel("generation")
