"""Training curves of several losses: the validation metric with the training loss, step by step."""

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from evomal.engine import Score
from evomal.figures.scans import FloatArray
from evomal.figures.style import (
    Band,
    add_legend,
    add_note,
    band_words,
    draw_bands,
    figure_style,
    in_figure,
    new_figure,
    note_with,
    sentence_figure,
)
from evomal.figures.trained_models import (
    FIRST_SEED,
    mean_and_deviation,
    metric_scale,
    metric_words,
    trained_models,
)
from evomal.progress import Announce
from evomal.tasks.task import Task
from evomal.verdict.contestants import Losses

Quantity = Literal["validation", "training_loss"]


@dataclass(frozen=True)
class TrainingCurve:
    """The trainings with one loss, a score for each seed."""

    name: str
    scores: tuple[Score, ...]

    @property
    def trained(self) -> tuple[Score, ...]:
        """Those that did not diverge."""
        return tuple(score for score in self.scores if not score.diverged)

    @property
    def steps(self) -> list[int]:
        """After how many steps the curve was noted; empty where every training diverged."""
        return [point.step for point in self.trained[0].curve] if self.trained else []

    def over_seeds(self, quantity: Quantity) -> tuple[FloatArray, FloatArray]:
        """Mean and deviation at each step, over the trainings that did not diverge; no deviation (NaN) of one alone."""
        rows = [[getattr(point, quantity) for point in score.curve] for score in self.trained]
        return mean_and_deviation(np.array(rows).reshape(len(rows), len(self.steps)))

    @property
    def test(self) -> float:
        """The mean metric on the test split, over the trainings that did not diverge; NaN where all did."""
        return statistics.fmean(score.test for score in self.trained) if self.trained else math.nan

    @property
    def test_deviation(self) -> float:
        """The sample's deviation of that; NaN for fewer than two."""
        return statistics.stdev(score.test for score in self.trained) if len(self.trained) > 1 else math.nan


@dataclass(frozen=True)
class TrainingCurves:
    """The curves of several losses, from the same seeds."""

    task: str
    metric: str
    steps: int
    seeds: tuple[int, ...]
    losses: tuple[TrainingCurve, ...]
    sentences: tuple[str, ...]
    """What diverged."""
    milestones: tuple[int, ...] = ()
    """Steps at which the learning rate was divided by ten."""

    def columns(self) -> dict[str, list[object]]:
        """A row for each step noted, with what the training came to in the end."""
        names = ("loss", "seed", "step", "validation", "training_loss", "outcome", "test")
        columns: dict[str, list[object]] = {name: [] for name in names}
        for curve in self.losses:
            for score in curve.scores:
                for point in score.curve:
                    row = (
                        curve.name, score.seed, point.step, point.validation, point.training_loss, score.outcome,
                        score.test,
                    )  # fmt: skip
                    for name, value in zip(names, row, strict=True):
                        columns[name].append(value)
        return columns


def training_curves(
    task: Task,
    losses: Losses,
    *,
    points: int = 50,
    seeds: int = 5,
    seed: int = FIRST_SEED,
    steps: int | None = None,
    milestones: tuple[int, ...] | None = None,
    device: str = "auto",
    announce: Announce | None = None,
) -> TrainingCurves:
    """Train with each loss; its curve is noted at about so many points, the training loss being that of one batch."""
    scores: dict[str, list[Score]] = {}
    sentences = []
    for trained in trained_models(
        task,
        losses,
        seeds=seeds,
        seed=seed,
        steps=steps,
        milestones=milestones,
        device=device,
        curve_points=points,
        announce=announce,
    ):
        scores.setdefault(trained.name, []).append(trained.score)
        sentences += [trained.sentence] if trained.sentence else []
    return TrainingCurves(
        task=task.name,
        metric=task.metric.name,
        steps=task.recipe.steps if steps is None else steps,
        milestones=task.recipe.schedule(steps, milestones).milestones,
        seeds=tuple(range(seed, seed + seeds)),
        losses=tuple(TrainingCurve(name, tuple(found)) for name, found in scores.items()),
        sentences=tuple(sentences),
    )


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNLIKE = 10.0  # times: from here on one of the lines would look flat beside another


def draw_training_curves(data: TrainingCurves) -> "Figure":
    """A figure of page width, its lines over the trainings that did not diverge."""
    curves = [curve for curve in data.losses if curve.trained]
    if not curves:
        return sentence_figure("; ".join(data.sentences))
    figure = new_figure("page", 2.7)
    with figure_style():
        of_validation, of_loss = figure.subplots(1, 2, gridspec_kw={"wspace": 0.06})
        _draw_validation(of_validation, data, curves)
        _draw_training_loss(of_loss, curves)
        for axes in (of_validation, of_loss):
            axes.set_xlabel("training step")
            axes.set_xlim(0, data.steps)
        add_legend(figure, of_validation)
        add_note(figure, note_with(data.sentences, data.task, band_words(len(data.seeds))))
    return figure


def _draw_validation(axes: "Axes", data: TrainingCurves, curves: list[TrainingCurve]) -> None:
    scale = metric_scale(data.metric)
    found = [(curve, *curve.over_seeds("validation")) for curve in curves]
    draw_bands(axes, [Band(curve.name, curve.steps, scale * mean, scale * spread) for curve, mean, spread in found])
    axes.set_ylabel(f"validation {in_figure(metric_words(data.metric))}")


def _draw_training_loss(axes: "Axes", curves: list[TrainingCurve]) -> None:
    """As it is, or each loss from its least to its most where one scale cannot hold them."""
    found = [curve.over_seeds("training_loss") for curve in curves]
    comparable = _are_comparable([mean for mean, _ in found])
    bands = []
    for curve, (mean, deviation) in zip(curves, found, strict=True):
        low, span = (0.0, 1.0) if comparable else _range(mean)
        bands.append(Band(curve.name, curve.steps, (mean - low) / span, deviation / span))
    draw_bands(axes, bands)
    axes.set_ylabel("training loss of a batch" + ("" if comparable else "\n(each: 0 least, 1 most)"))


def _are_comparable(means: list[FloatArray]) -> bool:
    ranges = [_range(mean) for mean in means]
    smallest, largest = min(span for _, span in ranges), max(span for _, span in ranges)
    lows = [low for low, _ in ranges]
    return largest < _UNLIKE * smallest and max(lows) - min(lows) < _UNLIKE * smallest


def _range(values: FloatArray) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(np.ptp(finite)) or 1.0) if finite.size else (0.0, 1.0)
