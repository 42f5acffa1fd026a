"""Training curves of several losses: the validation metric and the training loss, step by step."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack

import numpy as np

from evomal.engine import Score
from evomal.figures import style
from evomal.figures.data import TrainingOptions, mean_and_deviation, span, table, trained_models
from evomal.figures.style import Axes, Band, Figure, FloatArray
from evomal.tasks.metric_display import metric_label, metric_scale
from evomal.tasks.task import Task
from evomal.verdict.contestants import Losses


@dataclass(frozen=True)
class TrainingCurve:
    """The trainings with one loss, one score per seed."""

    name: str
    scores: tuple[Score, ...]

    @property
    def trained(self) -> tuple[Score, ...]:
        """The trainings that did not diverge; all means are over these."""
        return tuple(score for score in self.scores if not score.diverged)

    @property
    def steps(self) -> list[int]:
        """The steps of the curve's points; empty if every training diverged."""
        return [point.step for point in self.trained[0].curve] if self.trained else []

    def over_seeds(self, quantity: Literal["validation", "training_loss"]) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation at each step; the latter is NaN for a single training."""
        rows = [[getattr(point, quantity) for point in score.curve] for score in self.trained]
        return mean_and_deviation(np.array(rows).reshape(len(rows), len(self.steps)))

    @property
    def test(self) -> float:
        """The mean metric on the test split; NaN if every training diverged."""
        return statistics.fmean(score.test for score in self.trained) if self.trained else math.nan

    @property
    def test_deviation(self) -> float:
        """The standard deviation of the metric on the test split; NaN for fewer than two trainings."""
        return statistics.stdev(score.test for score in self.trained) if len(self.trained) > 1 else math.nan


@dataclass(frozen=True)
class TrainingCurves:
    """The curves of several losses, from the same seeds."""

    task: str
    metric: str
    steps: int
    losses: tuple[TrainingCurve, ...]
    sentences: tuple[str, ...]
    """One for each training that diverged."""
    milestones: tuple[int, ...] = ()
    """Steps at which the learning rate was divided by ten."""

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per point of each training, and the result of the training."""
        return table(
            ("loss", "seed", "step", "validation", "training_loss", "outcome", "test"),
            (
                (curve.name, score.seed, at.step, at.validation, at.training_loss, score.outcome, score.test)
                for curve in self.losses
                for score in curve.scores
                for at in score.curve
            ),
        )


def training_curves(
    task: Task, losses: Losses, *, points: int = 50, **options: Unpack[TrainingOptions]
) -> TrainingCurves:
    """Train with each loss and record its curve.

    Args:
        task: The task.
        losses: Losses, names of losses or loss files.
        points: About how many points a curve has; the training loss at a point is that of one batch.
        options: See `evomal.figures.data.TrainingOptions`.

    Returns:
        One curve per loss.
    """
    scores: dict[str, list[Score]] = {}
    sentences = []
    for trained in trained_models(task, losses, curve_points=points, **options):
        scores.setdefault(trained.name, []).append(replace(trained.score, model=None))
        sentences += [trained.sentence] if trained.score.diverged else []
    schedule = task.recipe.for_steps(options.get("steps"), options.get("milestones"))
    curves = tuple(TrainingCurve(name, tuple(found)) for name, found in scores.items())
    return TrainingCurves(task.name, task.metric.name, schedule.steps, curves, tuple(sentences), schedule.milestones)


_UNLIKE = 10.0  # a line whose range is this many times smaller would look flat beside another


@style.figure_style()
def draw_training_curves(data: TrainingCurves) -> Figure:
    """Draw the validation metric on the left and the training loss on the right."""
    curves = [curve for curve in data.losses if curve.trained]
    if not curves:
        return style.sentence_figure("; ".join(data.sentences))
    figure = style.new_figure("page", 2.7)
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.06})
    scale = metric_scale(data.metric)
    found = [(curve, *curve.over_seeds("validation")) for curve in curves]
    style.draw_bands(
        left, [Band(curve.name, curve.steps, scale * mean, scale * spread) for curve, mean, spread in found]
    )
    left.set_ylabel(f"validation {style.figure_text(metric_label(data.metric))}")
    _draw_training_loss(right, curves)
    for axes in (left, right):
        axes.set_xlabel("training step")
        axes.set_xlim(0, data.steps)
    style.add_legend(figure, left)
    style.add_note(figure, data.task, style.band_words(len(curves[0].scores)), diverged=data.sentences)
    return figure


def _draw_training_loss(axes: Axes, curves: Sequence[TrainingCurve]) -> None:
    """Draw the training losses; each is scaled to the range from 0 to 1 if one scale cannot show them all."""
    found = [curve.over_seeds("training_loss") for curve in curves]
    lows = [float(np.min(mean[np.isfinite(mean)], initial=math.inf)) for mean, _ in found]
    lows = [low if math.isfinite(low) else 0.0 for low in lows]
    spans = [span(mean) or 1.0 for mean, _ in found]
    is_comparable = max(spans) < _UNLIKE * min(spans) and max(lows) - min(lows) < _UNLIKE * min(spans)
    bands = []
    for curve, (mean, deviation), low, width in zip(curves, found, lows, spans, strict=True):
        shift, scale = (0.0, 1.0) if is_comparable else (low, width)
        bands.append(Band(curve.name, curve.steps, (mean - shift) / scale, deviation / scale))
    style.draw_bands(axes, bands)
    axes.set_ylabel("training loss of a batch" + ("" if is_comparable else "\n(each scaled to 0 to 1)"))
