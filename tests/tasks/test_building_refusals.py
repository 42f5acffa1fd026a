"""What cannot be a task is refused in one sentence, which says what to do instead."""

import numpy as np
import pytest
import torch
from torch import nn

import evomal
from evomal.errors import EvomalError, InputError
from evomal.tasks.hardships import Hardships
from evomal.tasks.task import Task
from tests.tasks.building_cases import IDS, PAIR, RNG, TEXTS, Reader, X, Y, net, refused


def test_a_number_that_an_embedding_does_not_hold_is_found_before_training():
    for name, row in (("train", 9), ("validation", 40), ("test", 59)):
        ids = np.where(np.arange(60)[:, None] == row, 99, IDS)
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
        (
            Y,
            {"ignore_index": 0, "kind": "regression"},
            "ignore_index is for classification, but the kind is regression",
        ),
        (TEXTS, {"kind": "regression"}, 'y must hold real numbers but got text: use kind="classification" for labels'),
        (
            [["a"], ["a", "b"]] * 30,
            {"kind": "multilabel"},
            "y must hold zeros and ones but holds texts: convert them to a matrix",
        ),
        (np.arange(60), {}, "there are 60 classes and the rarest has 1 row: use a larger share, join or leave out"),
        (RNG.integers(0, 3, (60, 4)), {"hardships": Hardships(label_noise=0.1)}, "not defined for labels at positions"),
        (RNG.integers(0, 3, (60, 4)), {"hardships": Hardships(imbalance=0.1)}, "for classes only, one for each sample"),
        ([], {"kind": "regression"}, "y must have a target for each of 60 rows of x but got 0"),
        (np.eye(3)[Y], {"kind": "multilabel", "classes": 5}, "classes must be a list of at least 1 class but got 5"),
        (Y, {"standardise": "yes"}, "standardise must be True or False but got 'yes'"),
    ],
)
def test_targets_that_are_refused(y, options, sentence):
    assert sentence in refused(y=y, **options)


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
            "every part of the data needs a row, but 1 row with shares",
        ),
        (
            {"class_weight": "auto"},
            "class_weight must be \"balanced\", a weight for each class, or a dictionary but got 'auto'",
        ),
        ({"sample_weight": torch.ones(60).to_sparse()}, "sample_weight must be an ordinary tensor of numbers: "),
        ({"class_weight": (X, Y)}, "class_weight must have rows of one shape but they differ"),
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


JUNK = [
    None, -1, 2.5, float("nan"), True, "", "a", b"x", [], (), {}, set(), [[]], [None], [2**70] * 60, X, Y, X > 0,
    X + 0j, TEXTS, X.astype(object), np.array(None), np.zeros((0, 4)), np.zeros((60, 0)), np.zeros((60, 2, 2)),
    (X, Y), {"a": X}, {0: X}, np.zeros(60, "M8[D]"), np.zeros(60, [("a", int)]), torch.empty(60, device="meta"),
    torch.ones(60).to_sparse(), [["a"], ["b", "c"]] * 30, [{"a": 1}] * 60, {"a": 1}, iter([1]), object(), len,
    net, nn.Linear(4, 3), memoryview(X),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
@pytest.mark.parametrize(
    "name",
    [
        *("x", "y", "train", "validation", "test", "groups", "order", "sample_weight", "class_weight", "classes"),
        *("ignore_index", "seed", "standardise", "metric", "recipe", "hardships", "name", "kind"),
    ],
)
def test_whatever_is_given_is_taken_or_refused_in_one_sentence(name, kind):
    sentences = []
    for value in JUNK:
        targets = np.eye(3)[Y] if kind == "multilabel" else Y
        try:
            Task.from_arrays(**{"x": X, "y": targets, "model": net, "kind": kind, name: value})
        except EvomalError as error:
            sentences.append(str(error))
    assert len(sentences) >= 20
    assert [sentence for sentence in sentences if "\n" in sentence] == []
