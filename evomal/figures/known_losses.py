"""Headroom: the known losses of a task, each at its best learning rate, beside the noise of their differences."""

import math
from dataclasses import dataclass
from typing import Any

from evomal.figures import style
from evomal.figures.data import table
from evomal.figures.style import BLUE, GREY, VERMILLION, Figure
from evomal.runs.measured_rivals import Headroom
from evomal.runs.recorded_run import Run, Runs

NOT_MEASURED = "The known losses were trained once, at the task's own learning rate."


@dataclass(frozen=True)
class RunHeadroom:
    """The headroom of one search."""

    run: Run
    headroom: Headroom | None
    """None if the known losses were not tried at several learning rates."""

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per loss and seed, on the longest rung."""
        measured = {} if self.headroom is None else {name: self.headroom.last(name) for name in self.headroom.losses}
        return table(
            ("loss", "rate", "steps", "seed", "value", "metric"),
            (
                (name, last.rate, last.steps, seed, self.run.value(cost), self.run.metric)
                for name, last in measured.items()
                for seed, cost in enumerate(last.scores)
            ),
        )


def run_headroom(runs: Runs) -> RunHeadroom:
    """Return the results of the known losses before one search."""
    run = runs.only()
    return RunHeadroom(run, run.headroom)


@style.figure_style()
def draw_headroom(data: RunHeadroom) -> Figure:
    """Draw every seed and the mean of each known loss, the best on top, and the noise around the baseline."""
    found, run = data.headroom, data.run
    if found is None:
        return style.sentence_figure(NOT_MEASURED)
    names = sorted(found.losses, key=lambda name: found.last(name).mean, reverse=True)
    figure = style.new_figure("column", 0.9 + 0.22 * len(names))
    axes = figure.subplots()
    axes.set_title(style.figure_text(f"known losses, {run.task}", 48))
    axes.set_xlabel(f"validation {style.figure_text(run.metric.replace('_', ' '), 30)}")
    own = run.value(found.last(found.baseline).mean)
    if math.isfinite(found.noise):
        axes.axvspan(own - found.noise, own + found.noise, color=GREY, alpha=0.25, linewidth=0)
    axes.axvline(own, color=GREY, linewidth=0.8)
    every: list[float] = []
    for place, name in enumerate(names):
        values = [run.value(cost) for cost in found.last(name).scores]
        every += values
        axes.scatter(style.drawable(values), [place] * len(values), s=8, color=BLUE, alpha=0.4, linewidth=0)
        mean = run.value(found.last(name).mean)
        axes.plot(style.drawable([mean]), [place], marker="|", markersize=10, color=VERMILLION, linestyle="")
    axes.set_yticks(range(len(names)), [style.shown_name(name) for name in names])
    axes.set_xlim(*style.axis_limits(every, (0.05, 0.95)))
    return figure
