"""Trials: what one comes to depends on itself alone, whichever others there are and however they are run."""

import dataclasses
import math
import os

import pytest
import torch
from torch import nn

from evomal.engine import Engine, EngineSettings, Rung, Trial, train
from evomal.engine.row_losses import tree_of
from evomal.errors import InputError
from evomal.losses import CATALOGUE, CrossEntropyLoss, ExpressionLoss
from evomal.losses.loss import WeightedTree
from evomal.reproducible import has_reproducible_products
from evomal.tasks.recipe import Recipe
from tests.engine.populations import EXPLOSIVE, SMOOTH, classification, dropping, regression, weights_of

TREES = [WeightedTree(tree, row) for tree, row in zip(SMOOTH, weights_of(SMOOTH), strict=True)]
HUBER = CATALOGUE["huber"](kind="regression")


class Odd(nn.Module):
    """A user's own loss, which evomal knows nothing about."""

    def forward(self, output, target):
        return ((output - target).abs() ** 1.5).mean()


def engine(task, **settings):
    return Engine(task, seed=0, settings=EngineSettings(device="cpu", meta_steps=1, population=1, **settings))


def various(seeds=(3, 4)):
    """Expressions, losses of the catalogue and of a user, several rates and seeds."""
    losses = [*TREES[:3], HUBER, Odd()]
    return [Trial(loss, lr, seed, factor) for seed in seeds for loss in losses for lr, factor in ((0.02, 1), (0.05, 2))]


@pytest.mark.skipif(not has_reproducible_products(), reason="matrix products depend on the alignment of their operands")
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_alone_among_others_and_in_another_order_it_has_the_same_bits(mode, optimizer):
    task = regression(lambda: nn.Sequential(nn.Linear(4, 33), nn.Tanh(), nn.Linear(33, 5), nn.Tanh(), nn.Linear(5, 1)))
    runner, trials = engine(task, training_steps=25, population_mode=mode, optimizer=optimizer), various()
    together = runner.run_trials(trials, test=True)
    assert runner.run_trials(trials[::-1], test=True)[::-1] == together
    assert engine(task, training_steps=25, population_mode=mode, optimizer=optimizer, chunk=4).run_trials(
        trials, test=True
    ) == together  # fmt: skip
    for place in (0, 7, 9, 13):
        assert runner.run_trials([trials[place]], test=True) == [together[place]]


@pytest.mark.parametrize("mode", ["stacked", "looped"])
@pytest.mark.parametrize("model", [None, dropping])
@pytest.mark.parametrize(
    ("optimizer", "recipe"),
    [
        ("sgd", Recipe(lr=0.02, batch_size=32, milestones=(15,))),
        ("sgd", Recipe(lr=0.02, batch_size=32, momentum=0.0, weight_decay=0.0)),
        ("sgd", Recipe(lr=0.02, batch_size=32, nesterov=False)),
        ("adam", Recipe(lr=0.02, batch_size=32, milestones=(15,))),
        ("adamw", Recipe(lr=0.02, batch_size=32, weight_decay=0.1)),
    ],
)
def test_each_is_an_ordinary_training_with_its_own_rate_and_seed(mode, model, optimizer, recipe):
    task, losses = regression(model, recipe=recipe), [CATALOGUE["mae"](kind="regression"), HUBER, Odd()]
    trials = [Trial(loss, lr, seed) for loss in losses for lr, seed in ((0.005, 1), (0.03, 2))]
    found = engine(task, training_steps=30, population_mode=mode, optimizer=optimizer).run_trials(trials, test=True)
    for trial, (score,) in zip(trials, found, strict=True):
        options = {"seed": trial.seed, "lr": trial.lr, "steps": 30, "milestones": recipe.milestones}
        alone = train(task, trial.loss, optimizer=optimizer, device="cpu", **options)
        assert score.validation == pytest.approx(alone.validation, rel=2e-4)
        assert score.test == pytest.approx(alone.test, rel=2e-4)
        assert (score.seed, score.steps, score.milestones) == (alone.seed, 30, recipe.milestones)


def test_a_factor_multiplies_the_loss():
    task = classification()
    tree = ExpressionLoss("mul(mul(-1, y), log(f))")
    for loss in (tree, CrossEntropyLoss(), nn.CrossEntropyLoss()):
        ((doubled,), (plain,)) = engine(task, training_steps=20).run_trials(
            [Trial(loss, 0.01, 0, 2.0), Trial(loss, 0.02, 0)], test=True
        )
        halved = dataclasses.replace(task.recipe, weight_decay=0.0)
        without = engine(dataclasses.replace(task, recipe=halved), training_steps=20).run_trials(
            [Trial(loss, 0.01, 0, 2.0), Trial(loss, 0.02, 0)], test=True
        )
        assert without[0][0].metrics["nll"] == pytest.approx(without[1][0].metrics["nll"], rel=1e-5)
        assert doubled.metrics["nll"] != plain.metrics["nll"]  # weight decay is not multiplied


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_a_tenth_of_a_loss_at_ten_times_the_learning_rate_has_ten_times_the_weight_decay(mode):
    task = regression(recipe=Recipe(lr=0.02, batch_size=32, weight_decay=0.01))
    trials = [Trial(HUBER, 0.05, 1, 0.1), Trial(HUBER, 0.005, 1, decay=10.0), Trial(HUBER, 0.005, 1)]
    found = engine(task, training_steps=30, population_mode=mode).run_trials(trials, test=True)
    small, decayed, plain = (score.test for (score,) in found)
    assert small == pytest.approx(decayed, rel=1e-4)
    assert plain != pytest.approx(decayed, rel=1e-3)


@pytest.mark.parametrize("mode", ["stacked", "looped"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_each_has_its_own_weight_decay(mode, optimizer):
    recipe = Recipe(lr=0.02, batch_size=32, weight_decay=0.03)
    task = regression(recipe=recipe)
    trials = [Trial(HUBER, 0.02, 1, decay=decay) for decay in (1.0, 0.0, 10.0, 3.0)]
    found = engine(task, training_steps=30, population_mode=mode, optimizer=optimizer).run_trials(trials, test=True)
    tests = [score.test for (score,) in found]
    options = {"optimizer": optimizer, "device": "cpu", "seed": 1, "steps": 30, "lr": 0.02}
    alone = [train(task, HUBER, weight_decay=0.03 * trial.decay, **options).test for trial in trials]
    assert tests == pytest.approx(alone, rel=2e-4)
    assert len({round(value, 4) for value in tests}) == len(tests)


@pytest.mark.skipif(not has_reproducible_products(), reason="matrix products depend on the alignment of their operands")
@pytest.mark.parametrize("mode", ["stacked", "looped"])
@pytest.mark.parametrize("model", [None, dropping])
def test_being_scored_on_the_way_changes_nothing(mode, model):
    task, trials = regression(model), various()
    runner = engine(task, training_steps=40, population_mode=mode)
    found = runner.run_trials(trials, horizons=[10, 20, 40], test=True)
    assert [row[-1] for row in found] == [score for (score,) in runner.run_trials(trials, test=True)]
    assert [row[0].validation for row in found] == [
        score.validation for (score,) in runner.run_trials(trials, horizons=[10])
    ]
    assert all(math.isnan(score.test) for row in found for score in row[:2])


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_steps_are_those_of_all_trials_also_where_some_diverge_before_the_last_horizon(mode):
    explosive = WeightedTree(EXPLOSIVE, [1e3] * EXPLOSIVE.edges)
    trials, steps = [Trial(loss, 0.02, 0) for loss in (TREES[0], explosive, explosive)], []
    runner = engine(regression(), training_steps=300, population_mode=mode)
    found = runner.run_trials(trials, horizons=[260, 280, 300], report=steps.append)
    assert [[score.diverged for score in row] for row in found] == [[False] * 3, [True] * 3, [True] * 3]
    assert sum(steps) == 3 * 300


def test_steps_are_those_of_all_trials_also_where_some_diverge():
    task = regression()
    explosive = WeightedTree(EXPLOSIVE, [1e3] * EXPLOSIVE.edges)
    trials = [Trial(loss, 0.02, 0) for loss in (TREES[0], explosive, explosive, explosive, TREES[1])]
    steps = []
    found = engine(task, training_steps=600).run_trials(trials, report=steps.append)
    assert sum(steps) == 5 * 600
    assert [score.diverged for (score,) in found] == [False, True, True, True, False]
    assert "was not finite at step" in found[1][0].sentence
    healthy = engine(task, training_steps=600).run_trials([trials[0], trials[4]])
    assert [found[0], found[4]] == healthy


def test_all_may_diverge():
    explosive = WeightedTree(EXPLOSIVE, [1e3] * EXPLOSIVE.edges)
    found = engine(regression(), training_steps=600).run_trials([Trial(explosive, 0.02, seed) for seed in range(3)])
    assert all(score.diverged for (score,) in found)


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_another_split_draws_training_and_validation_rows_anew(mode):
    task = regression()
    runner = engine(task, training_steps=20, population_mode=mode)
    own, first, again, second = (
        row[0].validation for row in runner.run_trials([Trial(TREES[0], 0.02, 0, split=k) for k in (0, 1, 1, 2)])
    )
    assert first == again
    assert len({own, first, second}) == 3
    rows = torch.cat(task.resplit(1))
    assert sorted(rows.tolist()) == list(range(len(task.train) + len(task.validation)))
    inputs = torch.cat((task.train.inputs, task.validation.inputs))
    targets = torch.cat((task.train.targets, task.validation.targets))
    parts = [type(task.train)(inputs[rows], targets[rows]) for rows in task.resplit(1)]
    other = dataclasses.replace(task, train=parts[0], validation=parts[1])
    ((expected,),) = engine(other, training_steps=20, population_mode=mode).run_trials([Trial(TREES[0], 0.02, 0)])
    assert first == pytest.approx(expected.validation, rel=1e-5)


def test_rows_of_given_splits_are_not_exchangeable():
    task = dataclasses.replace(regression(), exchangeable=False)
    with pytest.raises(InputError, match="the training and validation rows of own are not exchangeable"):
        engine(task, training_steps=2).run_trials([Trial(TREES[0], 0.02, 0, split=1)])


@pytest.mark.parametrize("horizons", [[0, 5], [5, 5], [5, 3]])
def test_horizons_increase(horizons):
    with pytest.raises(InputError, match="horizons must be at least 1 and increase"):
        engine(regression(), training_steps=9).run_trials([Trial(TREES[0], 0.02, 0)], horizons=horizons)


def test_trials_are_of_one_task():
    with pytest.raises(InputError, match="run_trials takes an engine with 1 task but this one has 2"):
        engine([regression(), regression()], training_steps=2).run_trials([Trial(TREES[0], 0.02, 0)])


def test_weights_that_differ_by_seed_and_are_not_trained_belong_to_the_seed():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Linear(4, 8).requires_grad_(False)
            self.head = nn.Linear(8, 1)
            self.register_buffer("shift", torch.randn(8))

        def forward(self, x):
            return self.head(torch.tanh(self.features(x) + self.shift))

    task = regression(Frozen)
    trials = [Trial(HUBER, 0.05, seed) for seed in (1, 2)]
    runner = engine(task, training_steps=20, population_mode="stacked")
    for trial, (score,) in zip(trials, runner.run_trials(trials, test=True), strict=True):
        alone = train(task, HUBER, seed=trial.seed, lr=0.05, steps=20, device="cpu")
        assert score.test == pytest.approx(alone.test, rel=1e-4)


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_known_losses_are_trained_without_the_output_activation_of_a_search(mode):
    losses = [CATALOGUE[name](kind="regression") for name in ("mse", "mae")]
    plain, softplus = (
        engine(regression(), training_steps=20, population_mode=mode, activation=activation).evaluate_losses(losses)
        for activation in ("identity", "softplus")
    )
    assert [fitness.value for fitness in softplus] == pytest.approx([fitness.value for fitness in plain], rel=1e-5)


def test_a_loss_with_options_of_its_own_is_not_taken_for_its_expression():
    assert tree_of(CATALOGUE["mse"](kind="regression")) is not None
    assert tree_of(CATALOGUE["mse"](kind="regression", reduction="sum")) is None
    assert tree_of(ExpressionLoss("mul(y, f)", weight=[1.0, 2.0])) is None
    assert tree_of(ExpressionLoss("mul(y, f)", activation="softplus")) is None
    assert tree_of(ExpressionLoss("mul(y, f)", activation="softplus"), "softplus") is not None
    assert tree_of(CATALOGUE["mse"](kind="regression"), "softplus") is None
    assert tree_of(Odd()) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", ["stacked", "looped"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_on_cuda_trials_come_to_what_they_do_on_the_cpu(mode, optimizer):
    task, trials = regression(), various()
    settings = {"training_steps": 30, "population_mode": mode, "optimizer": optimizer, "meta_steps": 1}
    expected, found = (
        Engine(task, seed=0, settings=EngineSettings(device=device, **settings)).run_trials(trials, test=True)
        for device in ("cpu", "cuda")
    )
    for (one,), (other,) in zip(expected, found, strict=True):
        assert other.test == pytest.approx(one.test, rel=1e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_a_step_that_was_captured_on_the_own_split_does_not_serve_other_splits():
    task = regression()
    rungs = [Rung(30, (0,), splits) for splits in ((), (1,), (), (2,))]
    expected, found = (
        [runner.try_rates(TREES, [rung] * len(TREES), [(0.4, 1.0)] * len(TREES)) for rung in rungs]
        for device in ("cpu", "cuda")
        for runner in [Engine(task, seed=0, settings=EngineSettings(device=device, training_steps=30, meta_steps=1))]
    )
    for scores, others in zip(expected, found, strict=True):
        for one, other in zip(scores, others, strict=True):
            assert [*map(other.mean, other.costs)] == pytest.approx([*map(one.mean, one.costs)], rel=1e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.skipif("CUBLAS_WORKSPACE_CONFIG" not in os.environ, reason="CUDA has been used without it")
def test_deterministic_on_cuda_a_trial_has_the_same_bits_alone_and_among_others():
    task, trials = regression(), various()
    settings = EngineSettings(device="cuda", training_steps=30, deterministic=True, meta_steps=1)
    runner = Engine(task, seed=0, settings=settings)
    together = runner.run_trials(trials, test=True)
    assert runner.run_trials(trials[::-1], test=True)[::-1] == together
    for place in (0, 7, 9, 13):
        assert runner.run_trials([trials[place]], test=True) == [together[place]]
