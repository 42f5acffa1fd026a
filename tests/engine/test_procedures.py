"""Procedures beside plain computations: a loop that stops early, numpy's logit adjustment, scipy's temperature."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.optimize
import torch

import evomal
from evomal.engine import procedures
from evomal.engine.procedures import PROCEDURES, Judge, fitted_temperature, specified_procedure, split_procedure
from evomal.engine.scores import Evaluated, Reached, diverged_fitness, fitness_of_outputs
from evomal.errors import InputError
from evomal.tasks.metric_functions import balanced_error, expected_calibration_error
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from tests.engine.populations import with_recipe

STEPS = {"steps": 40, "device": "cpu", "seed": 3}


def task_of(x, y, outputs, metric=None):
    def model():
        return torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, outputs))

    task = Task.from_arrays(x, y, model=model, metric=metric)
    return with_recipe(task, Recipe(lr=0.2, batch_size=16))


def classes(noise=0.0):
    """Three classes; a share of the labels is drawn at random."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = np.where(rng.random(300) < noise, rng.integers(0, 3, 300), x[:, :3].argmax(1))
    return task_of(x, y, 3)


def imbalanced():
    """Three classes that overlap, of shares about 0.8, 0.15 and 0.05."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=900, p=[0.8, 0.15, 0.05])
    return task_of(rng.normal(size=(900, 4)) + 1.5 * np.eye(4)[y], y, 3, "balanced_error")


def binary():
    rng = np.random.default_rng(0)
    y = rng.choice(2, size=600, p=[0.85, 0.15])
    return task_of(rng.normal(size=(600, 4)) + np.eye(4)[y], y, 1)


def kept_outputs(task, loss="ce", **options):
    """Test and validation outputs of a training, by the public function that keeps the model."""
    model = evomal.train(task, loss, keep_model=True, **{**STEPS, **options}).model
    with torch.no_grad():
        return model(task.validation.inputs), model(task.test.inputs)


def test_early_stopping_is_the_best_of_trainings_that_were_stopped():
    task = classes(noise=0.6)
    # A training that ends at each point: the recipe has no schedule, so that it is the beginning of the whole one.
    scores = {steps: evomal.train(task, "ce", **{**STEPS, "steps": steps}) for steps in range(8, 41, 8)}
    expected = min(scores.values(), key=lambda score: (score.validation, score.steps))
    found = evomal.train(task, "ce+early-stopping:points=5", **STEPS)
    assert (found.steps, found.validation, found.test) == (expected.steps, expected.validation, expected.test)
    assert found.metrics == expected.metrics
    assert found.steps < 40, "the example must have a best point before its end"


def test_logit_adjustment_subtracts_the_log_of_the_shares():
    task = imbalanced()
    validation, test = kept_outputs(task)
    shares = np.bincount(task.train.targets.numpy(), minlength=3) / len(task.train)

    def error(outputs, targets, tau):
        return balanced_error(outputs.double() - tau * torch.from_numpy(np.log(shares)), targets)

    for spec, tau in (("logit-adjustment", 1.0), ("logit-adjustment:tau=0.5", 0.5)):
        found = evomal.train(task, f"ce+{spec}", **STEPS)
        assert found.test == pytest.approx(error(test, task.test.targets, tau), abs=1e-12)
        assert found.validation == pytest.approx(error(validation, task.validation.targets, tau), abs=1e-12)
    plain = evomal.train(task, "ce", **STEPS)
    assert evomal.train(task, "ce+logit-adjustment:tau=0", **STEPS).test == plain.test
    assert evomal.train(task, "ce+logit-adjustment", **STEPS).test < plain.test
    taus = [number / 10 for number in range(31)]
    best = min(taus, key=lambda tau: error(validation, task.validation.targets, tau))
    tuned = evomal.train(task, "ce+tuned-logit-adjustment", **STEPS)
    assert tuned.test == pytest.approx(error(test, task.test.targets, best), abs=1e-12)


def test_one_logit_is_adjusted_as_two_would_be():
    task = binary()
    shares = np.bincount(task.train.targets.numpy(), minlength=2) / len(task.train)
    _, test = kept_outputs(task)
    moved = test.double() - math.log(shares[1] / shares[0])
    expected = float(((moved[:, 0] > 0).long() != task.test.targets).double().mean())
    assert evomal.train(task, "ce+logit-adjustment", **STEPS).test == pytest.approx(expected, abs=1e-12)


def likelihood(temperature, outputs, targets):
    scaled = outputs.astype(float) / temperature
    shifted = scaled - scaled.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return -logs[np.arange(len(targets)), targets].mean()


def test_temperature_scaling_is_scipys_minimum_and_keeps_the_error():
    task = classes(noise=0.3).judged_by("ece")
    validation, test = kept_outputs(task, steps=400, lr=0.5)
    found = scipy.optimize.minimize_scalar(
        likelihood, bounds=(0.05, 20), method="bounded", args=(validation.numpy(), task.validation.targets.numpy()),
        options={"xatol": 1e-10},
    )  # fmt: skip
    fitted = fitted_temperature(Evaluated(validation, task.validation.targets))
    assert fitted == pytest.approx(found.x, rel=1e-5)
    options = {**STEPS, "steps": 400, "lr": 0.5}
    plain, scaled = (evomal.train(task, loss, **options) for loss in ("ce", "ce+temperature"))
    assert scaled.test == pytest.approx(expected_calibration_error(test / found.x, task.test.targets), abs=1e-4)
    assert scaled.test < plain.test
    assert scaled.metrics["error_rate"] == plain.metrics["error_rate"]


def test_temperatures_of_bits_and_weighted_rows():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(400, 1, generator=generator)
    targets = (torch.rand(400, generator=generator) < (outputs[:, 0] / 2).sigmoid()).long()
    pairs = np.concatenate([np.zeros((400, 1)), outputs.numpy()], axis=1)
    found = scipy.optimize.minimize_scalar(
        likelihood, bounds=(0.05, 20), method="bounded", args=(pairs, targets.numpy()), options={"xatol": 1e-10}
    )
    assert fitted_temperature(Evaluated(outputs, targets)) == pytest.approx(found.x, rel=1e-5)
    labels = Evaluated(outputs.reshape(200, 2), targets.reshape(200, 2).float())
    assert fitted_temperature(labels) == pytest.approx(found.x, rel=1e-5)
    doubled = Evaluated(torch.cat([outputs, outputs[:100]]), torch.cat([targets, targets[:100]]))
    weights = torch.cat([torch.full((100,), 2.0), torch.ones(300)])
    assert fitted_temperature(Evaluated(outputs, targets, weights)) == pytest.approx(fitted_temperature(doubled))


def test_a_model_that_separates_validation_has_a_finite_temperature():
    outputs = torch.tensor([[4.0, -4.0], [-4.0, 4.0]])
    assert 0.01 <= fitted_temperature(Evaluated(outputs, torch.tensor([0, 1]))) < 0.5
    assert fitted_temperature(Evaluated(outputs, torch.tensor([1, 0]))) == pytest.approx(100.0)


def test_a_training_that_diverges_later_counts_with_its_best_point():
    task = classes()
    outputs = torch.zeros(len(task.validation), 3)
    good = Evaluated(outputs, task.validation.targets)
    judge = Judge(specified_procedure("early-stopping:points=2"), task, 10)
    judge.see(5, Reached(fitness_of_outputs(task, good), None, good))
    judge.see(7, Reached(diverged_fitness("it must not be looked at")))
    judge.see(10, Reached(diverged_fitness("the training loss was not finite by step 10")))
    score = judge.score(seed=0)
    assert (score.outcome, score.steps) == ("trained", 5)
    lost = Judge(specified_procedure("temperature"), task, 10)
    lost.see(10, Reached(diverged_fitness("the training loss was not finite by step 10")))
    assert lost.score(seed=0).diverged


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("ce+early-stoping", "there is no procedure named 'early-stoping': did you mean 'early-stopping'?"),
        ("ce+temperature:t=2", "temperature has no option 't': it has none"),
        ("ce+early-stopping:points=0", "early-stopping: points must be at least 1 but got 0"),
        ("ce+logit-adjustment:tau=-1", "logit-adjustment: tau must be a finite number of at least 0 and at most 100"),
    ],
)
def test_procedures_are_checked(spec, sentence):
    with pytest.raises(InputError) as raised:
        evomal.train(classes(), spec, **STEPS)
    assert str(raised.value).startswith(sentence)


def test_procedures_fit_kinds_of_tasks():
    task = evomal.load_task("diabetes", "mlp:hidden=4")
    with pytest.raises(InputError, match="the task is regression, but temperature is for classification, multilabel"):
        evomal.train(task, "mse+temperature", **STEPS)
    with pytest.raises(InputError, match="keep_model must be False with a procedure but got 'mse\\+early-stopping'"):
        evomal.train(task, "mse+early-stopping", keep_model=True, **STEPS)


def test_files_and_names_are_split_at_the_procedure(tmp_path):
    assert split_procedure("focal:gamma=1e+0") == ("focal:gamma=1e+0", None)
    assert split_procedure("ce+temperature") == ("ce", procedures.TemperatureScaling())
    path = tmp_path / "a+temperature"
    assert split_procedure(f"{path}+temperature")[0] == str(path)
    evomal.save_loss(evomal.losses.FocalLoss(), path)
    assert split_procedure(str(path)) == (str(path), None)


@pytest.mark.parametrize("name", PROCEDURES)
def test_every_procedure_is_described_and_named_by_its_text(name):
    found = specified_procedure(name)
    assert str(found) == name
    assert found.purpose
    assert found.citation
    for field in dataclasses.fields(found):
        other = dataclasses.replace(found, **{field.name: field.default + 1})
        assert specified_procedure(str(other)) == other
