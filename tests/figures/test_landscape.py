"""Landscapes: parabolas where they must be, curvature as the Hessian has it, filters as long as the weights' own."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, hessian

import evomal
from evomal.engine.rows import Rows
from evomal.errors import InputError
from evomal.figures.data import fixed_rows
from evomal.figures.landscape import Landscape, heights_around, landscapes, random_direction
from evomal.losses import AbsoluteErrorLoss, SquaredErrorLoss
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from tests.engine.populations import classification, normalised, regression
from tests.engine.position_tasks import tagging

FAST = {"steps": 20, "device": "cpu"}


def rows(inputs=4, outputs=1, number=50):
    rng = np.random.default_rng(0)
    return Part(torch.tensor(rng.normal(size=(number, inputs))), torch.tensor(rng.normal(size=(number, outputs))))


def directional_curvature(model, loss, part, direction):
    """dᵀHd, by the whole Hessian of torch."""
    weights = {name: parameter.detach() for name, parameter in model.named_parameters() if name in direction}
    others = {name: parameter.detach() for name, parameter in model.named_parameters() if name not in direction}
    second = hessian(lambda own: loss(functional_call(model, {**others, **own}, (part.inputs,)), part.targets))(weights)
    total = 0.0
    for one in weights:
        for other in weights:
            block = second[one][other].reshape(direction[one].numel(), direction[other].numel())
            total += float(direction[one].flatten() @ block @ direction[other].flatten())
    return total


def test_a_quadratic_s_landscape_is_the_parabola_known_by_hand():
    """One weight w = 2, one row x = 1, y = 0: the filter's norm is 2, so that the loss is (2 ± 2a)²."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, 2.0)
    part = Part(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    direction = random_direction(model, 0)
    sign = float(direction["weight"].sign())
    assert abs(float(direction["weight"])) == pytest.approx(2.0)
    positions = np.linspace(-1, 1, 5)
    found = heights_around(model, SquaredErrorLoss(), part.inputs, Rows(part.targets), [direction], positions)
    np.testing.assert_allclose(found, 4 * (1 + sign * positions) ** 2, atol=1e-12)
    assert sorted([round(found[0]), round(found[-1])]) == [0, 16]


def test_a_linear_model_s_curvature_is_the_hessian_s_everywhere():
    model, part = nn.Linear(4, 2).double(), rows(outputs=2)
    direction = random_direction(model, 3)
    assert list(direction) == ["weight"]
    found = heights_around(
        model, SquaredErrorLoss(), part.inputs, Rows(part.targets), [direction], np.linspace(-2, 2, 9)
    )
    expected = directional_curvature(model, SquaredErrorLoss(), part, direction)
    np.testing.assert_allclose(np.diff(found, 2) / 0.5**2, expected, rtol=1e-10)
    np.testing.assert_allclose(np.diff(found, 3), 0, atol=1e-10)


def test_a_network_s_curvature_at_the_weights_is_the_hessian_s():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    direction = random_direction(model, 0)
    part, positions = rows(), np.array([-1e-3, 0, 1e-3])
    found = heights_around(model, SquaredErrorLoss(), part.inputs, Rows(part.targets), [direction], positions)
    curvature = (found[0] - 2 * found[1] + found[2]) / 1e-6
    assert curvature == pytest.approx(directional_curvature(model, SquaredErrorLoss(), rows(), direction), rel=1e-4)


def convolutional():
    layers = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 2)
    )
    layers[4].weight.requires_grad_(False)
    return layers


def test_every_filter_of_a_direction_is_as_long_as_the_weights_own():
    model = convolutional()
    with torch.no_grad():
        model[0].weight[1] = 0.0
        model[5].weight[0] *= 100
    direction = random_direction(model, 7)
    assert list(direction) == ["0.weight", "5.weight"]  # neither biases, nor batch norm, nor what is frozen
    for name, way in direction.items():
        weights = dict(model.named_parameters())[name].detach()
        for own, other in zip(weights, way, strict=True):
            assert float(other.norm()) == pytest.approx(float(own.norm()), rel=1e-5)
    assert float(direction["0.weight"][1].norm()) == 0.0


def test_directions_depend_on_the_seed_and_their_number_alone():
    model = nn.Linear(40, 3)
    first, again, second, other = (random_direction(model, *key)["weight"] for key in ((0,), (0, 0), (0, 1), (1, 0)))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)
    doubled = copy.deepcopy(model)
    with torch.no_grad():
        doubled.weight *= 2
    torch.testing.assert_close(random_direction(doubled, 0)["weight"], 2 * first)


def test_two_directions_are_those_of_a_model_whose_weights_are_set_by_hand():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).double()
    part = rows(number=2100)  # more than are evaluated at once
    model(part.inputs[:100])  # statistics of its own
    model.eval()
    before = copy.deepcopy(model.state_dict())
    directions = [random_direction(model, 5, number) for number in (0, 1)]
    positions = np.array([-1.0, 0.0, 0.5])
    found = heights_around(model, AbsoluteErrorLoss(), part.inputs, Rows(part.targets), directions, positions)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for i, along_second in enumerate(positions):
        for j, along_first in enumerate(positions):
            moved = copy.deepcopy(model)
            with torch.no_grad():
                for name, parameter in moved.named_parameters():
                    if name in directions[0]:
                        parameter += along_first * directions[0][name] + along_second * directions[1][name]
                expected = (moved(part.inputs) - part.targets).abs().mean().item()
            assert found[i, j] == pytest.approx(expected, rel=1e-12)


def test_centre_and_rise_are_those_of_the_mean():
    line = Landscape("a", (0, 1), np.array([[5.0, 1.0, 7.0], [1.0, 3.0, 3.0]]))
    assert line.mean.tolist() == [3.0, 2.0, 5.0]
    assert (line.centre, line.rise) == (2.0, 2.0)
    assert Landscape("a", (0,), np.array([[[4.0, 4, 4], [4, 1, 4], [4, 4, 12]]])).rise == 4.0


def test_the_centre_is_the_loss_of_the_trained_model():
    task = regression(normalised)
    found = landscapes(task, ["mae"], points=3, seeds=2, **FAST)
    assert (found.height_name, found.row_words, found.schedule) == ("squared error", "120 training rows", "20 steps")
    seeds = found.losses[0].seeds
    models = [evomal.train(task, "mae", seed=seed, keep_model=True, **FAST).model for seed in seeds]
    with torch.no_grad():
        errors = [model(task.train.inputs) - task.train.targets for model in models]
    expected = np.mean([error.square().mean().item() for error in errors])
    assert found.losses[0].centre == pytest.approx(expected, rel=1e-5)
    own = landscapes(task, ["mae"], points=3, seeds=2, of="training", **FAST)
    assert own.losses[0].centre == pytest.approx(np.mean([error.abs().mean().item() for error in errors]), rel=1e-5)


def test_same_seed_same_figure_and_global_states_untouched():
    random.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    settings = {"points": 5, "seeds": 1, "samples": 50, **FAST}
    first, again, other = (landscapes(classification(), ["ce"], seed=seed, **settings) for seed in (1, 1, 2))
    assert first.columns() == again.columns()
    assert first.columns()["height"] != other.columns()["height"]
    assert first.row_words == "50 of 120 training rows"
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


def test_columns_have_a_row_for_each_height():
    found = landscapes(regression(), ["mse", "mae"], points=3, radius=0.5, two_d=True, seeds=2, **FAST)
    columns = found.columns()
    assert {name: len(column) for name, column in columns.items()} == dict.fromkeys(
        ("loss", "seed", "position", "second_position", "height"), 2 * 2 * 9
    )
    assert columns["position"][:4] == [-0.5, 0.0, 0.5, -0.5]
    assert columns["second_position"][:4] == [-0.5, -0.5, -0.5, 0.0]
    assert columns["height"][:9] == found.losses[0].heights[0].flatten().tolist()
    assert columns["loss"][17:19] == ["mse", "mae"]


def test_a_diverged_training_gives_a_sentence():
    task = regression(recipe=Recipe(lr=1e6, batch_size=32))
    found = landscapes(task, ["mse"], seeds=2, **FAST)
    assert found.losses == ()
    assert found.sentences == tuple(
        f"mse, seed {seed}: the training loss was not finite by step 20" for seed in (1000, 1001)
    )
    assert found.columns() == {"loss": [], "seed": [], "position": [], "height": []}


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(4))

    def forward(self, inputs):
        return (inputs * self.factor).sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"points": 4}, "points must be odd, so that the trained weights are one of them, but got 4"),
        ({"points": 1}, "points must be at least 3 but got 1"),
        ({"radius": 0.0}, "radius must be more than 0 and at most 1e+06 but got 0.0"),
        ({"radius": 1e308}, "radius must be more than 0 and at most 1e+06 but got 1e+308"),
        ({"samples": 0}, "samples must be at least 1 but got 0"),
        ({"of": "test"}, "of must be one of task, training but got 'test'"),
    ],
)
def test_bad_input(changes, sentence):
    with pytest.raises(InputError) as refusal:
        landscapes(regression(), ["mse"], **{**FAST, **changes})
    assert str(refusal.value) == sentence


def test_a_model_without_filters():
    with pytest.raises(InputError) as refusal:
        landscapes(regression(Scaled), ["mse"], **FAST)
    expected = "a landscape needs weights with filters, but the model has only parameters of one dimension"
    assert str(refusal.value) == expected


def test_positions_are_rows_and_ignored_ones_do_not_count():
    task = tagging(classes_last=True)
    found = landscapes(task, ["ce"], points=3, samples=10, seeds=1, **FAST)
    model = evomal.train(task, "ce", seed=found.losses[0].seeds[0], keep_model=True, **FAST).model
    part = fixed_rows(task.train, 10, "landscape")
    expected = nn.functional.cross_entropy(model(part.inputs).movedim(-1, 1), part.targets, ignore_index=-100)
    assert found.losses[0].heights[0, 1] == pytest.approx(expected.item(), rel=1e-5)
