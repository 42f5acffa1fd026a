"""Training curves as drawn: percent for shares, one scale for comparable losses only."""

import numpy as np

from evomal.engine.scores import CurvePoint, Score
from evomal.figures.style import save_figure
from evomal.figures.training_curves import TrainingCurve, TrainingCurves, draw_training_curves

STEPS = [5, 10, 15]


def curve(name, validation, losses, outcome="trained", seeds=2):
    points = [CurvePoint(*point) for point in zip(STEPS, losses, validation, strict=True)]
    return TrainingCurve(name, tuple(Score(0.5, 0.5, {}, points, seed, 15, outcome) for seed in range(seeds)))


def data(*curves, metric="error_rate", sentences=()):
    return TrainingCurves("own", metric, 15, curves, sentences)


def test_both_panels_show_the_means(tmp_path):
    found = data(curve("ce", [0.5, 0.3, 0.2], [2.0, 1.0, 0.5]), curve("focal", [0.5, 0.4, 0.2], [1.0, 0.6, 0.3]))
    figure = draw_training_curves(found)
    left, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), [50, 30, 20])
    np.testing.assert_allclose(right.lines[1].get_ydata(), [1.0, 0.6, 0.3])
    assert left.lines[0].get_xdata().tolist() == STEPS
    assert (left.get_ylabel(), left.get_xlabel()) == ("validation error rate (%)", "training step")
    assert right.get_ylabel() == "training loss of a batch"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ce", "focal"]
    assert figure.get_supxlabel() == "own; mean of 2 seeds, band: ±1 standard deviation"
    assert len(save_figure(figure, tmp_path / "figure", found.columns())) == 4


def test_losses_of_different_scales_are_drawn_from_their_least_to_their_most():
    found = data(
        curve("a", [1.0, 1, 1], [2.0, 1.0, 0.0]), curve("b", [1.0, 1, 1], [-100.0, -150.0, -300.0]), metric="mse"
    )
    left, right = draw_training_curves(found).axes
    assert right.get_ylabel() == "training loss of a batch\n(each scaled to 0 to 1)"
    np.testing.assert_allclose(right.lines[0].get_ydata(), [1, 0.5, 0])
    np.testing.assert_allclose(right.lines[1].get_ydata(), [1, 0.75, 0])
    assert left.get_ylabel() == "validation mse"
    assert left.lines[0].get_ydata().tolist() == [1, 1, 1]


def test_what_diverged_is_left_out_and_said():
    lost = curve("b", [1.0, 1, 1], [1.0, 1, 1], outcome="diverged")
    figure = draw_training_curves(data(curve("a", [1.0, 1, 1], [1.0, 1, 1]), lost, sentences=("b: lost", "b: lost")))
    assert [line.get_label() for line in figure.axes[0].lines] == ["a"]
    assert figure.get_supxlabel().endswith("; 2 of the trainings diverged")
    nothing = draw_training_curves(data(lost, sentences=("b: lost", "b: again")))
    assert [text.get_text() for text in nothing.texts] == ["b: lost; b: again"]
    assert nothing.axes == []
