"""Models of users' functions: pretrained ones, frozen and not, and functions that do not make a fresh one."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import evomal
from evomal.engine import Engine, EngineSettings, Trial, train
from evomal.engine.resolve import initial_model, put_into_training_mode
from evomal.engine.task_data import TaskData
from evomal.errors import InputError
from evomal.losses import SquaredErrorLoss
from evomal.tasks.model_trials import evaluating
from evomal.tasks.recipe import Recipe
from evomal.verdict.tuning import gradient_norm
from tests.engine.populations import SMOOTH, regression, weights_of

RECIPE = Recipe(lr=0.05, batch_size=32, steps=20)
LOSS = SquaredErrorLoss()
PRETRAINED = {
    "0.weight": torch.linspace(-1, 1, 32).view(8, 4), "0.bias": torch.linspace(-1, 1, 8), "1.weight": torch.ones(8),
    "1.bias": torch.zeros(8), "1.running_mean": torch.full((8,), 0.5), "1.running_var": torch.full((8,), 2.0),
    "1.num_batches_tracked": torch.tensor(7),
}  # fmt: skip


class FineTuned(nn.Module):
    """A head on a pretrained backbone with batch norm and dropout."""

    def __init__(self, *, is_frozen=True, mode="evaluation"):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5))
        self.backbone.load_state_dict(PRETRAINED)
        self.backbone.requires_grad_(not is_frozen)
        self.backbone.train(mode == "training")
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.backbone(x))


def frozen():
    return FineTuned()


def test_a_frozen_part_stays_in_the_mode_that_the_user_has_set():
    assert [layer.training for layer in fresh(frozen).backbone.modules()] == [False] * 5
    for mode in ("training", "evaluation"):  # pretrained models are returned in evaluation mode
        unfrozen = fresh(lambda mode=mode: FineTuned(is_frozen=False, mode=mode))
        assert all(layer.training for layer in unfrozen.modules())
    assert fresh(lambda: FineTuned(mode="training")).backbone[1].training
    whole = FineTuned(is_frozen=False).eval()
    put_into_training_mode(whole)
    assert all(layer.training for layer in whole.modules())
    model = fresh(frozen)
    with evaluating(model):
        assert not any(layer.training for layer in model.modules())
    assert (model.training, model.head.training, model.backbone[1].training) == (True, True, False)


def fresh(factory):
    return initial_model(regression(factory), 0)


@pytest.mark.parametrize("mode", ["looped", "stacked"])
def test_a_frozen_backbone_is_never_changed(mode):
    task = regression(frozen, recipe=RECIPE)
    settings = EngineSettings(training_steps=20, meta_steps=2, device="cpu", population_mode=mode)
    engine = Engine(task, seed=0, settings=settings)
    score = train(task, LOSS, device="cpu", keep_model=True)
    backbone = score.model.backbone.state_dict()
    assert all(torch.equal(backbone[name], value) for name, value in PRETRAINED.items())
    assert not torch.equal(score.model.head.weight, fresh(frozen).head.weight)
    # The same trial in the search: statistics and dropout of the backbone would make it another one.
    trials = [Trial(LOSS, 0.05, seed) for seed in (0, 0, 1)]
    (first,), (again,), (other,) = engine.run_trials(trials, test=True)
    assert first.test == pytest.approx(score.test, rel=1e-5)
    assert first.test == again.test != other.test  # starts differ by the head and the order of the data
    assert engine.optimise(SMOOTH[:2], weights_of(SMOOTH[:2]))[0].weights != weights_of(SMOOTH[:2])[0]
    if mode == "stacked":
        stack = engine._workspace.trials(0).take_stack(trials, groups=2, members=2)
        assert {name: len(value) for name, value in stack._parameters.items()} == {"head.weight": 4, "head.bias": 4}
        assert {len(value) for value in stack._constants.values()} == {2}  # by seed, not by member


def test_an_unfrozen_backbone_starts_from_the_same_weights_every_time():
    task = regression(lambda: FineTuned(is_frozen=False), recipe=RECIPE)
    scores = [train(task, LOSS, seed=seed, device="cpu", keep_model=True) for seed in (0, 0, 1)]
    weights = [score.model.backbone[0].weight for score in scores]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[0], PRETRAINED["0.weight"])
    assert int(scores[0].model.backbone[1].num_batches_tracked) == 27  # batch norm is in training mode
    assert torch.equal(initial_model(task, 5).backbone[0].weight, PRETRAINED["0.weight"])
    engine = Engine(task, seed=0, settings=EngineSettings(training_steps=20, meta_steps=2, device="cpu"))
    assert engine.plans[0].reason == "training changes its buffers, as batch norm does"
    (found,) = engine.run_trials([Trial(LOSS, 0.05, 0)], test=True)[0]
    assert found.test == scores[0].test


ONE = nn.Linear(4, 1)
BACKBONE = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
FROZEN = FineTuned().backbone
SAME = "^a task's model must make a fresh model at each call but made the same one twice$"


@pytest.mark.parametrize(
    "use",
    [
        lambda task: train(task, "mse", steps=2, device="cpu"),
        lambda task: evomal.search(task, preset="quick", device="cpu"),
        lambda task: evomal.compare(task, losses=["mae"], seeds=2, device="cpu"),
        lambda task: Engine(task, seed=0),
        lambda task: gradient_norm(task, LOSS, seed=0),
    ],
)
def test_a_function_that_makes_the_same_model_twice_is_refused_everywhere(use):
    with pytest.raises(InputError, match=SAME):
        use(regression(lambda: ONE))


def test_models_may_share_frozen_layers_only():
    with pytest.raises(InputError, match=r"share the parameter 0\.0\.weight: build every trained layer inside"):
        train(regression(lambda: nn.Sequential(BACKBONE, nn.Linear(8, 1))), "mse", device="cpu")
    statistics = nn.BatchNorm1d(4, affine=False)
    with pytest.raises(InputError, match=r"share the statistics of 0: build it inside"):
        train(regression(lambda: nn.Sequential(statistics, nn.Linear(4, 1))), "mse", device="cpu")
    task = regression(lambda: nn.Sequential(FROZEN, nn.Linear(8, 1)), recipe=RECIPE)
    assert np.isfinite(train(task, "mse", device="cpu").test)


def test_functions_are_called_once_more_to_see_whether_models_are_fresh():
    calls = []

    def model():
        calls.append(len(calls))
        return nn.Linear(4, 1)

    task = regression(model, recipe=RECIPE)
    calls.clear()
    for _ in range(3):
        initial_model(task, 0)
    assert len(calls) == 4
    TaskData(task, RECIPE, EngineSettings(device="cpu"), seed=0, device=torch.device("cpu"))
    assert len(calls) == 6


def test_lazy_layers_take_their_shapes_from_the_data():
    def lazy():
        return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Tanh(), nn.LazyLinear(1))

    task = dataclasses.replace(regression(lazy), recipe=RECIPE)
    first, again, other = (initial_model(task, seed) for seed in (0, 0, 1))
    states = [nn.utils.parameters_to_vector(model.parameters()) for model in (first, again, other)]
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    assert int(dict(first.named_buffers())["1.num_batches_tracked"]) == 0
    engine = Engine(task, seed=0, settings=EngineSettings(device="cpu", meta_steps=2, training_steps=5))
    ((score,),) = engine.run_trials([Trial(LOSS, 0.02, 3)])
    assert score.validation == pytest.approx(train(task, LOSS, seed=3, steps=5, lr=0.02, device="cpu").validation)


class WithAuxiliary(nn.Module):
    """Gives a second head's outputs in training mode."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return (self.layer(x), self.layer(x)) if self.training else self.layer(x)


def test_a_model_that_gives_a_tuple_in_training_mode_is_refused():
    with pytest.raises(InputError, match="the tensor of its outputs alone but in training mode gave a tuple"):
        train(regression(WithAuxiliary), LOSS, steps=2, device="cpu")
