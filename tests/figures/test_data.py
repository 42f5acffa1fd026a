"""Trained models: those of an ordinary training, under names that tell their losses apart."""

import numpy as np
import pytest
import torch

import evomal
from evomal.errors import InputError
from evomal.figures.data import (
    fixed_rows,
    mean_and_deviation,
    trained_models,
    usual_losses,
)
from evomal.figures.training_curves import training_curves
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.text import plural
from tests.engine.populations import classification, dropping, regression

FAST = {"steps": 20, "device": "cpu"}


def test_they_are_ordinary_trainings_from_seeds_no_search_has_seen():
    task, said = regression(dropping), []
    found = list(trained_models(task, ["mse", "mae"], seeds=2, announce=said.append, **FAST))
    assert [(one.name, one.score.seed) for one in found] == [("mse", 1000), ("mse", 1001), ("mae", 1000), ("mae", 1001)]
    assert said == ["training with mse, 2 seeds", "training with mae, 2 seeds"]
    for one in found:
        assert one.score == evomal.train(task, one.name, seed=one.score.seed, **FAST)
        assert not one.score.model.training
        with torch.no_grad():
            assert task.metric(one.score.model(task.test.inputs), task.test.targets) == one.score.test


def test_a_diverged_training_has_a_sentence_in_place_of_a_model():
    task = regression(recipe=Recipe(lr=1e6, batch_size=32))
    (found,) = trained_models(task, ["mse"], seeds=1, **FAST)
    assert found.score.model is None
    assert found.sentence == "mse, seed 1000: the training loss was not finite by step 20"


def test_everything_is_checked_before_the_first_training():
    for losses, sentence in [
        ([], "at least one loss must be given but got none"),
        (["mse", "ce"], "the task is regression, but ce is for classification, multilabel"),
        (["mse", "mse"], "losses must be different but mse is given twice"),
    ]:
        with pytest.raises(InputError) as refusal:
            next(trained_models(regression(), losses, **FAST))
        assert str(refusal.value) == sentence
    with pytest.raises(InputError, match=r"^seeds must be at least 1 but got 0$"):
        next(trained_models(regression(), ["mse"], seeds=0))


def test_usual_losses_are_the_task_s_own_and_its_rivals():
    assert usual_losses(regression()) == ["mse", "huber", "mae"]
    assert usual_losses(classification()) == ["ce", "label-smoothing", "focal"]


def test_fixed_rows_are_distinct_rows_and_always_the_same():
    part = Part(torch.arange(100.0)[:, None], torch.arange(100))
    found, again, other = (fixed_rows(part, 30, purpose) for purpose in ("one", "one", "other"))
    assert len(set(found.targets.tolist())) == 30
    assert torch.equal(found.inputs[:, 0].long(), found.targets)
    assert torch.equal(found.targets, again.targets)
    assert not torch.equal(found.targets, other.targets)
    assert fixed_rows(part, 100, "one") is part


def test_means_deviations_and_numbers_for_people():
    mean, deviation = mean_and_deviation(np.array([[1.0, np.inf], [3.0, 1.0]]))
    assert mean.tolist() == [2.0, np.inf]
    assert deviation[0] == pytest.approx(np.sqrt(2))
    assert np.isnan(deviation[1])
    assert np.isnan(mean_and_deviation(np.array([[1.0]]))[1]).all()
    assert (plural(1, "seed"), plural(1200, "row")) == ("1 seed", "1,200 rows")


def test_a_shortened_schedule_keeps_its_milestones_or_takes_others():
    task = regression(recipe=Recipe(lr=0.05, batch_size=32, steps=60, milestones=(40, 54)))
    (scaled,) = trained_models(task, ["mse"], seeds=1, steps=30, device="cpu")
    (given,) = trained_models(task, ["mse"], seeds=1, steps=30, milestones=(5,), device="cpu")
    assert scaled.score.milestones == (20, 27)
    assert given.score.milestones == (5,)
    assert scaled.score.test != given.score.test
    curves = training_curves(task, ["mse"], seeds=1, steps=30, device="cpu")
    assert (curves.steps, curves.milestones) == (30, (20, 27))
