"""Training curves: those that `train` notes, averaged over the seeds that did not diverge."""

import math
import statistics

import numpy as np
import pytest

import evomal
from evomal.engine.scores import CurvePoint, Score, diverged_fitness, score_of
from evomal.figures.training_curves import TrainingCurve, training_curves
from evomal.tasks.recipe import Recipe
from tests.engine.populations import classification, regression

FAST = {"steps": 20, "device": "cpu"}


def score(seed, test, *points):
    return Score(test, 0.0, {}, [CurvePoint(*point) for point in points], seed, 2)


def test_curves_are_those_of_ordinary_trainings():
    task = classification()
    found = training_curves(task, ["ce", "focal"], points=4, seeds=2, **FAST)
    assert (found.task, found.metric, found.steps) == ("own", "error_rate", 20)
    for curve in found.losses:
        expected = [evomal.train(task, curve.name, seed=seed, curve_points=4, **FAST) for seed in (1000, 1001)]
        assert list(curve.scores) == expected
        assert curve.steps == [5, 10, 15, 20]
        assert curve.test == statistics.mean(score.test for score in expected)
        assert curve.test_deviation == pytest.approx(abs(expected[0].test - expected[1].test) / math.sqrt(2))
    assert found.columns() == training_curves(task, ["ce", "focal"], points=4, seeds=2, **FAST).columns()


def test_means_are_over_the_trainings_that_did_not_diverge():
    lost = score_of(regression(), diverged_fitness("lost"), None, seed=2, steps=1, curve=[CurvePoint(1, 1e9, 1e9)])
    curve = TrainingCurve(
        "a", (score(0, 0.5, (1, 4.0, 1.0), (2, 2.0, 0.5)), lost, score(1, 0.7, (1, 6.0, 3.0), (2, 2.0, 0.5)))
    )
    mean, deviation = curve.over_seeds("validation")
    assert mean.tolist() == [2.0, 0.5]
    np.testing.assert_allclose(deviation, [math.sqrt(2), 0.0])
    assert curve.over_seeds("training_loss")[0].tolist() == [5.0, 2.0]
    assert curve.test == pytest.approx(0.6)
    alone = TrainingCurve("a", (score(0, 0.5, (1, 4.0, 1.0)),))
    assert np.isnan(alone.over_seeds("validation")[1]).all()
    assert math.isnan(alone.test_deviation)


def test_a_diverged_training_gives_a_sentence_and_keeps_its_rows():
    task = regression(recipe=Recipe(lr=1e6, batch_size=32))
    found = training_curves(task, ["mse"], points=10, seeds=1, **FAST)
    assert found.sentences == ("mse, seed 1000: the training loss was not finite by step 20",)
    (curve,) = found.losses
    assert (curve.trained, curve.steps) == ((), [])
    assert math.isnan(curve.test)
    columns = found.columns()
    assert set(columns["outcome"]) == {"diverged"}
    assert columns["step"] == list(range(2, 21, 2))
    assert {len(column) for column in columns.values()} == {10}
