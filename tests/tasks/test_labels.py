"""Labels of any type become class numbers, in an order that is known, and class numbers become labels again."""

import numpy as np
import pytest
import torch

from evomal.errors import InputError
from evomal.tasks.labels import IGNORED, decoded_labels, encoded_labels, labels_like


@pytest.mark.parametrize(
    ("labels", "options", "numbers", "classes"),
    [
        (["dog", "cat", "dog"], {}, [1, 0, 1], ("cat", "dog")),
        (np.array(["dog", "cat"]), {"classes": ["dog", "cat"]}, [0, 1], ("dog", "cat")),
        (np.array(["b", "a"], dtype=object), {}, [1, 0], ("a", "b")),
        ([True, False], {}, [1, 0], (False, True)),
        (torch.tensor([True, False]), {"classes": ["no", "yes"]}, [1, 0], ("no", "yes")),
        ([2, 0], {}, [2, 0], None),
        ([1.0, 0.0], {}, [1, 0], None),
        (np.array([1, 0], dtype=object), {}, [1, 0], None),
        ([1, 0], {"classes": ("no", "yes")}, [1, 0], ("no", "yes")),
        ([1, -1], {"classes": [-1, 1]}, [1, 0], (-1, 1)),
        (np.array([[0, 255]], dtype=np.uint8), {"ignored": 255}, [[0, IGNORED]], None),
        ([["a", "<pad>"], ["b", "a"]], {"ignored": "<pad>"}, [[0, IGNORED], [1, 0]], ("a", "b")),
        ([["a", "b"]], {"ignored": None}, [[0, 1]], ("a", "b")),
        ([[3, -1], [5, 3]], {"classes": [3, 5], "ignored": -1}, [[0, IGNORED], [1, 0]], (3, 5)),
    ],
)
def test_labels_become_class_numbers(labels, options, numbers, classes):
    encoded, found = encoded_labels(labels, "y", **options)
    assert (encoded.tolist(), found) == (numbers, classes)


@pytest.mark.parametrize(
    ("labels", "options", "sentence"),
    [
        (["a", None], {}, "y must have no missing labels but row 1 has one: drop its row"),
        (["a", float("nan")], {}, "y must have no missing labels but row 1 has one: drop its row"),
        (["a", 1], {}, "y must hold labels of one type, numbers or texts, but holds int and str"),
        ([b"a", b"b"], {}, "y must hold numbers or texts as labels but got |S1"),
        (np.array(["2020"], "datetime64[D]"), {}, "y must hold numbers or texts as labels but got datetime64[D]"),
        (["a", "a"], {}, "y must hold at least two classes but all labels are 'a'"),
        (["a", "c"], {"classes": ["a", "b"]}, "y must hold labels among the classes ['a', 'b'] but row 1 has 'c'"),
        (["a"], {"classes": "ab"}, "classes must be a list of at least 2 classes but got 'ab'"),
        ([2**70, 1], {}, "y must hold class numbers of at most 64 bits but one has more"),
        (
            ["a"],
            {"classes": np.array(None)},
            "classes must be a list of at least 2 classes but got array(None, dtype=obj",
        ),
        (["a"], {"classes": np.ones((2, 2))}, "classes must be a list of at least 2 classes but got array([[1., 1.],"),
        (["a"], {"classes": ["a", "a"]}, "classes must be different but 'a' is among them twice"),
        (["a"], {"classes": ["a", 1]}, "classes must be all texts or all numbers but got ['a', 1]"),
        (["a"], {"classes": [None, "a"]}, "classes must be strings or numbers but one is None"),
    ],
)
def test_labels_that_cannot_be_numbered(labels, options, sentence):
    with pytest.raises(InputError) as caught:
        encoded_labels(labels, "y", **options)
    assert str(caught.value).startswith(sentence)


def test_another_part_keeps_the_classes_of_the_training_part():
    assert labels_like(["b", "b"], "test[1]", ("a", "b")).tolist() == [1, 1]
    assert labels_like([0, -100], "test[1]", None).tolist() == [0, IGNORED]
    for labels, classes, sentence in (
        (["c"], ("a", "b"), "test[1] must hold labels among the classes ['a', 'b'] but row 0 has 'c'"),
        ([0], ("a", "b"), "test[1] must hold texts as labels, as the training part does, but holds numbers"),
        (["a"], None, "test[1] must hold numbers as labels, as the training part does, but holds texts"),
        ([1], (False, True), "test[1] must hold truth values as labels, as the training part does, but holds numbers"),
    ):
        with pytest.raises(InputError) as caught:
            labels_like(labels, "test[1]", classes)
        assert str(caught.value) == sentence


def test_class_numbers_become_labels_again():
    assert decoded_labels(np.array([[1, 0]]), ("a", "b"), 2).tolist() == [["b", "a"]]
    assert decoded_labels(np.array([1, 0]), (False, True), 2).tolist() == [True, False]
    assert decoded_labels(np.array([2]), None, 3).tolist() == [2]
    with pytest.raises(InputError, match="class numbers must lie between 0 and 1 but range from -1 to 1"):
        decoded_labels(np.array([1, -1]), ("a", "b"), 2)
