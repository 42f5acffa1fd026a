"""The rejection protocol and the fingerprint against plain torch, expression by expression."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from evomal.engine import Engine, EngineSettings
from evomal.engine.resolve import initial_model
from evomal.engine.screening import _with_every_class
from evomal.expression import Expression
from evomal.losses import ExpressionLoss, FocalLoss
from evomal.losses.loss import WeightedTree
from evomal.randomness import generator
from evomal.tasks.task import Task
from tests.engine.populations import EXPLOSIVE, SMOOTH, classification, regression, weights_of
from tests.engine.position_tasks import tagging

WRONG = Expression.parse("mul(-1, square(sub(y, f)))")


def untrained(task, seed=0, samples=100):
    rows = torch.from_numpy(generator(seed, "filter samples").choice(len(task.train), samples, replace=False))
    with torch.no_grad():
        return initial_model(task, seed)(task.train.inputs[rows]), task.train.targets[rows]


def test_gains_are_those_of_adam_on_the_outputs():
    task = regression()
    trees = [*SMOOTH, WRONG]
    weights = weights_of(trees)
    settings = EngineSettings(device="cpu", filter_steps=200)
    found = Engine(task, seed=0, settings=settings).gains(trees, weights)
    outputs, targets = untrained(task)
    before = F.mse_loss(outputs, targets).item()
    for tree, own, gain in zip(trees, weights, found, strict=True):
        variable = outputs.clone().requires_grad_()
        optimizer = torch.optim.Adam([variable], lr=task.recipe.lr)
        loss = ExpressionLoss(tree, weights=own, kind="regression")
        for _ in range(200):
            optimizer.zero_grad()
            loss(variable, targets).backward()
            optimizer.step()
        assert gain == pytest.approx(before - F.mse_loss(variable.detach(), targets).item(), rel=1e-3)
    assert found[0] > 0 > found[-1]


def test_one_that_diverges_gains_nothing():
    found = Engine(regression(), seed=0, settings=EngineSettings(device="cpu", filter_steps=10)).gains(
        [SMOOTH[0], EXPLOSIVE], [[1.0] * SMOOTH[0].edges, [1e30] * EXPLOSIVE.edges]
    )
    assert found[0] > 0
    assert found[1] == -math.inf


@pytest.mark.parametrize("make", [regression, classification])
def test_norms_are_those_of_each_sample_alone(make):
    task = make()
    weights = weights_of(SMOOTH)
    found = Engine(task, seed=0, settings=EngineSettings(device="cpu", filter_samples=20)).gradient_norms(
        SMOOTH, weights
    )
    outputs, targets = untrained(task, samples=20)
    for tree, own, norms in zip(SMOOTH, weights, found, strict=True):
        loss = ExpressionLoss(tree, weights=own, kind=task.kind)
        for sample, norm in enumerate(norms):
            variable = outputs[sample : sample + 1].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(loss(variable, targets[sample : sample + 1]), variable)
            assert norm == pytest.approx(gradient.norm().item(), rel=1e-4, abs=1e-7)


def test_a_dead_gradient_is_zero_everywhere():
    dead = Expression.parse("sign(sub(y, f))")
    (norms,) = Engine(regression(), seed=0, settings=EngineSettings(device="cpu")).gradient_norms([dead], [[1.0] * 3])
    assert not any(norms)


def test_several_tasks_count_together():
    tasks = [regression(seed=seed) for seed in range(2)]
    settings, weights = EngineSettings(device="cpu", filter_steps=50, filter_samples=10), weights_of(SMOOTH)
    engine = Engine(tasks, seed=0, settings=settings)
    assert {len(row) for row in engine.gradient_norms(SMOOTH, weights)} == {20}
    singles = [Engine(task, seed=0, settings=settings).gains(SMOOTH, weights) for task in tasks]
    assert engine.gains(SMOOTH, weights) == pytest.approx([sum(pair) / 2 for pair in zip(*singles, strict=True)])


def test_metrics_that_need_every_class_get_a_sample_of_each():
    targets = torch.tensor([0, 0, 0, 2, 0, 1, 2])
    assert _with_every_class(torch.tensor([0, 1]), targets).tolist() == [0, 1, 5, 3]
    assert _with_every_class(torch.tensor([3, 5, 0]), targets).tolist() == [3, 5, 0]
    labels = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert _with_every_class(torch.tensor([0]), labels).tolist() == [0, 2, 2]


def test_filters_look_at_as_many_positions_that_count():
    task, seed, samples = tagging(), 0, 20
    engine = Engine(task, seed=seed, settings=EngineSettings(device="cpu", filter_samples=samples))
    (norms,) = engine.gradient_norms(SMOOTH[:1], weights_of(SMOOTH[:1]))
    outputs, targets = untrained(task, samples=samples)
    counted = (targets.flatten() != -100).nonzero().flatten()
    kept = counted[generator(seed, "filter rows").choice(len(counted), samples, replace=False)]
    loss = ExpressionLoss(SMOOTH[0], weights=weights_of(SMOOTH[:1])[0])
    for norm, row in zip(norms, kept, strict=True):
        variable = outputs[row : row + 1].clone().requires_grad_()
        loss(variable, targets.flatten()[row : row + 1]).backward()
        assert norm == pytest.approx(variable.grad.norm().item(), rel=1e-4)


def test_a_class_that_occurs_at_some_position_is_among_the_samples():
    targets = torch.tensor([[0, 0, -100], [0, 1, -100], [0, 0, 2], [0, 2, 2]])
    assert _with_every_class(torch.tensor([0]), targets).tolist() == [0, 1, 2]
    assert _with_every_class(torch.tensor([3, 1]), targets).tolist() == [3, 1]


HALF = torch.tensor([0.25, 4.0])
"""Weights of two classes."""


def two_classes(**options):
    own = np.random.default_rng(0)
    x = own.normal(size=(200, 4))
    y = (x[:, 0] + own.normal(size=200) > 1).astype(int)
    return Task.from_arrays(x, y, model=lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), **options)


@pytest.mark.parametrize(
    "options",
    [{}, {"class_weight": HALF.tolist()}, {"sample_weight": np.linspace(0.1, 5, 200)}],
    ids=["none", "classes", "samples"],
)
def test_factors_match_the_gradients_that_trainings_have(options):
    task = two_classes(**options)
    square = WeightedTree(Expression.parse("square(sub(y, f))"), None)
    engine = Engine(task, seed=0, settings=EngineSettings(device="cpu", filter_samples=len(task.train)))
    factors = engine._matching_factors([square, nn.CrossEntropyLoss(), nn.MultiMarginLoss(reduction="mean")])
    model, batch = initial_model(task, 0), task.train
    weights = torch.ones(len(batch)) if batch.weights is None else batch.weights
    weights = weights if task.class_weight is None else weights * HALF[batch.targets]

    def norm(loss):
        costs = loss(model(batch.inputs), batch.targets)
        found = torch.autograd.grad((costs * weights).sum() / weights.sum(), list(model.parameters()))
        return torch.cat([own.flatten() for own in found]).norm().item()

    losses = [ExpressionLoss(square.expression, reduction="none"), nn.MultiMarginLoss(reduction="none")]
    baseline = norm(nn.CrossEntropyLoss(reduction="none"))
    expected = [baseline / norm(loss) for loss in losses]
    assert factors == pytest.approx([expected[0], 1.0, expected[1]], rel=1e-4)
    focal = norm(FocalLoss(gamma=3.0, reduction="none"))
    assert engine._matching_factors([square], "focal:gamma=3") == pytest.approx([focal / norm(losses[0])], rel=1e-4)


def test_a_reference_without_a_gradient_is_replaced_by_the_baseline():
    engine = Engine(regression(), seed=0, settings=EngineSettings(device="cpu"))
    square = WeightedTree(Expression.parse("square(sub(y, f))"), None)
    assert engine._matching_factors([square], "tukey:c=1e-6") == engine._matching_factors([square])
    assert engine._matching_factors([square], "tukey:c=3") != engine._matching_factors([square])


def test_weights_weigh_the_norms_and_what_has_none_does_not_move():
    settings = EngineSettings(device="cpu", filter_samples=50, filter_steps=50)
    trees, weights = SMOOTH[:1], weights_of(SMOOTH[:1])
    plain = Engine(two_classes(metric="nll"), seed=0, settings=settings)
    for pair in ([1.0, 4.0], [0.0, 2.0], [3.0, 3.0]):
        engine = Engine(two_classes(metric="nll", class_weight=pair), seed=0, settings=settings)
        targets = engine._screens[0]._targets
        own = torch.tensor(pair)[targets]
        expected = torch.tensor(plain.gradient_norms(trees, weights)) * own / own.mean()
        torch.testing.assert_close(torch.tensor(engine.gradient_norms(trees, weights)), expected)
        profiles, others = (torch.tensor(one.profiles(trees, weights)) for one in (engine, plain))
        assert torch.allclose(profiles, others) == (pair == [3.0, 3.0])
    idle = Engine(two_classes(metric="recall:label=0", class_weight=[0.0, 1.0]), seed=0, settings=settings)
    assert idle.gains(trees, weights) == [0.0]
