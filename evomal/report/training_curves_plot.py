"""Training curves: the validation metric on the left, the training loss on the right."""

from typing import TYPE_CHECKING

import numpy as np

from evomal.analysis.line_scans import FloatArray
from evomal.analysis.trained_models import metric_scale, metric_words
from evomal.analysis.training_curves import TrainingCurve, TrainingCurves
from evomal.report.bands import Band, add_legend, add_note, band_words, draw_bands, note_with
from evomal.report.style import figure_style, in_figure, new_figure, sentence_figure

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
