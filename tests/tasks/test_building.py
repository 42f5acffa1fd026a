"""How arrays become parts: several inputs, whole numbers, positions, weights, and splits of every kind."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from evomal.engine.task_data import task_content
from evomal.errors import InputError
from evomal.tasks.parts import Part
from evomal.tasks.task import Task
from tests.tasks.building_cases import IDS, PAIR, RNG, TEXTS, Reader, X, Y, net, refused


def test_whole_numbers_stay_whole_if_the_model_takes_them():
    state = torch.get_rng_state()
    task = Task.from_arrays(IDS.astype(np.uint8), Y, model=Reader)
    assert task.train.inputs.dtype == torch.int64
    for values in (IDS[:, :4], IDS[:, :4] > 4):
        assert Task.from_arrays(values, Y, model=net).train.inputs.dtype == torch.float32
    images = RNG.integers(0, 255, (60, 1, 3, 3)).astype(np.uint8)
    pixels = Task.from_arrays(images, Y, model=lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten())).train.inputs
    assert (pixels.dtype, pixels.max() > 200) == (torch.float32, True)
    broken = Task.from_arrays(IDS, Y, model=lambda: nn.Linear(2, 3))  # what is wrong with it, a training says
    assert broken.train.inputs.dtype == torch.int64
    assert torch.equal(torch.get_rng_state(), state)


def test_several_inputs():
    named = {"ids": IDS, "mask": np.arange(7) < RNG.integers(1, 7, (60, 1))}
    task = Task.from_arrays(named, Y, model=Reader)
    assert {name: str(tensor.dtype) for name, tensor in task.test.inputs.items()} == {
        "ids": "torch.int64",
        "mask": "torch.bool",
    }
    assert task.model()(**task.test.inputs).shape == (12, 3)
    placed = Task.from_arrays((IDS, torch.tensor(named["mask"])), Y, model=Reader)
    assert isinstance(placed.train.inputs, tuple)
    for tensor, other in zip(placed.train.inputs, task.train.inputs.values(), strict=True):
        assert torch.equal(tensor, other)


def test_each_table_of_floats_is_standardised_and_nothing_else():
    images = RNG.random((60, 1, 2, 2))
    task = Task.from_arrays(
        {"image": images, "table": X * 9 + 5, "age": X[:, 0]}, X[:, 1], model=net, kind="regression"
    )
    inputs = task.train.inputs
    torch.testing.assert_close(inputs["table"].std(0, correction=0), torch.ones(4))
    assert 0 <= inputs["image"].min() < inputs["image"].max() <= 1
    assert inputs["age"].shape == (36,)
    assert torch.isin(inputs["age"], torch.tensor(X[:, 0], dtype=torch.float32)).all()
    assert task.units is not None


def test_equal_samples_are_equal_in_all_inputs():
    same, table = np.ones((60, 2)), np.arange(120.0).reshape(60, 2)
    assert Task.from_arrays((same, table), Y, model=net).record["equal_rows_across_splits"] == 0
    assert Task.from_arrays((same, same), Y, model=net).record["equal_rows_across_splits"] > 0


def test_texts_are_classes_and_outputs_are_decoded():
    task = Task.from_arrays(X, TEXTS, model=net)
    assert (task.outputs, task.classes, task.record["classes"]) == (3, ("ant", "bee", "cat"), ["ant", "bee", "cat"])
    assert torch.equal(task.train.targets, Task.from_arrays(X, Y, model=net).train.targets)
    assert task.decode(task.test.targets).tolist() == TEXTS[Task.from_arrays(X, Y, model=net).test.targets].tolist()
    outputs = np.array([[0.0, 2.0, 1.0, 9.0], [3.0, 2.0, 1.0, 9.0]])  # a model may have more outputs than classes
    assert task.decode(outputs).tolist() == ["bee", "ant"]
    assert task.decode(torch.tensor([[[0.0, 3.0], [1.0, 2.0], [0.0, 0.0]]], requires_grad=True)).tolist() == [
        ["bee", "ant"]
    ]
    tagged = Task.from_arrays(IDS[:, :4], IDS[:, :4] % 3, model=net)
    scores = torch.randn(5, 4, 3)
    assert np.array_equal(tagged.decode(scores), scores.argmax(2))  # (samples, positions, classes)
    assert np.array_equal(tagged.decode(scores.movedim(2, 1)), scores.argmax(2))
    assert np.array_equal(tagged.decode(scores[:, :3]), scores[:, :3].argmax(1))  # torch's order, where both would do
    assert np.array_equal(tagged.decode(scores[:, :2]), scores[:, :2].argmax(2))  # shorter than in training
    with pytest.raises(InputError, match=r"outputs of a model must have shape \(samples, 3\) but have \(1, 2\)"):
        task.decode(outputs[:1, :2])
    binary = Task.from_arrays(X, Y > 0, model=lambda: nn.Linear(4, 1))
    assert (binary.classes, binary.decode(torch.tensor([[0.1], [-0.1]])).tolist()) == ((False, True), [True, False])
    labels = Task.from_arrays(X, np.eye(3)[Y], model=net, kind="multilabel", classes=["a", "b", "c"])
    assert labels.decode(torch.tensor([[0.1, -2.0, 3.0]])).tolist() == [[True, False, True]]
    values = Task.from_arrays(X, X[:, 1] * 9, model=net, kind="regression")
    assert np.allclose(values.decode(values.train.targets), values.to_raw(values.train.targets))
    assert values.decode(torch.zeros(2, 1, dtype=torch.bfloat16)).dtype == np.float32
    assert values.decode(torch.zeros(2, 1).to_sparse()).shape == (2, 1)


@pytest.mark.parametrize("predictions", ["forged", {"a": 1}, [10**400], [[1.0], [1.0, 2.0]]])
def test_predictions_that_are_no_numbers_are_refused(predictions):
    with pytest.raises(InputError, match="predictions must be numbers but got "):
        Task.from_arrays(X, Y, model=net).decode(predictions)


def test_names_for_class_numbers():
    task = Task.from_arrays(X, Y, model=net, classes=["ant", "bee", "cat", "dog"])
    assert (task.outputs, task.classes[3]) == (4, "dog")
    assert refused(classes=["ant", "bee"]) == "class numbers of y must lie between 0 and 1 but one is 2"
    assert refused(y=Y - 1).endswith("but one is -1: number them from 0, or list them as classes")
    assert Task.from_arrays(X, Y - 1, model=net, classes=[-1, 0, 1]).outputs == 3
    few = {"train": (X, TEXTS), "validation": (X[:1], TEXTS[:1]), "test": (X, TEXTS)}
    assert refused(None, None, metric="auroc", **few) == (
        "the metric auroc needs every class in the validation split, but class 'bee' has no sample there"
    )
    labels = refused(y=np.eye(3)[Y], kind="multilabel", classes=["a", "b"])
    assert labels == "classes must name each of 3 classes or labels but got ('a', 'b')"
    assert refused(kind="regression", classes=["a", "b"]) == "classes must be None for regression, which has none"


def test_labels_at_positions():
    tags = RNG.integers(0, 3, (60, 7))
    padded = np.where(np.arange(7) < RNG.integers(2, 7, (60, 1)), tags, -1)
    task = Task.from_arrays(IDS, padded, model=lambda: nn.Embedding(9, 3), ignore_index=-1)
    assert (task.outputs, tuple(task.train.targets.shape)) == (3, (36, 7))
    assert task.train.targets.unique().tolist() == [-100, 0, 1, 2]
    masks = Task.from_arrays(
        RNG.random((60, 1, 4, 4)), RNG.integers(0, 2, (60, 4, 4)) * 255, model=net, ignore_index=None
    )
    assert masks.outputs == 256
    words = [["noun", "verb"], ["verb", "<pad>"]] * 30
    task = Task.from_arrays(IDS[:, :2], words, model=lambda: nn.Embedding(9, 2), ignore_index="<pad>")
    assert task.classes == ("noun", "verb")
    heat = Task.from_arrays(RNG.random((60, 1, 4, 4)), RNG.random((60, 4, 4)), model=net, kind="regression")
    assert (heat.outputs, tuple(heat.test.targets.shape)) == (1, (12, 4, 4))


def test_no_group_is_in_two_parts_and_rows_are_not_exchangeable():
    patients = np.array([f"patient {number}" for number in RNG.integers(0, 12, 60)])
    x = np.unique(patients, return_inverse=True)[1].astype(float)[:, None]
    task = Task.from_arrays(x, Y, model=net, groups=patients, standardise=False)
    first, second, third = (set(part.inputs.flatten().tolist()) for part in (task.train, task.validation, task.test))
    assert not first & second | first & third | second & third
    assert (task.exchangeable, task.record["split_by"]) == (False, "groups")
    assert Task.from_arrays(x, Y, model=net).exchangeable


def test_later_rows_are_validation_and_test():
    x = np.arange(60.0)[:, None]
    for order in ("rows", np.arange(60), -np.arange(60.0)):
        task = Task.from_arrays(x, Y, model=net, order=order, standardise=False)
        times = x[:, 0] if isinstance(order, str) else order
        parts = [times[part.inputs[:, 0].long()] for part in (task.train, task.validation, task.test)]
        assert parts[0].max() < parts[1].min() <= parts[1].max() < parts[2].min()
        assert (task.exchangeable, task.record["split_by"]) == (False, "order")


def test_parts_of_ones_own():
    test = X[:6] + 1, TEXTS[:6]
    task = Task.from_arrays(train=(X, TEXTS), validation=(X[:9], TEXTS[:9]), test=test, model=net, standardise=False)
    assert [len(part) for part in (task.train, task.validation, task.test)] == [60, 9, 6]
    assert torch.equal(task.train.inputs, torch.tensor(X, dtype=torch.float32))
    assert torch.equal(task.test.inputs, torch.tensor(test[0], dtype=torch.float32))
    assert task.decode(task.test.targets).tolist() == test[1].tolist()
    assert (task.exchangeable, task.record["given_parts"]) == (False, ["train", "validation", "test"])
    assert task.record["equal_rows_across_splits"] == 9
    scaled = Task.from_arrays(train=PAIR, validation=PAIR, test=(test[0], Y[:6]), model=net)
    torch.testing.assert_close(scaled.validation.inputs.mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    assert scaled.test.inputs.mean() > 0.5


def test_a_share_of_the_training_part():
    task = Task.from_arrays(train=PAIR, test=(X[:6], Y[:6]), model=net)
    assert [len(part) for part in (task.train, task.validation, task.test)] == [48, 12, 6]
    assert task.exchangeable
    by_time = Task.from_arrays(train=PAIR, validation=PAIR, test=0.1, order="rows", model=net, standardise=False)
    assert [len(part) for part in (by_time.train, by_time.validation, by_time.test)] == [54, 60, 6]
    assert torch.equal(by_time.test.inputs, torch.tensor(X[-6:], dtype=torch.float32))
    grouped = Task.from_arrays(train=PAIR, test=PAIR, groups=np.arange(60) // 6, model=net)
    assert (len(grouped.train), len(grouped.test)) == (48, 60)


def test_sample_weights_go_with_their_samples():
    task = Task.from_arrays(np.arange(60.0)[:, None], Y, model=net, sample_weight=np.arange(60), standardise=False)
    for part in (task.train, task.validation, task.test):
        assert torch.equal(part.weights, part.inputs[:, 0])
    own = Task.from_arrays(train=(X, Y, np.full(60, 2)), validation=PAIR, test=PAIR, model=net)
    assert (own.train.weights.unique().item(), own.test.weights.unique().item()) == (2, 1)
    assert Task.from_arrays(X, Y, model=net).train.weights is None


def test_samples_of_weight_0_are_left_out():
    x, weights = np.arange(60.0)[:, None], (np.arange(60) % 4 != 0).astype(float)
    for options in ({}, {"order": "rows"}, {"groups": np.arange(60) // 4}, {"groups": np.arange(60) // 2}):
        task = Task.from_arrays(x, Y, model=net, sample_weight=weights, standardise=False, **options)
        kept = torch.cat([part.inputs[:, 0] for part in (task.train, task.validation, task.test)])
        assert sorted(kept.int().tolist()) == [row for row in range(60) if row % 4]
        assert (len(task.validation), len(task.test)) == (9, 9)
    few = np.where(np.arange(60) < 3, 1, 0)
    own = Task.from_arrays(train=(x, Y), validation=(x, Y, few), test=(x + 60, Y, few), model=net, standardise=False)
    assert own.test.inputs[:, 0].tolist() == [60, 61, 62]
    assert torch.equal(own.validation.targets, torch.tensor(Y[:3]))


def test_class_weights():
    rare = np.repeat([0, 1, 2], [40, 15, 5])
    balanced = Task.from_arrays(X, rare, model=net, class_weight="balanced")
    assert balanced.class_weight == pytest.approx([36 / (3 * count) for count in (24, 9, 3)])
    assert balanced.record["class_weight"] == list(balanced.class_weight)
    for given in ([1, 2, 5], torch.tensor([1.0, 2.0, 5.0]), {"cat": 5, "ant": 1, "bee": 2}):
        assert Task.from_arrays(X, TEXTS, model=net, class_weight=given).class_weight == (1.0, 2.0, 5.0)
    other = dataclasses.replace(balanced, class_weight=(1, 1, 2))
    assert task_content(other)["class_weight"] == [1.0, 1.0, 2.0]
    assert "class_weight" not in task_content(dataclasses.replace(other, class_weight=None))
    padded = np.where(np.arange(4) < 2, rare[:, None], -100)
    positions = Task.from_arrays(X, padded, model=net, class_weight="balanced")
    assert positions.class_weight == pytest.approx(
        [72 / (3 * int((positions.train.targets == number).sum())) for number in range(3)]
    )
    absent = Task.from_arrays(X, rare, model=net, class_weight="balanced", classes=["a", "b", "c", "d"])
    assert absent.class_weight[:3] == pytest.approx(balanced.class_weight)


def test_hand_built_tasks_keep_the_rules_of_weights_and_classes():
    def built(weights=None, **options):
        part = Part(torch.ones(6, 2), torch.arange(6) % 2, weights)
        return Task("classification", part, part, part, lambda: nn.Linear(2, 2), "error_rate", 2, **options)

    task = built(np.arange(6), class_weight=[1, 2], classes=("a", "b"))
    assert (task.train.weights.dtype, task.class_weight) == (torch.float32, (1.0, 2.0))
    with pytest.raises(
        InputError, match="the sample weights of the train split must be a vector with a weight for each"
    ):
        built(torch.ones(5))
    with pytest.raises(InputError, match=r"class_weight must have a weight for each of 2 classes but has shape \(3,\)"):
        built(class_weight=(1, 2, 3))
    with pytest.raises(InputError, match="classes must name each of 2 classes or labels but got"):
        built(classes=("a",))
    with pytest.raises(InputError, match="classes must be a list of at least 1 class but got 5"):
        built(classes=5)
