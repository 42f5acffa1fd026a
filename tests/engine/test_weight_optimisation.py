"""Tuned weights against a plain loop of double backprop and torch's Adam, one candidate at a time."""

import gc
import random
import resource

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from evomal.engine import Engine, EngineSettings
from evomal.engine.resolve import initial_model
from evomal.expression.generate import ramped_half_and_half
from evomal.losses import ExpressionLoss
from evomal.tasks.parts import Batches
from evomal.tasks.recipe import Recipe
from tests.engine.populations import EXPLOSIVE, SMOOTH, dropping, normalised, regression, weights_of

DOUBLE = {"device": "cpu", "dtype": torch.float64, "meta_steps": 12, "meta_lr": 0.05, "training_steps": 5}


def by_double_backprop(tasks, expression, start, *, steps, lr, inner_steps, seed=0):
    """The reference: unroll, differentiate twice, torch's own Adam."""
    weights = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=lr)
    for step in range(steps):
        total = 0
        for task in tasks:
            recipe = task.recipe
            model = initial_model(task, seed, "meta step", step).double()
            own = dict(model.named_parameters())
            momenta = {name: torch.zeros_like(value) for name, value in own.items()}
            loss = ExpressionLoss(expression, weights=weights, kind=task.kind)
            for inner in range(inner_steps):
                rows = Batches(len(task.train), recipe.batch_size, seed=seed, purpose=f"meta training {inner}")[step]
                outputs = functional_call(model, own, (task.train.inputs[rows].double(),))
                gradients = torch.autograd.grad(
                    loss(outputs, task.train.targets[rows].double()), list(own.values()), create_graph=True
                )
                moved = {}
                for (name, value), gradient in zip(own.items(), gradients, strict=True):
                    gradient = gradient + recipe.weight_decay * value
                    momenta[name] = recipe.momentum * momenta[name] + gradient
                    direction = gradient + recipe.momentum * momenta[name] if recipe.nesterov else momenta[name]
                    moved[name] = value - recipe.lr * direction
                own = moved
            rows = Batches(len(task.validation), recipe.batch_size, seed=seed, purpose="meta validation")[step]
            outputs = functional_call(model, own, (task.validation.inputs[rows].double(),))
            total = total + F.mse_loss(outputs, task.validation.targets[rows].double())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return weights.detach()


@pytest.mark.parametrize("mode", ["stacked", "looped"])
@pytest.mark.parametrize("inner_steps", [1, 3])
@pytest.mark.parametrize("count", [1, 2])
def test_it_equals_the_plain_way(mode, inner_steps, count):
    tasks = [regression(seed=seed, rows=150 + 50 * seed) for seed in range(count)]
    engine = Engine(tasks, seed=0, settings=EngineSettings(**DOUBLE, population_mode=mode, inner_steps=inner_steps))
    trees = SMOOTH if count == 1 else SMOOTH[:2]
    phi = weights_of(trees)
    found = engine.optimise(trees, phi)
    for expression, start, result in zip(trees, phi, found, strict=True):
        expected = by_double_backprop(tasks, expression, start, steps=12, lr=0.05, inner_steps=inner_steps)
        assert result.weights == pytest.approx(expected.tolist(), rel=1e-7)
        assert result.diverged_at is None


@pytest.mark.parametrize("model", [dropping, normalised])
def test_stacked_equals_looped_for_models_that_draw_and_normalise(model):
    task, phi = regression(model), weights_of(SMOOTH)
    looped = Engine(task, seed=1, settings=EngineSettings(**DOUBLE, population_mode="looped"))
    expected = looped.optimise(SMOOTH, phi)
    if model is normalised:
        assert looped.plans[0].mode == "looped"
        return
    stacked = Engine(task, seed=1, settings=EngineSettings(**DOUBLE, population_mode="stacked"))
    for one, other in zip(stacked.optimise(SMOOTH, phi), expected, strict=True):
        assert one.weights == pytest.approx(other.weights, rel=1e-8)


@pytest.mark.parametrize("model", [None, dropping])
def test_alone_among_others_and_shuffled_it_is_exactly_the_same(model):
    settings = EngineSettings(device="cpu", meta_steps=4, training_steps=4, population_mode="looped")
    trees = list(ramped_half_and_half(25, generator=np.random.default_rng(0)))
    task, phi = regression(model), weights_of(trees)
    engine = Engine(task, seed=0, settings=settings)
    together = engine.optimise(trees, phi), engine.evaluate(trees, phi)
    order = np.random.default_rng(1).permutation(25)
    mixed_trees, mixed_phi = [trees[index] for index in order], [phi[index] for index in order]
    other = Engine(task, seed=0, settings=settings)
    shuffled = other.optimise(mixed_trees, mixed_phi), other.evaluate(mixed_trees, mixed_phi)
    for place, index in enumerate(order):
        for one, another in zip(together, shuffled, strict=True):
            assert repr(one[index]) == repr(another[place])  # NaN is equal to itself here
    for index in (0, 7, 24):
        alone = (
            engine.optimise([trees[index]], [phi[index]]),
            engine.evaluate([trees[index]], [phi[index]]),
        )
        assert repr([alone[0][0], alone[1][0]]) == repr([together[0][index], together[1][index]])


def test_chunks_change_nothing():
    task, phi = regression(), weights_of(SMOOTH)
    results = [
        Engine(task, seed=0, settings=EngineSettings(device="cpu", meta_steps=4, population_mode="looped", chunk=chunk))
        .optimise(SMOOTH, phi)
        for chunk in (1, 2, None)
    ]  # fmt: skip
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_one_that_diverges_disturbs_nobody(mode):
    task = regression(recipe=Recipe(lr=2.0, batch_size=32))
    settings = EngineSettings(**{**DOUBLE, "population_mode": mode})
    healthy = [SMOOTH[index % 5] for index in range(24)]
    phi = weights_of(healthy)
    expected = Engine(task, seed=0, settings=settings).optimise(healthy, phi)
    explosive = [1e30] * EXPLOSIVE.edges
    found = Engine(task, seed=0, settings=settings).optimise(
        [*healthy[:10], EXPLOSIVE, *healthy[10:]], [*phi[:10], explosive, *phi[10:]]
    )
    diverged = found.pop(10)
    assert diverged.diverged_at == 0
    assert diverged.weights == explosive
    for one, other in zip(found, expected, strict=True):
        assert one.weights == pytest.approx(other.weights, rel=1e-12)
        assert one.diverged_at is None


def test_a_gradient_that_is_zero_moves_nothing():
    dead = type(SMOOTH[0]).parse("sign(sub(y, f))")
    (found,) = Engine(regression(), seed=0, settings=EngineSettings(**DOUBLE)).optimise([dead], [[1.0] * dead.edges])
    assert found.weights == [1.0] * dead.edges


def test_every_step_is_reported():
    engine = Engine(regression(), seed=0, settings=EngineSettings(**DOUBLE, population_mode="looped", chunk=2))
    reported = {"optimise": 0, "evaluate": 0}

    def report(stage, steps):
        reported[stage] += steps

    phi = weights_of(SMOOTH)
    engine.optimise(SMOOTH, phi, report=report)
    engine.evaluate(SMOOTH, phi, report=report)
    assert reported == engine.steps(len(SMOOTH))


def test_global_random_states_are_left_alone():
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    engine = Engine(regression(dropping), seed=0, settings=EngineSettings(**DOUBLE))
    phi = weights_of(SMOOTH)
    engine.evaluate(SMOOTH, [found.weights for found in engine.optimise(SMOOTH, phi)])
    engine.gains(SMOOTH, phi)
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])  # noqa: NPY002
    assert states[2] == random.getstate()


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_memory_is_flat(mode):
    """A hundred meta steps leave live tensors and resident memory where they were after ten."""
    task, phi = regression(), weights_of(SMOOTH)
    engine = Engine(task, seed=0, settings=EngineSettings(device="cpu", meta_steps=10, population_mode=mode))
    engine.optimise(SMOOTH, phi)
    before, resident = live_tensors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10):
        engine.optimise(SMOOTH, phi)
    assert live_tensors() <= before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 20 * 1024  # kilobytes


def live_tensors():
    gc.collect()
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())
