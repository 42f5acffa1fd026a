"""Arrays and datasets that cannot be a task's data: each is one sentence that says which rule is broken."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from evomal.errors import EvomalError, InputError, UserCodeError
from evomal.tasks.task import Task

X = np.random.default_rng(0).normal(size=(50, 3))
Y = np.arange(50) % 2


def net():
    return torch.nn.Linear(3, 2)


class Unreadable:
    def __array__(self, *_, **__):
        raise KeyError("no array")


def refused(kind=InputError, x=X, y=Y, **options):
    with pytest.raises(kind) as caught:
        Task.from_arrays(x, y, model=net, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (
            [[1, 2], [3]],
            "x must have rows of one shape but they differ: pad them to one length, or use Task.from_loaders",
        ),
        (
            np.array([["a", "b", "c"]] * 50),
            "x must hold real numbers but got text: encode text as numbers, such as pandas.get_dummies or token ids",
        ),
        (X + 1j, "x must hold real numbers but got complex128"),
        (torch.tensor(X) + 1j, "x must hold real numbers but got complex128"),
        ([], "x must have a row for each sample and at least one feature but got shape (0,)"),
        (np.zeros((50, 0)), "x must have a row for each sample and at least one feature but got shape (50, 0)"),
        (X * 1e300, "x must be at most 3.403e+38 in size but x[0, 0] is 1.257e+299"),
    ],
)
def test_inputs_that_are_no_numbers(x, sentence):
    assert refused(x=x) == sentence


def test_tensors_that_are_not_ordinary():
    assert refused(x=torch.tensor(X).to_sparse()).startswith("x must be an ordinary tensor of numbers: ")
    assert refused(x=torch.empty(50, 3, device="meta")).startswith("x must be an ordinary tensor of numbers: ")


def test_what_an_array_like_raises():
    assert refused(UserCodeError, x=Unreadable()).startswith("x failed: KeyError: 'no array' (")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_small_floats_keep_their_values(dtype):
    small = torch.tensor(X).to(dtype)
    task = Task.from_arrays(small, torch.tensor(Y).to(dtype), model=net, standardise=False)
    rows = torch.cat([part.inputs for part in (task.train, task.validation, task.test)])
    assert torch.equal(rows.sort(0).values, small.float().sort(0).values)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"y": Y * (2**62)}, "class numbers of y must be less than 1,000,000 but one is 4,611,686,018,427,387,904"),
        ({"validation": 0}, "the validation split must have at least one sample but is empty"),
        ({"test": 0}, "the test split must have at least one sample but is empty"),
        ({"validation": "0.2"}, "validation must be a share of at least 0 and less than 1 but got '0.2'"),
        ({"validation": None}, "validation must be a share of at least 0 and less than 1 but got None"),
        ({"seed": -1}, "seed must be at least 0 but got -1"),
        ({"seed": 2**63}, "seed must be at most 9223372036854775807 but got 9223372036854775808"),
        ({"name": 5}, "a task's name must be a string that is not empty but got 5"),
        ({"name": " "}, "a task's name must be a string that is not empty but got ' '"),
        ({"hardships": 5}, "hardships must be an evomal.Hardships but got an int"),
    ],
)
def test_options_that_break_a_rule(options, sentence):
    assert refused(**options).startswith(sentence)


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        if isinstance(self.items[index], Exception):
            raise self.items[index]
        return self.items[index]


GOOD = [(torch.zeros(3), index % 2) for index in range(6)]


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (KeyError("k"), "item 6 of the training dataset failed: KeyError: 'k' ("),
        (None, "item 6 of the training dataset must be a pair of input and target, a triple with a weight, or a "),
        (("a", 1), "the input of item 6 of the training dataset must hold numbers in rows of one shape but is 'a'"),
        (([1, [2]], 1), "the input of item 6 of the training dataset must hold numbers in rows of one shape but is ["),
        ((np.array([None] * 3), 1), "the input of item 6 of the training dataset must hold numbers in rows of one"),
        (
            (torch.zeros(3) + 1j, 1),
            "the input of item 6 of the training dataset must hold real numbers but got complex",
        ),
        ((torch.zeros(3), None), "the target of item 6 of the training dataset must hold numbers in rows of one shape"),
        (
            (torch.zeros(2), 1),
            "items must have inputs of one shape but item 0 of the training dataset has [3] and item 6 ",
        ),
        ((torch.full((3,), torch.inf), 1), "the inputs of the training dataset must be finite but row 6 has inf"),
    ],
)
def test_items_of_a_dataset_that_are_no_numbers(item, sentence):
    with pytest.raises(EvomalError) as caught:
        Task.from_datasets(Items([*GOOD, item]), Items(GOOD), Items(GOOD), model=net)
    assert str(caught.value).startswith(sentence)


def test_datasets_without_items_or_features():
    with pytest.raises(InputError, match="the training dataset must have a length of at least 1"):
        Task.from_datasets(Items([]), Items(GOOD), Items(GOOD), model=net)
    empty = Items([(torch.zeros(0), index % 2) for index in range(6)])
    with pytest.raises(InputError, match="the inputs of the training dataset must have at least one feature"):
        Task.from_datasets(empty, Items(GOOD), Items(GOOD), model=net)
