"""What became of candidates, generation by generation (EvoMAL, figure 5)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evomal.analysis.chosen_runs import Run, Runs
from evomal.analysis.counting import counted
from evomal.analysis.line_scans import FloatArray
from evomal.strategies import State


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
        together = f"mean over {counted(len({task for task, _ in by_task}), 'task')}"
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
