"""Rungs: whether the candidates that lead after few steps also lead after many, with other seeds."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evomal.figures import style
from evomal.figures.data import table
from evomal.figures.style import BLUE, GREY, Figure
from evomal.methods.candidates import Candidate
from evomal.runs.recorded_run import Run, Runs

NO_RUNGS = "The candidates of this search were trained once, without rungs."
_FEWEST_RANKED = 3


@dataclass(frozen=True)
class RungStep:
    """The candidates that were trained on a rung and on the next."""

    rung: int
    """The shorter rung, counted from 1."""
    candidates: tuple[Candidate, ...]
    before: tuple[float, ...]
    """The metric of each on the shorter rung."""
    after: tuple[float, ...]
    """The metric of each on the longer one."""

    @property
    def agreement(self) -> float:
        """Kendall's rank correlation of the two; NaN for fewer than three candidates or where all are equal."""
        if len(self.candidates) < _FEWEST_RANKED:
            return math.nan
        from scipy.stats import kendalltau  # type: ignore[import-untyped]  # here, as it takes long to import

        return float(kendalltau(self.before, self.after).statistic)


@dataclass(frozen=True)
class RungSteps:
    """Every step from a rung to the next of one search."""

    run: Run
    steps: tuple[RungStep, ...]

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per candidate and step."""
        return table(
            ("rung", "before", "after", "metric", "generation", "place", "learning rate", "genome"),
            (
                (step.rung, before, after, self.run.metric, one.generation + 1, one.index, one.rungs[step.rung][0],
                 one.genome)
                for step in self.steps
                for one, before, after in zip(step.candidates, step.before, step.after, strict=True)
            ),
        )  # fmt: skip


def rung_steps(runs: Runs) -> RungSteps:
    """Return what became of the candidates of one run from rung to rung."""
    run = runs.only()
    return RungSteps(run, tuple(steps_of(run, run.trained)))


def steps_of(run: Run, candidates: Sequence[Candidate]) -> Iterator[RungStep]:
    """Return each step from a rung to the next that some of these candidates of a run were trained on."""
    for rung in range(1, max((len(one.rungs) for one in candidates), default=0)):
        found = tuple(one for one in candidates if len(one.rungs) > rung)
        before, after = (tuple(run.value(one.rungs[place][1]) for one in found) for place in (rung - 1, rung))
        yield RungStep(rung, found, before, after)


@style.figure_style()
def draw_rungs(data: RungSteps) -> Figure:
    """Draw the metric on each rung against that on the next, with the rank correlation of the two."""
    if not data.steps:
        return style.sentence_figure(NO_RUNGS)
    run, figure = data.run, style.new_figure("page" if len(data.steps) > 1 else "column", 2.9)
    panels = figure.subplots(1, len(data.steps), squeeze=False)[0]
    name = style.figure_text(run.metric.replace("_", " "), 30)
    for axes, step in zip(panels, data.steps, strict=True):
        tau = f", rank correlation {step.agreement:.2f}" if math.isfinite(step.agreement) else ""
        axes.set_title(f"rung {step.rung} to {step.rung + 1}{tau}")
        axes.set_xlabel(f"{name} on rung {step.rung}")
        axes.set_ylabel(f"{name} on rung {step.rung + 1}")
        axes.scatter(style.drawable(step.before), style.drawable(step.after), s=9, color=BLUE, alpha=0.6, linewidth=0)
        axes.set_xlim(*style.axis_limits(step.before, (0.0, 0.95)))
        axes.set_ylim(*style.axis_limits(step.after, (0.0, 0.95)))
        axes.grid(color=GREY, alpha=0.2)
    return figure
