"""Frozen parameters, buffers of every sort, shared weights, and other models that people have."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from evomal.engine import Engine, EngineSettings, train
from evomal.engine.resolve import initial_model
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses import ExpressionLoss
from evomal.tasks.parts import Batches
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from tests.engine.populations import EXPLOSIVE, SMOOTH, classification, network, regression, weights_of, with_recipe
from tests.engine.test_weight_optimisation import by_double_backprop

SQUARE = Expression.parse("square(sub(y, f))")


def partly_frozen():
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    model[0].weight.requires_grad_(False)
    return model


class Projected(nn.Module):
    """A random projection in a buffer, which is part of a start."""

    def __init__(self, persistent=True):
        super().__init__()
        self.register_buffer("projection", torch.randn(4, 16), persistent=persistent)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(torch.tanh(x @ self.projection))


class Counting(nn.Module):
    """Changes a buffer that is not saved, in training, and uses it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(1), persistent=False)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        if self.training:
            self.scale.mul_(1.01)
        return self.head(x) * self.scale


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def normed():
    return nn.Sequential(spectral_norm(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 1))


MODELS = {"frozen": partly_frozen, "projected": Projected, "tied": Tied, "counting": Counting, "normed": normed}


def trained_plainly(task, expression, weights, steps):
    """The usual loop on a fresh copy, in double precision."""
    model = copy.deepcopy(initial_model(task, 0)).double().train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    recipe = task.recipe
    optimizer = torch.optim.SGD(trained, lr=recipe.lr, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay)
    loss = ExpressionLoss(expression, weights=weights, kind="regression")
    batches = Batches(len(task.train), recipe.batch_size, seed=0, purpose="training")
    for step in range(steps):
        optimizer.zero_grad()
        rows = batches[step]
        loss(model(task.train.inputs[rows].double()), task.train.targets[rows].double()).backward()
        optimizer.step()
    with torch.no_grad():
        return F.mse_loss(model.eval()(task.validation.inputs.double()), task.validation.targets.double()).item()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", ["auto", "looped"])
def test_fitness_is_that_of_the_usual_loop(name, mode):
    task, weights = regression(MODELS[name]), weights_of(SMOOTH)
    settings = EngineSettings(device="cpu", dtype=torch.float64, training_steps=20, population_mode=mode)
    engine = Engine(task, seed=0, settings=settings)
    for _ in range(2):
        found = engine.evaluate(SMOOTH, weights)
        for tree, own, fitness in zip(SMOOTH, weights, found, strict=True):
            assert fitness.value == pytest.approx(trained_plainly(task, tree, own, 20), rel=1e-6)


@pytest.mark.parametrize("name", ["projected", "tied"])
@pytest.mark.parametrize("inner_steps", [1, 2])
def test_weights_are_those_of_double_backprop(name, inner_steps):
    task, phi = regression(MODELS[name]), weights_of(SMOOTH[:2])
    settings = EngineSettings(
        device="cpu", dtype=torch.float64, meta_steps=5, meta_lr=0.05, inner_steps=inner_steps, training_steps=1
    )
    found = Engine(task, seed=0, settings=settings).optimise(SMOOTH[:2], phi)
    for tree, start, result in zip(SMOOTH, phi, found, strict=False):
        expected = by_double_backprop([task], tree, start, steps=5, lr=0.05, inner_steps=inner_steps)
        assert result.weights == pytest.approx(expected.tolist(), rel=1e-7)


def test_frozen_parameters_stay_where_they_are_in_meta_steps():
    task = regression(partly_frozen)
    settings = EngineSettings(device="cpu", dtype=torch.float64, meta_steps=3, meta_lr=0.05, training_steps=1)
    (found,) = Engine(task, seed=0, settings=settings).optimise([SQUARE], [[1.0] * 3])
    weights = torch.ones(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=0.05)
    for step in range(3):
        model = initial_model(task, 0, "meta step", step).double()
        own = dict(model.named_parameters())
        rows = Batches(len(task.train), 32, seed=0, purpose="meta training 0")[step]
        loss = ExpressionLoss(SQUARE, weights=weights, kind="regression")
        value = loss(model(task.train.inputs[rows].double()), task.train.targets[rows].double())
        names = [name for name, parameter in own.items() if parameter.requires_grad]
        gradients = torch.autograd.grad(value, [own[name] for name in names], create_graph=True)
        rate = task.recipe.lr * (1 + task.recipe.momentum)
        moved = {
            name: own[name] - rate * (gradient + task.recipe.weight_decay * own[name])
            for name, gradient in zip(names, gradients, strict=True)
        }
        rows = Batches(len(task.validation), 32, seed=0, purpose="meta validation")[step]
        outputs = torch.func.functional_call(model, moved, (task.validation.inputs[rows].double(),))
        optimizer.zero_grad()
        F.mse_loss(outputs, task.validation.targets[rows].double()).backward()
        optimizer.step()
    assert found.weights == pytest.approx(weights.tolist(), rel=1e-7)


@pytest.mark.parametrize("name", ["counting", "normed"])
def test_buffers_leave_no_trace_between_calls(name):
    settings = EngineSettings(device="cpu", meta_steps=4, training_steps=4, population_mode="looped")
    engine = Engine(regression(MODELS[name]), seed=0, settings=settings)
    weights = weights_of(SMOOTH)
    assert engine.optimise(SMOOTH, weights) == engine.optimise(SMOOTH, weights)
    assert engine.evaluate(SMOOTH, weights) == engine.evaluate(SMOOTH, weights)


def test_only_buffers_that_training_changes_forbid_stacking():
    modes = {name: Engine(regression(make), seed=0).plans[0].mode for name, make in MODELS.items()}
    assert modes == {
        "frozen": "stacked", "projected": "stacked", "tied": "stacked", "counting": "looped", "normed": "looped"
    }  # fmt: skip


def binary(model):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    task = Task.from_arrays(x, (x[:, 0] > 1.2).astype(int), model=model)
    return with_recipe(task, Recipe(lr=0.05, batch_size=32))


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_a_model_of_nans_never_wins(mode):
    """The error rate of NaN outputs is a number: that of always class 0."""
    task = binary(lambda: nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 1)))
    settings = EngineSettings(device="cpu", training_steps=1, population_mode=mode)
    diverged, healthy = Engine(task, seed=0, settings=settings).evaluate(
        [Expression.parse("mul(y, f)"), SQUARE], [[1e18, 1e18], [1.0] * 3]
    )
    assert (diverged.outcome, diverged.value) == ("diverged", math.inf)
    assert healthy.outcome == "evaluated"


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_one_infinite_loss_among_finite_ones_is_divergence(mode):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 4)), rng.normal(size=300)
    y[rng.integers(300)] = 1e12
    task = Task.from_arrays(x, y, model=network, kind="regression", standardise=False, validation=0.1, test=0.1)
    task = with_recipe(task, Recipe(lr=0.01, batch_size=16))
    tree = Expression.parse("add(abs(sub(y, f)), square(square(square(y))))")
    settings = EngineSettings(device="cpu", training_steps=120, population_mode=mode)
    (found,) = Engine(task, seed=0, settings=settings).evaluate([tree], [[1.0] * tree.edges])
    assert found.outcome == "diverged"


def test_multilabel_end_to_end():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    task = Task.from_arrays(x, (x[:, :3] > 0).astype(int), kind="multilabel", model=lambda: nn.Linear(4, 3))
    task = with_recipe(task, Recipe(lr=0.5, batch_size=32))
    weights = weights_of([SQUARE])
    settings = EngineSettings(device="cpu", training_steps=100, meta_steps=3)
    engine = Engine(task, seed=0, settings=settings)
    assert engine.optimise([SQUARE], weights)[0].diverged_at is None
    assert engine.gains([SQUARE], weights)[0] > 0
    assert engine.evaluate([SQUARE], weights)[0].value < 0.1
    score = train(task, "ce", steps=100, device="cpu")
    assert score.test < 0.1
    assert set(score.metrics) == {
        "error_rate", "balanced_error", "nll", "brier", "macro_f1", "auroc", "average_precision",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("expressions", "weights", "sentence"),
    [
        ([SQUARE], [[1.0]], "an expression of 4 nodes needs 3 weights, one per non-root node, but got 1"),
        ([SQUARE], [[1.0] * 5], "needs 3 weights"),
        ([SQUARE, SQUARE], [[1.0] * 3], "there must be weights for each of 2 expressions but got 1 row"),
        (["square(sub(y, f))"], [[1.0] * 3], "a candidate must be an Expression but got str"),
    ],
)
@pytest.mark.parametrize("method", ["optimise", "evaluate", "gains", "gradient_norms"])
def test_weights_that_do_not_fit_are_refused(expressions, weights, sentence, method):
    engine = Engine(regression(), seed=0, settings=EngineSettings(device="cpu", meta_steps=1, training_steps=1))
    with pytest.raises(InputError, match=sentence):
        getattr(engine, method)(expressions, weights)


@pytest.mark.parametrize("method", ["optimise", "evaluate", "gains", "gradient_norms"])
def test_nobody_is_nothing(method):
    engine = Engine(regression(), seed=0, settings=EngineSettings(device="cpu", meta_steps=1, training_steps=1))
    assert getattr(engine, method)([], []) == []


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_callers_without_gradients(context):
    settings = EngineSettings(device="cpu", meta_steps=2, training_steps=5)
    weights = weights_of([SQUARE])
    expected = Engine(regression(), seed=0, settings=settings).evaluate([SQUARE], weights)
    with context():
        engine = Engine(regression(), seed=0, settings=settings)
        engine.optimise([SQUARE], weights)
        assert engine.evaluate([SQUARE], weights) == expected
        assert train(regression(), "mse", steps=5, device="cpu").outcome == "trained"


def test_steps_are_kept_to_when_one_diverges():
    settings = EngineSettings(device="cpu", training_steps=200, meta_steps=1, population_mode="looped")
    engine = Engine(regression(), seed=0, settings=settings)
    reported = []
    found = engine.evaluate(
        [EXPLOSIVE, SQUARE], [[1e3] * EXPLOSIVE.edges, [1.0] * 3], report=lambda stage, steps: reported.append(steps)
    )
    assert found[0].outcome == "diverged"
    assert sum(reported) == engine.steps(2)["evaluate"]


def test_a_loss_with_parameters_of_its_own_keeps_them():
    weights = torch.nn.Parameter(torch.ones(3))
    loss = ExpressionLoss(SQUARE, weights=weights, kind="regression")
    train(regression(), loss, steps=5, device="cpu")
    assert weights.grad is None


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (lambda: regression(lambda: nn.Linear(3, 1)), r"the model cannot take the task's inputs of shape \[4\]"),
        (lambda: regression(lambda: nn.Linear(4, 2)), "the task has 1 target but the model has 2 outputs"),
        (lambda: classification(lambda: nn.Linear(4, 2)), "the task has 3 classes but the model has 2 outputs"),
        (lambda: regression(nn.Flatten), "a model must have parameters to be trained but has none"),
        (lambda: regression(nn.Linear(4, 1)), "model must be a function that makes a fresh model but got a Linear"),
    ],
)
def test_models_that_do_not_fit_are_refused_in_a_sentence(task, sentence):
    with pytest.raises(InputError, match=sentence):
        train(task(), "mse" if "class" not in sentence else "ce", steps=1, device="cpu")


def test_a_factory_that_draws_from_numpy_is_reproducible_and_leaves_no_trace():
    def noisy():
        model = nn.Linear(4, 1)
        with torch.no_grad():
            model.weight.copy_(torch.tensor(np.random.normal(size=(1, 4))))  # noqa: NPY002
        return model

    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again = (train(regression(noisy), "mse", seed=1, steps=3, device="cpu").test for _ in range(2))
    assert first == again
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recurrent_models_on_cuda():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, 1)

        def forward(self, x):
            return self.head(self.cells(x.unsqueeze(-1))[0][:, -1])

    weights = weights_of([SQUARE])
    found = [
        Engine(
            regression(Recurrent), seed=0, settings=EngineSettings(device=device, meta_steps=8, training_steps=8)
        ).optimise([SQUARE], weights)[0]
        for device in ("cpu", "cuda")
    ]
    assert found[1].weights == pytest.approx(found[0].weights, rel=1e-4)
    assert torch.backends.cudnn.enabled
