"""Error against learning rate, from what `evomal compare --rates` recorded."""

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from evomal.engine import Score
from evomal.errors import InputError
from evomal.figures import style
from evomal.figures.data import table
from evomal.figures.style import Axes, Band, Figure
from evomal.tasks.metric_display import metric_label, metric_scale
from evomal.text import plural
from evomal.verdict.comparison import Comparison, Entry, RateCurve
from evomal.verdict.folder import read_result
from evomal.verdict.words import schedule_words


@dataclass(frozen=True)
class RatePoint:
    """One loss, or the losses that a method found, at one rate."""

    rate: float
    entry: Entry

    @property
    def trainings(self) -> list[tuple[int, Score]]:
        """The scores, each with the number of the search that found the loss; empty if the searches found nothing."""
        found = enumerate(self.entry.losses)
        return [(search, score) for search, loss in found if loss is not None for score in loss.scores]

    @property
    def diverged(self) -> int:
        """How many trainings diverged."""
        return sum(score.diverged for _, score in self.trainings)

    @property
    def values(self) -> list[float]:
        """The results of trainings that did not diverge; for several searches, the mean of each over its seeds."""
        losses = [loss for loss in self.entry.losses if loss is not None]
        found = [[score.test for score in loss.scores if not score.diverged] for loss in losses]
        if len(found) > 1:
            return [sum(tests) / len(tests) for tests in found if tests]
        return found[0] if found else []

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """The sample standard deviation; NaN for fewer than two."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan


@dataclass(frozen=True)
class RateCurves:
    """The comparisons at several rates, lowest rate first."""

    comparisons: Mapping[float, Comparison]
    sentence: str = ""
    """Why there are none."""

    @property
    def first(self) -> Comparison:
        """The comparison at the lowest rate: the others are of the same task, metric, steps and seeds."""
        return next(iter(self.comparisons.values()))

    @cached_property
    def lines(self) -> dict[str, list[RatePoint]]:
        """The points of each loss or method, those of the baseline first."""
        found: dict[str, list[RatePoint]] = {self.first.baseline: []} if self.comparisons else {}
        for rate, comparison in self.comparisons.items():
            for entry in comparison.entries:
                if entry.variant == "plain":
                    found.setdefault(entry.name, []).append(RatePoint(rate, entry))
        return found

    @property
    def sentences(self) -> list[str]:
        """Which trainings diverged or are missing, or why there are none at all."""
        return [self.sentence] if self.sentence else list(self._lacking())

    def _lacking(self) -> Iterator[str]:
        for name, points in self.lines.items():
            for point in points:
                count, place = len(point.trainings), f"{name} at {point.rate:g}"
                if not count:
                    yield f"{place}: the search found no loss that passed its filters"
                elif point.diverged:
                    yield f"{place}: {point.diverged} of {plural(count, 'training')} diverged"

    def best(self, name: str) -> RatePoint | None:
        """Return the rate with the best mean among those at which nothing diverged; None if there is none."""
        sound = [point for point in self.lines[name] if point.values and not point.diverged]
        sign = -1 if self.first.higher_is_better else 1
        return min(sound, key=lambda point: sign * point.mean, default=None)

    def columns(self) -> dict[str, list[object]]:
        """Return a table with one row per training; the result of one that diverged is NaN."""
        return table(
            ("loss", "learning_rate", "search", "seed", "test", "outcome"),
            (
                (name, at.rate, search, score.seed, math.nan if score.diverged else score.test, score.outcome)
                for name, points in self.lines.items()
                for at in points
                for search, score in at.trainings
            ),
        )


def recorded_rate_curves(folder: Path) -> RateCurves:
    """The data of a folder that `evomal compare --rates … --out FOLDER` wrote."""
    if not os.path.exists(folder):
        raise InputError(f"{folder}: there is no such folder")
    found = read_result(RateCurve, folder)
    if found is not None:
        return rate_curves(found)
    if any(folder.glob("lr-*")):
        reason = "the comparison is not complete: give the same evomal compare command again to resume it"
        return RateCurves({}, f"{folder}: {reason}")
    raise InputError(f"{folder}: is not a folder of evomal compare --rates: there is no learning-rates.json in it")


def rate_curves(found: RateCurve) -> RateCurves:
    """The data of a comparison at several learning rates."""
    if not found.comparisons:
        raise InputError("a comparison at several learning rates must have at least one rate but has none")
    return RateCurves(dict(sorted(found.comparisons.items())))


_LINE_OF_MARKERS = 0.055  # of the panel's height


@style.figure_style()
def draw_rate_curves(data: RateCurves) -> Figure:
    """Draw the mean over the trainings that did not diverge, with a cross where some did."""
    if not data.lines:
        return style.sentence_figure(data.sentence)
    figure = style.new_figure("column", 2.8)
    axes = figure.subplots()
    axes.set_xscale("log")
    _set_rate_ticks(axes, list(data.comparisons))
    axes.set_xlabel("base learning rate")
    axes.set_ylabel(f"test {style.figure_text(metric_label(data.first.metric))}")
    scale = metric_scale(data.first.metric)
    bands = []
    for name, points in data.lines.items():
        means, deviations = scale * np.array([(point.mean, point.deviation) for point in points]).T
        bands.append(Band(name, [point.rate for point in points], means, deviations))
    style.draw_bands(axes, bands, marker="o")
    every = list(enumerate(data.lines.values()))
    crossed = [(number, points) for number, points in every if any(point.diverged for point in points)]
    if any(point.values for _, points in every for point in points):
        _make_room(axes, _LINE_OF_MARKERS * (len(crossed) + 0.5) if crossed else 0.0)
    else:
        axes.set_yticks([])
    for row, (number, points) in enumerate(crossed):
        _draw_diverged(axes, points, number, 1 - _LINE_OF_MARKERS * (row + 0.5))
    style.add_legend(figure, axes)
    about = f"{data.first.task}, {schedule_words(data.first.steps, data.first.milestones)}"
    crosses = "crosses: trainings that diverged, all or the given number" if crossed else ""
    style.add_note(figure, about, _averaged(data.first), crosses)
    return figure


def _make_room(axes: Axes, share: float) -> None:
    """Leave a share of the panel free above the lines, for the crosses."""
    low, high = axes.get_ylim()
    more = share / (1 - share)
    axes.set_ylim(low, high * (high / low) ** more if axes.get_yscale() == "log" else high + (high - low) * more)


def _draw_diverged(axes: Axes, points: Sequence[RatePoint], number: int, height: float) -> None:
    """Crosses near the top edge, one height per line, with the number of trainings if not all diverged."""
    colour, _ = style.line_style(number)
    across = axes.get_xaxis_transform()
    crossed = [point for point in points if point.diverged]
    axes.plot(
        [point.rate for point in crossed], [height] * len(crossed), transform=across, color=colour, marker="x",
        markersize=4, linestyle="none", label="_diverged", zorder=4,
    )  # fmt: skip
    for point in crossed:
        if point.values:
            axes.annotate(
                f"{point.diverged}/{len(point.trainings)}", (point.rate, height), xycoords=across, xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=6, color=colour,
            )  # fmt: skip


def _set_rate_ticks(axes: Axes, rates: Sequence[float]) -> None:
    span = math.log10(rates[-1] / rates[0]) or 1.0
    axes.set_xlim(rates[0] / 10 ** (0.06 * span), rates[-1] * 10 ** (0.1 * span))
    apart = min((math.log10(high / low) for low, high in itertools.pairwise(rates)), default=1.0)
    if len(rates) <= 6 and apart > 0.12 * span:
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.set_xticks([], minor=True)


def _averaged(of: Comparison) -> str:
    seeds, searches = len(of.seeds), len(of.search_seeds)
    if searches > 1:
        over = f"mean of {plural(seeds, 'seed')} (methods: of {searches} searches, each by its mean)"
        return f"{over}, band: ±1 standard deviation"
    return plural(seeds, "seed") + (", mean and ±1 standard deviation" if seeds > 1 else "")
