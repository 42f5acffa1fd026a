"""How arrays become parts: several inputs, whole numbers, positions, weights, and splits of every kind."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import evomal
from evomal.engine.task_data import task_content
from evomal.errors import InputError
from evomal.tasks.hardships import Hardships
from evomal.tasks.parts import Part
from evomal.tasks.task import Task

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = np.arange(60) % 3
IDS = RNG.integers(0, 9, (60, 7))
TEXTS = np.array(["ant", "bee", "cat"])[Y]
PAIR = (X, Y)


def net():
    return nn.Linear(4, 3)


class Reader(nn.Module):
    """A model of token ids, with a mask or without."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, ids, mask=None):
        found = self.embedding(ids)
        return self.head((found if mask is None else found * mask[..., None]).mean(1))


def refused(x=X, y=Y, model=net, **options):
    with pytest.raises(InputError) as caught:
        Task.from_arrays(x, y, model=model, **options)
    return str(caught.value)


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


def test_a_number_that_an_embedding_does_not_hold_is_found_before_training():
    for name, place in (("train", 0), ("test", -1)):
        ids = np.where(np.arange(60)[:, None] == 59 + place if place else np.arange(60)[:, None] == 9, 99, IDS)
        assert refused(ids, model=Reader, order="rows").startswith(
            f"the model cannot take all inputs of the {name} split, whose whole numbers range from 0 to 99, as an "
            "embedding of at most 99 numbers cannot: IndexError: "
        )
    assert "range from -1 to 8" in refused(np.where(np.arange(60)[:, None] == 9, -1, IDS), model=Reader, order="rows")


def test_an_array_on_the_disk_that_is_too_large_is_refused(tmp_path):
    huge = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=(60, 2**25))  # a file of holes
    assert refused(huge) == (
        "x must take at most 4 GiB but takes 7.5 GiB: use Task.from_datasets, which reads pairs of arrays from the "
        "disk while a model trains"
    )


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


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        ({"a": X, "b": X[:5]}, "all arrays in x must have a row for each sample but x['a'] has 60, x['b'] has 5"),
        ({}, "x must hold at least one array but is empty"),
        ({"a b": X}, "x must name arguments of the model but has the key 'a b'"),
        ({"a": {"b": X}}, "x['a'] must be an array with a row for each sample but got {'b'"),
        (
            {"a": np.where(X[3, 1] == X, np.nan, X)},
            "x['a'] must be finite but x['a'][3, 1] is nan: fill missing values",
        ),
        (tuple(X.tolist()), "y must have a target for each of 4 rows of x but got 60: a tuple holds several inputs"),
        ((X, (X, X)), "all arrays in x must have a row for each sample but x[0] has 60, x[1] has 2: a tuple holds"),
        (
            X[:, 0],
            "x must have a row for each sample and at least one feature but got shape (60,): a single feature is",
        ),
    ],
)
def test_inputs_that_do_not_fit_together(x, sentence):
    assert refused(x=x).startswith(sentence)


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
    assert labels == "classes must name each of 3 classes or labels but got ['a', 'b']"
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


@pytest.mark.parametrize(
    ("y", "options", "sentence"),
    [
        (np.eye(3)[Y], {}, "y must hold class numbers but is one-hot: give y.argmax(1)"),
        (
            RNG.integers(0, 2, (60, 3)),
            {},
            "class numbers of y must have shape (samples,), one for each sample or for each",
        ),
        (RNG.integers(0, 2, (60, 3)), {}, 'but have (60, 3): use kind="multilabel" if a sample has several labels'),
        (np.full((60, 4), -100), {}, "y must hold labels that count but all are -100"),
        (np.where(Y == 2, -100, Y), {}, "must lie between 0 and 1 but one is -100: drop rows without a label"),
        (X[:, 0], {}, 'class numbers of y must be whole but row 0 is 0.12573: use kind="regression" to predict values'),
        (Y, {"ignore_index": 1.5}, "ignore_index must be a label or None but got 1.5"),
        (TEXTS, {"kind": "regression"}, 'y must hold real numbers but got text: use kind="classification" for labels'),
        ([["a"], ["a", "b"]] * 30, {"kind": "multilabel"}, "y must hold zeros and ones but holds texts: make a matrix"),
        (np.arange(60), {}, "there are 60 classes and the rarest has 1 row: use a larger share, join or leave out"),
        (RNG.integers(0, 3, (60, 4)), {"hardships": Hardships(label_noise=0.1)}, "not defined for labels at positions"),
        (RNG.integers(0, 3, (60, 4)), {"hardships": Hardships(imbalance=0.1)}, "for classes only, one for each sample"),
        (Y, {"standardise": "yes"}, "standardise must be True or False but got 'yes'"),
    ],
)
def test_targets_that_are_refused(y, options, sentence):
    assert sentence in refused(y=y, **options)


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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"groups": [1, 2]}, "groups must have one value for each of 60 rows but has shape (2,)"),
        ({"groups": Y % 2}, "groups must hold at least 3 groups, one for each part, but hold 2"),
        ({"groups": np.array([1, "a"] * 30, object)}, "groups must hold values of one type, such as numbers or texts"),
        ({"groups": Y, "order": Y}, "groups and order must not be given together: split by one of them"),
        ({"order": True}, 'order must be the time of each row, or "rows" if they are sorted, but got True'),
        ({"order": ["2020"] * 60}, "order must hold numbers or times but got <U4: convert it, as with pandas.to_date"),
        ({"order": np.zeros(60)}, "order leaves the validation split empty, as rows of equal time stay together"),
    ],
)
def test_bad_groups_and_times(options, sentence):
    assert refused(**options).startswith(sentence)


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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "x and y must be given, or train=(x, y) with validation and test as pairs or shares"),
        ({"test": PAIR}, "test=(x, y) needs train=(x, y) beside it, in place of x and y"),
        ({"x": X, "y": Y, "train": PAIR}, "train=(x, y) must be given in place of x and y, not beside them"),
        ({"train": 5}, "train must be a pair (x, y) but got 5"),
        ({"train": (X,)}, "train must be a pair (x, y), or (x, y, weights), but got (array("),
        ({"train": PAIR, "test": {"x": X}}, "test must be a pair (x, y), or (x, y, weights), but got {'x'"),
        ({"train": PAIR, "test": None}, "test must be a share of at least 0 and less than 1 but got None"),
        (
            {"train": PAIR, "test": (X[:, :2], Y)},
            "test[0] must have inputs of shape (4,) for a sample, as the training",
        ),
        ({"train": PAIR, "test": ({"a": X}, Y)}, "test[0] must be one array, as train[0] is, but is a dictionary of a"),
        ({"train": PAIR, "test": (X, Y[:9])}, "test[1] must have a target for each of 60 rows of test[0] but got 9"),
        ({"train": PAIR, "test": (X, Y + 1)}, "class numbers of the test split must lie between 0 and 2 but one is 3"),
        ({"train": PAIR, "test": (X, TEXTS)}, "test[1] must hold numbers as labels, as the training part does, but"),
        ({"train": (X, TEXTS), "test": (X, ["dog"] * 60)}, "test[1] must hold labels among the classes ['ant', 'bee',"),
        ({"train": PAIR, "test": (X * np.nan, Y)}, "test[0] must be finite but test[0][0, 0] is nan"),
        ({"train": PAIR, "test": (X[:0], Y[:0])}, "test[0] must have a row for each sample and at least one feature"),
        (
            {"train": PAIR, "sample_weight": Y},
            "sample_weight must be given with its part if there are parts, as train=",
        ),
        (
            {"train": PAIR, "validation": PAIR, "test": PAIR, "groups": Y},
            "groups must be None if all parts are given, as nothing is left to split",
        ),
    ],
)
def test_bad_parts(options, sentence):
    assert refused(**{"x": None, "y": None, **options}).startswith(sentence)


def test_sample_weights_go_with_their_samples():
    task = Task.from_arrays(np.arange(60.0)[:, None], Y, model=net, sample_weight=np.arange(60), standardise=False)
    for part in (task.train, task.validation, task.test):
        assert torch.equal(part.weights, part.inputs[:, 0])
    own = Task.from_arrays(train=(X, Y, np.full(60, 2)), validation=PAIR, test=PAIR, model=net)
    assert (own.train.weights.unique().item(), own.test.weights.unique().item()) == (2, 1)
    assert Task.from_arrays(X, Y, model=net).train.weights is None


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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"sample_weight": [1, 2]},
            "sample_weight must be a vector with a weight for each of 60 samples but has shape (2,)",
        ),
        ({"sample_weight": Y - 1}, "sample_weight must be finite and at least 0 but row 0 has -1.0"),
        ({"sample_weight": Y * np.nan}, "sample_weight must be finite and at least 0 but row 0 has nan"),
        ({"sample_weight": Y * 0}, "sample_weight must be more than 0 for at least one sample but all are 0"),
        (
            {"sample_weight": np.arange(60) == 0},
            "the sample weights of the validation split must be more than 0 for at",
        ),
        (
            {"class_weight": "auto"},
            "class_weight must be \"balanced\", a weight for each class, or a dictionary but got 'auto'",
        ),
        ({"class_weight": 2}, 'class_weight must be "balanced", a weight for each class, or a dictionary but got 2'),
        ({"class_weight": [1, 2]}, "class_weight must have a weight for each of 3 classes but has shape (2,)"),
        (
            {"class_weight": [1, -1, 1]},
            "class_weight must be finite numbers of at least 0, and not all 0, but got [1, -1",
        ),
        ({"class_weight": ["a", "b", "c"]}, "class_weight must hold real numbers but got text"),
        (
            {"class_weight": {0: 1, 1: 1}},
            "class_weight must have a weight for each of the classes [0, 1, 2], and for noth",
        ),
        (
            {"class_weight": [1, 2, 3], "kind": "regression"},
            "class_weight must be None for regression, which has no classes",
        ),
    ],
)
def test_bad_weights(options, sentence):
    assert refused(**options).startswith(sentence)


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


def test_a_model_with_too_few_outputs_for_class_numbers_with_gaps():
    advice = "so number the classes from 0 without gaps, list them as classes, or name the label that does not count as"
    with pytest.raises(InputError) as caught:
        evomal.train(Task.from_arrays(X, Y + 1, model=net), "ce", steps=1)
    start = "the task has 4 classes but the model has 3 outputs: no training sample is of class 0, "
    assert str(caught.value) == f"{start}{advice} ignore_index"
    masks = np.where(RNG.random((60, 4, 4)) < 0.1, 255, RNG.integers(0, 2, (60, 4, 4)))
    with pytest.raises(InputError, match=f"no training sample is of class 2, {advice} ignore_index"):
        evomal.train(
            Task.from_arrays(RNG.random((60, 1, 4, 4)), masks, model=lambda: nn.Conv2d(1, 2, 1)), "ce", steps=1
        )
    with pytest.raises(InputError, match=r"the task has 3 classes but the model has 2 outputs$"):
        evomal.train(Task.from_arrays(X, Y, model=lambda: nn.Linear(4, 2)), "ce", steps=1)
