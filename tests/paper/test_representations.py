"""Pictures of a layer: the right layer, clusters that are there, the same picture each time."""

import numpy as np
import pytest
import torch
from torch import nn

from evomal.errors import InputError
from evomal.paper.representations import laid_out, penultimate, representations, same_class_neighbours
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from tests.engine.populations import classification, network, regression
from tests.engine.position_tasks import segmentation

FAST = {"steps": 20, "device": "cpu"}


def clusters(number=3, size=20, features=6):
    """Normal clouds around corners that are far apart."""
    classes = np.repeat(np.arange(number), size)
    rng = np.random.default_rng(0)
    return 30.0 * np.eye(features)[classes] + rng.normal(size=(number * size, features)), classes


def test_planted_clusters_are_apart_in_the_picture():
    features, classes = clusters()
    places = laid_out(features, seed=0)
    centres = np.stack([places[classes == number].mean(axis=0) for number in range(3)])
    within = max(np.linalg.norm(places[classes == n] - centres[n], axis=1).max() for n in range(3))
    between = min(np.linalg.norm(centres[a] - centres[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert between > 2 * within


def test_the_picture_depends_on_the_seed_alone():
    features, _ = clusters(size=8)
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    first, again, other = (laid_out(features[:, :1], seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(laid_out(features, seed=0), laid_out(features, seed=0))
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


def test_neighbours_are_counted_by_hand():
    places = np.array([[0.0], [1.0], [1.5], [9.0], [9.1]])
    # Nearest: 0 → 1, 1 → 2, 2 → 1, 3 → 4, 4 → 3.
    assert same_class_neighbours(places, np.array([0, 0, 1, 1, 1])) == pytest.approx(3 / 5)
    copies = np.zeros((4, 2))
    assert same_class_neighbours(copies, np.array([0, 0, 0, 0])) == 1.0


def test_the_layer_is_what_the_last_linear_layer_is_given():
    torch.manual_seed(0)
    model, inputs = network().eval(), torch.randn(600, 4)
    features, layer = penultimate(model, inputs)
    assert layer == "2"
    with torch.no_grad():
        np.testing.assert_allclose(features, torch.tanh(model[0](inputs)).double().numpy(), rtol=1e-6)
    assert not model[0]._forward_hooks
    features, layer = penultimate(nn.Linear(4, 3).eval(), inputs)
    assert layer == "the model itself"
    np.testing.assert_array_equal(features, inputs.double().numpy())


class Backwards(nn.Module):
    """Calls first what it registers last, and ends in a convolution."""

    def __init__(self):
        super().__init__()
        self.last = nn.Conv2d(2, 3, 1)
        self.first = nn.Conv2d(1, 2, 2)

    def forward(self, inputs):
        return self.last(self.first(inputs)).mean((2, 3))


def test_the_last_layer_is_the_one_called_last():
    model, inputs = Backwards().eval(), torch.randn(5, 1, 3, 3)
    features, layer = penultimate(model, inputs)
    assert layer == "last"
    assert features.shape == (5, 2 * 2 * 2)
    with torch.no_grad():
        np.testing.assert_allclose(features, model.first(inputs).flatten(1).double().numpy(), rtol=1e-6)


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 1))

    def forward(self, inputs):
        return inputs @ self.weight


class Dead(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 1)

    def forward(self, inputs):
        return self.last(torch.zeros_like(inputs))


def test_models_of_which_no_picture_can_be_made_get_a_sentence():
    assert penultimate(Bare(), torch.ones(3, 4)) is None
    sentences = {
        Bare: "mse: the model has no last linear or convolutional layer, whose inputs could be shown",
        Dead: "mse: the inputs of the last layer are the same for all rows",
    }
    for model, sentence in sentences.items():
        found = representations(regression(model), ["mse"], **FAST)
        assert (found.losses, found.sentences) == ((), (sentence,))
    diverging = regression(recipe=Recipe(lr=1e6, batch_size=32))
    found = representations(diverging, ["mse"], **FAST)
    assert found.sentences == ("mse, seed 1000: the training loss was not finite by step 20",)
    assert found.columns() == {"loss": [], "row": [], "target": [], "x": [], "y": []}


def test_a_trained_model_s_picture_of_separable_classes():
    features, classes = clusters(size=40)
    task = Task.from_arrays(features, classes, model=lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    found = representations(task, ["ce", "focal"], steps=60, device="cpu")
    assert (found.rows, found.all_rows, found.classes) == (24, 24, 3)
    for picture in found.losses:
        assert (picture.layer, picture.features, picture.test) == ("2", 8, 0.0)
        assert picture.same_class_neighbours == 1.0
        assert same_class_neighbours(picture.places, found.colours) == 1.0
    columns = found.columns()
    assert columns["class"] == task.test.targets.tolist() * 2
    assert columns["loss"] == ["ce"] * 24 + ["focal"] * 24
    assert columns == representations(task, ["ce", "focal"], steps=60, device="cpu").columns()


def test_colours_are_classes_targets_or_the_number_of_labels():
    task = regression()
    found = representations(task, ["mse"], samples=20, **FAST)
    assert (found.rows, found.all_rows) == (20, 40)
    assert set(found.columns()) == {"loss", "row", "target", "x", "y"}
    assert set(found.colours) <= set(task.test.targets[:, 0].double().tolist())
    rng = np.random.default_rng(0)
    labels = (rng.random((100, 3)) < 0.5).astype(float)
    task = Task.from_arrays(rng.normal(size=(100, 4)), labels, model=lambda: nn.Linear(4, 3), kind="multilabel")
    found = representations(task, ["ce"], **FAST)
    assert found.columns()["labels"] == task.test.targets.sum(1).int().tolist()
    assert found.losses[0].same_class_neighbours is None


def test_too_few_rows():
    with pytest.raises(InputError, match=r"^samples must be at least 10 but got 9$"):
        representations(classification(), ["ce"], samples=9, **FAST)
    with pytest.raises(InputError, match=r"^test rows must be at least 10 but got 4$"):
        representations(regression(rows=20), ["mse"], **FAST)


def test_targets_at_positions_are_refused():
    with pytest.raises(InputError, match=r"one target each, but own has targets of shape \[6, 6\] for each sample$"):
        representations(segmentation(samples=60), ["ce"], samples=10, **FAST)
