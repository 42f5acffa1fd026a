"""Fitness by every way: stacked, looped, and `evomal.train` with the expression as a module."""

import dataclasses
import math
import types

import pytest
import torch
import torch.nn.functional as F

import evomal
from evomal.engine import Engine, EngineSettings, Trial, train
from evomal.engine.resolve import initial_model
from evomal.engine.stacked import TrialStack
from evomal.losses import CATALOGUE, ExpressionLoss
from evomal.randomness import derived_seed
from evomal.tasks.parts import Batches, Part
from evomal.tasks.recipe import Recipe
from tests.engine.populations import (
    EXPLOSIVE,
    SMOOTH,
    classification,
    dropping,
    normalised,
    regression,
    weights_of,
)

DOUBLE = {"device": "cpu", "dtype": torch.float64, "training_steps": 50}


def one_by_one(task, expression, weights, *, seed):
    """The usual loop in double precision, written out."""
    recipe, loss = task.recipe, ExpressionLoss(expression, weights=weights, kind=task.kind)
    model = initial_model(task, seed).double()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=recipe.lr, momentum=recipe.momentum, nesterov=True, weight_decay=recipe.weight_decay
    )
    batches = Batches(len(task.train), recipe.batch_size, seed=seed, purpose="training")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "dropout"))
        for step in range(50):
            optimizer.param_groups[0]["lr"] = recipe.lr * 0.1 ** sum(at <= step for at in recipe.milestones)
            rows = batches[step]
            optimizer.zero_grad()
            loss(model(task.train.inputs[rows].double()), task.train.targets[rows].double()).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        return F.mse_loss(model(task.validation.inputs.double()), task.validation.targets.double()).item()


@pytest.mark.parametrize("model", [None, dropping])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("milestones", [(), (10, 30)])
def test_stacked_is_looped(model, optimizer, milestones):
    task = regression(model, recipe=Recipe(lr=0.02, batch_size=32, milestones=milestones))
    weights = weights_of(SMOOTH)
    found = [
        Engine(task, seed=0, settings=EngineSettings(**DOUBLE, population_mode=mode, optimizer=optimizer)).evaluate(
            SMOOTH, weights
        )
        for mode in ("stacked", "looped")
    ]
    for stacked, looped in zip(*found, strict=True):
        assert stacked.value == pytest.approx(looped.value, rel=1e-5)


@pytest.mark.parametrize("model", [None, dropping, normalised])
@pytest.mark.parametrize("milestones", [(), (10, 30)])
def test_looped_is_one_by_one(model, milestones):
    task = regression(model, recipe=Recipe(lr=0.02, batch_size=32, milestones=milestones))
    weights = weights_of(SMOOTH)
    found = Engine(task, seed=3, settings=EngineSettings(**DOUBLE, population_mode="looped")).evaluate(SMOOTH, weights)
    for expression, own, fitness in zip(SMOOTH, weights, found, strict=True):
        assert fitness.value == pytest.approx(one_by_one(task, expression, own, seed=3), rel=1e-5)


@pytest.mark.parametrize("model", [None, dropping, normalised])
def test_it_is_what_a_training_by_itself_comes_to(model):
    task, weights = regression(model), weights_of(SMOOTH)
    settings = EngineSettings(device="cpu", training_steps=50, population_mode="looped")
    found = Engine(task, seed=3, settings=settings).evaluate(SMOOTH, weights)
    for expression, own, fitness in zip(SMOOTH, weights, found, strict=True):
        loss = ExpressionLoss(expression, weights=own, kind="regression")
        alone = train(task, loss, seed=3, steps=50, device="cpu").validation
        assert fitness.value == pytest.approx(alone, rel=1e-4)


def test_classification_and_softplus():
    task, weights = classification(), weights_of(SMOOTH)
    for mode in ("stacked", "looped"):
        settings = EngineSettings(device="cpu", training_steps=60, population_mode=mode, activation="softplus")
        found = Engine(task, seed=0, settings=settings).evaluate(SMOOTH, weights)
        assert found[0].value < 0.4
        expected = train(
            task, ExpressionLoss(SMOOTH[0], weights=weights[0], activation="softplus"), steps=60, device="cpu"
        )
        assert found[0].value == pytest.approx(expected.validation, abs=0.026)  # one sample of forty


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_a_lost_one_changes_none_of_the_others(mode):
    task = regression()
    settings = EngineSettings(**DOUBLE, population_mode=mode)
    healthy = [SMOOTH[index % 5] for index in range(24)]
    phi = weights_of(healthy)
    expected = Engine(task, seed=0, settings=settings).evaluate(healthy, phi)
    found = Engine(task, seed=0, settings=settings).evaluate(
        [*healthy[:7], EXPLOSIVE, *healthy[7:]], [*phi[:7], [1e3] * EXPLOSIVE.edges, *phi[7:]]
    )
    diverged = found.pop(7)
    assert (diverged.value, diverged.outcome) == (math.inf, "diverged")
    assert "was not finite" in diverged.sentence
    assert [one.value for one in found] == pytest.approx([other.value for other in expected], rel=1e-12)


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_alone_among_others_and_after_others_it_is_exactly_the_same(mode):
    settings = EngineSettings(device="cpu", training_steps=30, population_mode=mode)
    task, weights = regression(dropping), weights_of(SMOOTH)
    engine = Engine(task, seed=0, settings=settings)
    together = engine.evaluate(SMOOTH, weights)
    again = engine.evaluate(SMOOTH[::-1], weights[::-1])[::-1]
    alone = [engine.evaluate([tree], [own])[0] for tree, own in zip(SMOOTH, weights, strict=True)]
    assert together == again == alone


def test_losses_of_any_kind_trained_together_come_to_what_they_do_alone():
    task = classification()
    names = ["ce", "label-smoothing", "focal", "absolute-ce"]
    losses = [
        *(CATALOGUE[name]() for name in names),
        CATALOGUE["ce"](weight=[1.0, 2.0, 3.0]),
        CATALOGUE["class-weighted-ce"]([0.1, 0.3, 0.6]),
        CATALOGUE["balanced-softmax"](1.0, [0.1, 0.3, 0.6]),
        torch.nn.CrossEntropyLoss(),
    ]
    settings = EngineSettings(device="cpu", training_steps=60, population_mode="stacked")
    # Two trials of each loss, so that those of evomal's own are one batch.
    trials = [Trial(loss, lr, 2) for lr in (task.recipe.lr, task.recipe.lr / 3) for loss in losses]
    found = Engine(task, seed=2, settings=settings).run_trials(trials, test=True)
    for trial, (score,) in zip(trials, found, strict=True):
        alone = train(task, trial.loss, seed=2, steps=60, device="cpu", lr=trial.lr)
        assert score.metrics["nll"] == pytest.approx(alone.metrics["nll"], rel=1e-4)
        assert (score.seed, score.steps) == (alone.seed, alone.steps)


def test_a_loss_that_is_lost_changes_no_other_in_the_stack():
    class Explosive(torch.nn.Module):
        def forward(self, output, target):
            return torch.exp(1e3 * (output - target).abs()).mean()

    task, healthy = regression(), CATALOGUE["huber"](kind="regression")
    settings = EngineSettings(device="cpu", training_steps=40, population_mode="stacked")
    trials = [Trial(loss, task.recipe.lr, 0) for loss in (healthy, Explosive(), healthy)]
    (first,), (diverged,), (last,) = Engine(task, seed=0, settings=settings).run_trials(trials, test=True)
    assert diverged.diverged
    assert "was not finite at step 1" in diverged.sentence
    assert first.test == last.test == pytest.approx(train(task, healthy, steps=40, device="cpu").test, rel=1e-4)


@pytest.mark.parametrize("splits", [(0, 0), (1, 2)])
def test_metrics_that_are_computed_on_the_host_are_the_same(monkeypatch, splits):
    task = regression()
    task = dataclasses.replace(task, validation=dataclasses.replace(
        task.validation, weights=torch.arange(len(task.validation)) % 3.0
    ))  # fmt: skip
    settings = EngineSettings(device="cpu", training_steps=10, population_mode="stacked")
    trials = [Trial(CATALOGUE[name](kind="regression"), 0.01, seed, split=split)
              for seed, split in enumerate(splits) for name in ("mse", "mae")]  # fmt: skip
    asked = []
    found = [Engine(task, seed=0, settings=settings).run_trials(trials, test=True)]
    monkeypatch.setattr(TrialStack, "_is_judged_on_host", lambda self, outputs: asked.append(outputs.shape) or True)
    found.append(Engine(task, seed=0, settings=settings).run_trials(trials, test=True))
    assert asked
    assert found[0] == found[1]


def test_only_small_outputs_and_named_metrics_are_judged_on_the_host():
    on_device = types.SimpleNamespace(is_cuda=True, shape=(1, 1, 5, 1))

    def is_judged_on_host(task, outputs=on_device):
        stack = types.SimpleNamespace(setup=types.SimpleNamespace(task=task))
        return TrialStack._is_judged_on_host(stack, outputs)

    task = regression()
    assert is_judged_on_host(task)
    assert not is_judged_on_host(task, torch.zeros(1, 1, 5, 1))
    own = evomal.Metric(lambda outputs, targets: 0.0, "own", higher_is_better=False)
    assert not is_judged_on_host(task.judged_by(own))
    many = Part(torch.zeros(300_000, 1), torch.zeros(300_000, 1))
    assert not is_judged_on_host(dataclasses.replace(task, test=many))


def test_several_tasks_are_averaged():
    tasks = [regression(seed=seed) for seed in range(2)]
    settings, weights = EngineSettings(**DOUBLE), weights_of(SMOOTH)
    both = Engine(tasks, seed=0, settings=settings).evaluate(SMOOTH, weights)
    first, second = (Engine(task, seed=0, settings=settings).evaluate(SMOOTH, weights) for task in tasks)
    for mean, one, other in zip(both, first, second, strict=True):
        assert mean.value == pytest.approx((one.value + other.value) / 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_on_cuda_it_is_as_on_the_cpu(mode):
    task, weights = regression(), weights_of(SMOOTH)
    values = []
    for device in ("cpu", "cuda"):
        settings = EngineSettings(device=device, meta_steps=20, training_steps=50, population_mode=mode)
        engine = Engine(task, seed=0, settings=settings)
        for _ in range(2):  # the second time everything is replayed
            tuned = engine.optimise(SMOOTH, weights)
            fitness = engine.evaluate(SMOOTH, [found.weights for found in tuned])
        values.append(([found.weights for found in tuned], [found.value for found in fitness]))
    for cpu, cuda in zip(*(value[0] for value in values), strict=True):
        assert cuda == pytest.approx(cpu, rel=1e-4)
    assert values[1][1] == pytest.approx(values[0][1], rel=1e-2)


def test_partial_trainings_of_a_long_recipe_do_not_decay():
    """The paper's 500 steps of 150 000: the milestones lie far beyond them, and are not brought nearer."""
    expression, weights = SMOOTH[0], weights_of(SMOOTH[:1])[0]
    long = Recipe(lr=0.05, batch_size=32, steps=15_000, milestones=(10_000, 13_500))
    engines = [
        Engine(regression(recipe=recipe), seed=0, settings=EngineSettings(**DOUBLE))
        for recipe in (long, Recipe(lr=0.05, batch_size=32))
    ]
    long_fitness, constant_fitness = (engine.evaluate([expression], [weights]) for engine in engines)
    assert long_fitness == constant_fitness


@pytest.mark.parametrize("mode", ["looped", "stacked"])
def test_another_seed_is_that_of_an_ordinary_training_and_leaves_the_engine_s_own_alone(mode):
    task = regression()
    settings = EngineSettings(training_steps=12, device="cpu", population_mode=mode)
    engine = Engine(task, seed=0, settings=settings)
    trees, phi = SMOOTH[:3], weights_of(SMOOTH[:3])
    before = engine.evaluate(trees, phi)
    fresh = engine.evaluate(trees, phi, seed=3000)
    losses = [ExpressionLoss(tree, weights=row, kind="regression") for tree, row in zip(trees, phi, strict=True)]
    alone = [train(task, loss, seed=3000, steps=12, device="cpu").validation for loss in losses]
    assert [found.value for found in fresh] == pytest.approx(alone, rel=1e-5)
    assert [found.value for found in engine.evaluate_losses(losses, seed=3000)] == pytest.approx(alone, rel=1e-5)
    assert engine.evaluate(trees, phi) == before != fresh
