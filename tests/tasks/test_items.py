"""Items and batches as parts: pairs, triples with weights, mappings of columns, and what is refused."""

import numpy as np
import pytest
import torch

from evomal.errors import InputError
from evomal.tasks.items import Columns, batch_part, stacked_items


def stacked(*items, columns=None):
    return stacked_items(items, columns or Columns(), [f"item {index}" for index in range(len(items))])


def test_pairs_become_tensors_in_the_dtypes_of_parts():
    part = stacked((np.zeros(3), 1), (np.ones(3), 0))
    assert part.inputs.dtype == torch.float32
    assert part.inputs.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert part.targets.dtype == torch.int64
    assert part.targets.tolist() == [1, 0]
    assert part.weights is None
    assert stacked(([1, 2], 0.5)).inputs.dtype == torch.int64


def test_triples_have_weights_and_inputs_may_be_tuples_and_dictionaries():
    part = stacked(((torch.zeros(2), torch.ones(3)), 1, 0.5), ((torch.zeros(2), torch.ones(3)), 0, 2))
    assert [list(own.shape) for own in part.inputs] == [[2, 2], [2, 3]]
    assert part.weights.tolist() == [0.5, 2]
    part = stacked(({"ids": [1, 2], "mask": [True, False]}, 1))
    assert part.inputs["mask"].dtype == torch.bool
    assert part.inputs["ids"].tolist() == [[1, 2]]
    assert stacked(((1.0, 2.0), 1)).inputs.tolist() == [[1, 2]]


def test_columns_of_mappings():
    item = {"input_ids": [1, 2], "attention_mask": [1, 1], "labels": 1}
    assert list(stacked(item).inputs) == ["input_ids", "attention_mask"]
    assert stacked(item, columns=Columns(inputs="input_ids")).inputs.tolist() == [[1, 2]]
    assert stacked({"image": [0.5], "label": 1}).inputs.tolist() == [[0.5]]
    assert stacked({"image": [0.5], "age": 7.0}, columns=Columns(target="age")).targets.tolist() == [7.0]


@pytest.mark.parametrize(
    ("items", "columns", "sentence"),
    [
        ([5], Columns(), "item 0 must be a pair of input and target, a triple with a weight, or a mapping"),
        ([(1, 2, 3, 4)], Columns(), "but is a tuple of 4"),
        ([{"x": 1.0}], Columns(), r"must have a target but has the columns x: name the target with target="),
        ([{"x": 1.0, "y": 0}], Columns(target="z"), "must have the target 'z' but has the columns x, y"),
        ([{"y": 0}], Columns(), "must have a column of inputs beside the target"),
        ([{"x": 1.0, "y": 0}], Columns(inputs=("x", "w")), "must have the column 'w' but has the columns x, y"),
        ([{"text": "a word", "y": 0}], Columns(), "must hold numbers .* 'a word': choose columns of numbers"),
        ([([1.0], 0), ([1.0, 2.0], 0)], Columns(), r"item 0 has \[1\] and item 1 has \[2\]: use Task.from_loaders"),
        ([([1.0], [0]), ([1.0], [0, 1])], Columns(), "targets of one shape"),
        ([([1.0], 0, 1.0), ([1.0], 0)], Columns(), "either all or none of the items must have weights"),
    ],
)
def test_what_is_refused_is_refused_in_one_sentence(items, columns, sentence):
    with pytest.raises(InputError, match=sentence):
        stacked(*items, columns=columns)


def test_batches_have_one_row_for_each_sample():
    part = batch_part({"x": torch.zeros(3, 2), "label": torch.tensor([0, 1, 0])}, Columns(), "batch 0")
    assert len(part) == 3
    assert part.inputs.shape == (3, 2)
    with pytest.raises(InputError, match=r"batch 0 must have one row for each sample .* shapes \[3, 2\], \[2\]"):
        batch_part((torch.zeros(3, 2), torch.zeros(2)), Columns(), "batch 0")


@pytest.mark.parametrize("target", ["cat", ["cat", "dog"]])
def test_texts_as_targets_are_refused_with_what_to_give_instead(target):
    with pytest.raises(InputError, match=r"the target of item 0 must hold numbers .*: give class numbers from 0"):
        stacked((np.zeros(3), target))
