"""Error against learning rate, from what `evomal compare --rates` recorded."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evomal.errors import InputError
from evomal.figures import style
from evomal.figures.data import table
from evomal.figures.style import Axes, Band, Figure
from evomal.tasks.metrics import metric_label, metric_scale
from evomal.text import plural
from evomal.verdict.comparison import Entry, RateCurve
from evomal.verdict.folder import read_result
from evomal.verdict.words import schedule_words


@dataclass(frozen=True)
class RateTraining:
    """One training at one rate."""

    search: int
    """Which of a method's searches found the loss; 0 for a loss that was given."""
    seed: int
    test: float
    """NaN if it diverged."""


@dataclass(frozen=True)
class RatePoint:
    """One loss, or the losses that a method found, at one rate."""

    rate: float
    trainings: tuple[RateTraining, ...]
    """Empty if the searches found nothing."""

    @property
    def diverged(self) -> int:
        """How many trainings diverged."""
        return sum(math.isnan(training.test) for training in self.trainings)

    @property
    def values(self) -> list[float]:
        """The results of trainings that did not diverge; for several searches, the mean of each over its seeds."""
        found: dict[int, list[float]] = {}
        for training in self.trainings:
            found.setdefault(training.search, []).extend([] if math.isnan(training.test) else [training.test])
        if len(found) > 1:
            return [sum(tests) / len(tests) for tests in found.values() if tests]
        return [test for tests in found.values() for test in tests]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """The sample standard deviation; NaN for fewer than two."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan


@dataclass(frozen=True)
class RateLine:
    """One loss, or one method, over the rates."""

    name: str
    points: tuple[RatePoint, ...]


@dataclass(frozen=True)
class RateCurves:
    """The lines of all losses, the baseline's first."""

    task: str
    metric: str
    lower_is_better: bool
    steps: int
    seeds: int
    searches: int
    """The number of searches of each method; 0 if no method searched."""
    lines: tuple[RateLine, ...]
    sentences: tuple[str, ...]
    """Which trainings diverged or are missing."""
    milestones: tuple[int, ...] = ()
    """Steps at which the learning rate was divided by ten."""

    def best(self, line: RateLine) -> RatePoint | None:
        """Return the rate with the best mean among those at which nothing diverged; None if there is none."""
        sound = [point for point in line.points if point.values and not point.diverged]
        sign = 1 if self.lower_is_better else -1
        return min(sound, key=lambda point: sign * point.mean) if sound else None

    def columns(self) -> dict[str, list[object]]:
        """Return a table with one row per training."""
        return table(
            ("loss", "learning_rate", "search", "seed", "test", "outcome"),
            (
                (line.name, at.rate, one.search, one.seed, one.test, "diverged" if math.isnan(one.test) else "trained")
                for line in self.lines
                for at in line.points
                for one in at.trainings
            ),
        )


def recorded_rate_curves(folder: Path) -> RateCurves:
    """The data of a folder that `evomal compare --rates … --out FOLDER` wrote."""
    if not folder.exists():
        raise InputError(f"{folder}: there is no such folder")
    found = read_result(RateCurve, folder)
    if found is not None:
        return rate_curves(found)
    if any(folder.glob("lr-*")):
        sentence = f"{folder}: the comparison is not complete; give the same evomal compare again to resume it"
        return RateCurves("", "", True, 0, 0, 0, (), (sentence,))
    raise InputError(f"{folder}: is not a folder of evomal compare --rates: there is no learning-rates.json in it")


def rate_curves(found: RateCurve) -> RateCurves:
    """The data of a comparison at several learning rates."""
    comparisons = dict(sorted(found.comparisons.items()))
    if not comparisons:
        raise InputError("a comparison at several learning rates must have at least one but has none")
    first = next(iter(comparisons.values()))
    points: dict[str, list[RatePoint]] = {first.baseline: []}  # the baseline first
    for rate, comparison in comparisons.items():
        for entry in comparison.entries:
            if entry.variant == "plain":
                points.setdefault(entry.name, []).append(RatePoint(rate, _trainings(entry)))
    return RateCurves(
        task=first.task,
        metric=first.metric,
        lower_is_better=not first.higher_is_better,
        steps=first.steps,
        seeds=len(first.seeds),
        searches=len(first.search_seeds),
        lines=tuple(RateLine(name, tuple(own)) for name, own in points.items()),
        sentences=tuple(sentence for name, own in points.items() for sentence in _sentences(name, own)),
        milestones=first.milestones,
    )


def _trainings(entry: Entry) -> tuple[RateTraining, ...]:
    return tuple(
        RateTraining(search, score.seed, math.nan if score.diverged else score.test)
        for search, loss in enumerate(entry.losses)
        if loss is not None
        for score in loss.scores
    )


def _sentences(name: str, points: Sequence[RatePoint]) -> Iterator[str]:
    for point in points:
        if not point.trainings:
            yield f"{name} at {point.rate:g}: the search found no loss that passed its filters"
        elif point.diverged:
            yield f"{name} at {point.rate:g}: {point.diverged} of {plural(len(point.trainings), 'training')} diverged"


_LINE_OF_MARKERS = 0.055  # of the panel's height


@style.figure_style()
def draw_rate_curves(data: RateCurves) -> Figure:
    """Draw the mean over the trainings that did not diverge, with a cross where some did."""
    if not data.lines:
        return style.sentence_figure("; ".join(data.sentences))
    figure = style.new_figure("column", 2.8)
    axes = figure.subplots()
    axes.set_xscale("log")
    _set_rate_ticks(axes, data)
    axes.set_xlabel("base learning rate")
    axes.set_ylabel(f"test {style.figure_text(metric_label(data.metric))}")
    style.draw_bands(axes, [_band(data, line) for line in data.lines], marker="o")
    crossed = [number for number, line in enumerate(data.lines) if any(point.diverged for point in line.points)]
    if any(point.values for line in data.lines for point in line.points):
        _make_room(axes, _LINE_OF_MARKERS * (len(crossed) + 0.5) if crossed else 0.0)
    else:
        axes.set_yticks([])
    for row, number in enumerate(crossed):
        _draw_diverged(axes, data.lines[number], number, 1 - _LINE_OF_MARKERS * (row + 0.5))
    style.add_legend(figure, axes)
    crosses = "crosses: trainings that diverged, all or the given number" if crossed else ""
    style.add_note(figure, f"{data.task}, {schedule_words(data.steps, data.milestones)}", _averaged(data), crosses)
    return figure


def _band(data: RateCurves, line: RateLine) -> Band:
    scale, points = metric_scale(data.metric), line.points
    means, deviations = (scale * np.array([getattr(at, what) for at in points]) for what in ("mean", "deviation"))
    return Band(line.name, [point.rate for point in points], means, deviations)


def _make_room(axes: Axes, share: float) -> None:
    """Leave a share of the panel free above the lines, for the crosses."""
    low, high = axes.get_ylim()
    more = share / (1 - share)
    axes.set_ylim(low, high * (high / low) ** more if axes.get_yscale() == "log" else high + (high - low) * more)


def _draw_diverged(axes: Axes, line: RateLine, number: int, height: float) -> None:
    """Crosses near the top edge, one height per line, with the number of trainings if not all diverged."""
    colour, _ = style.line_style(number)
    across = axes.get_xaxis_transform()
    crossed = [point for point in line.points if point.diverged]
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


def _set_rate_ticks(axes: Axes, data: RateCurves) -> None:
    rates = sorted({point.rate for line in data.lines for point in line.points})
    span = math.log10(rates[-1] / rates[0]) or 1.0
    axes.set_xlim(rates[0] / 10 ** (0.06 * span), rates[-1] * 10 ** (0.1 * span))
    apart = min((math.log10(high / low) for low, high in itertools.pairwise(rates)), default=1.0)
    if len(rates) <= 6 and apart > 0.12 * span:
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.set_xticks([], minor=True)


def _averaged(data: RateCurves) -> str:
    if data.searches > 1:
        over = f"mean of {data.seeds} seeds (methods: of {data.searches} searches, each by its mean)"
        return f"{over}, band: ±1 standard deviation"
    return plural(data.seeds, "seed") + (", mean and ±1 standard deviation" if data.seeds > 1 else "")
