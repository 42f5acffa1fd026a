"""Gains: the test cost of every learned loss, and of the best known one, relative to the tuned baseline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evomal.campaigns.record import MeasuredTask
from evomal.figures import style
from evomal.figures.data import table
from evomal.figures.style import GREY, Figure

NOTHING_COMPARED = "No task of this campaign has been compared yet."
BEST_KNOWN = "best known loss"
_LARGEST = 4.0  # times the baseline's cost; what lies beyond is drawn at the edge
_SMALLEST = 1e-3
_ROW = 0.3  # inches


@dataclass(frozen=True)
class Gain:
    """One loss on one task."""

    task: str
    contestant: str
    """Who found it, or `best known loss`."""
    name: str
    search: int | None
    ratio: float
    """Its mean test cost divided by that of the baseline; inf if a training diverged."""


@dataclass(frozen=True)
class Gains:
    """The losses of several tasks."""

    points: tuple[Gain, ...]

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per loss."""
        names = ("task", "contestant", "name", "search", "ratio")
        return table(names, ((one.task, one.contestant, one.name, one.search, one.ratio) for one in self.points))


def gains(tasks: Sequence[MeasuredTask]) -> Gains:
    """Return the ratios of the tasks whose costs are positive, so that a ratio means something."""
    found = []
    for task in tasks:
        assert task.comparison is not None
        base, best = task.mean(task.comparison.baseline), task.best_known
        if not (math.isfinite(base) and base > 0) or task.higher_is_better:
            continue
        found.append(Gain(task.title, BEST_KNOWN, best, None, task.mean(best) / base))
        for name in task.contestants:
            means = task.search_means(name)
            found += [Gain(task.title, name, name, seed, mean / base) for seed, mean in enumerate(means)]
    return Gains(tuple(found))


@style.figure_style()
def draw_gains(data: Gains) -> Figure:
    """Draw one line per task, with a mark for each loss; left of 1 is better than the tuned baseline."""
    if not data.points:
        return style.sentence_figure(NOTHING_COMPARED)
    tasks = list(dict.fromkeys(one.task for one in data.points))
    contestants = list(dict.fromkeys(one.contestant for one in data.points if one.contestant != BEST_KNOWN))
    figure = style.new_figure("page", 1.1 + _ROW * len(tasks) * max(1.0, len(contestants) / 2))
    axes = figure.subplots()
    drawn = [min(max(one.ratio, _SMALLEST), _LARGEST) for one in data.points if math.isfinite(one.ratio)]
    for place, task in enumerate(reversed(tasks)):
        axes.axhline(place, color=GREY, alpha=0.15, linewidth=0.6, zorder=1)
        for number, name in enumerate([BEST_KNOWN, *contestants]):
            ratios = [one.ratio for one in data.points if (one.task, one.contestant) == (task, name)]
            shown = [_LARGEST if not ratio <= _LARGEST else max(ratio, _SMALLEST) for ratio in ratios]
            is_known = name == BEST_KNOWN
            offset = 0.0 if is_known else (number - (len(contestants) + 1) / 2) * 0.7 / max(1, len(contestants))
            colour = style.INK if is_known else style.line_style(number - 1)[0]
            axes.scatter(
                shown, [place - offset] * len(shown), marker="D" if is_known else "o", s=22 if is_known else 14,
                color=colour, facecolor="none" if is_known else colour, alpha=1.0 if is_known else 0.7,
                linewidth=1.0 if is_known else 0, zorder=3, label=name if place == 0 else None,
            )  # fmt: skip
    axes.axvline(1.0, color=GREY, linewidth=0.8, zorder=2)
    if style.is_far_apart(style.drawable(drawn), 5.0):
        axes.set_xscale("log")
    axes.set_yticks(range(len(tasks)), [style.figure_text(task, 44) for task in reversed(tasks)])
    axes.set_ylim(-0.6, len(tasks) - 0.4)
    axes.set_xlabel("test cost divided by that of the tuned baseline (less is better)")
    style.add_legend(figure, axes)
    lost = sum(not one.ratio <= _LARGEST for one in data.points)
    edge = f"{lost} beyond {_LARGEST:g} or diverged, drawn at the right edge" if lost else ""
    style.add_note(figure, "one mark per search: the mean of its loss over the evaluation seeds", edge)
    return figure
