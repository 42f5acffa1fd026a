"""Seconds of a search, by method with the stages it spends them in (EvoMAL, table 5)."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evomal.analysis.chosen_runs import Run, Runs
from evomal.methods.judging import TIMED_AS

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
