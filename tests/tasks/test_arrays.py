"""Sparse matrices, frames of pandas and other arrays become plain ones, or one sentence says what to do."""

import datetime

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.utils.data import DataLoader, TensorDataset

from evomal.errors import InputError
from evomal.tasks.arrays import check_same_index, column, number_array
from evomal.tasks.task import Task

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.arange(60) % 3


def net():
    return torch.nn.Linear(4, 3)


def refused(function, *values):
    with pytest.raises(InputError) as caught:
        function(*values)
    return str(caught.value)


@pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_sparse_matrices_are_made_dense(form):
    assert np.array_equal(number_array(form(X), "x"), X)


def test_a_sparse_matrix_that_is_too_large_is_refused():
    huge = scipy.sparse.csr_matrix((60, 10**9))
    assert refused(number_array, huge, "x") == (
        "x is sparse and must take at most 4 GiB as a dense array but would take 447.0 GiB: select columns first, or "
        "reduce them, as with sklearn's TruncatedSVD"
    )


def test_numbers_in_other_forms():
    assert np.array_equal(number_array(list(torch.tensor(X)), "x"), X)
    assert number_array(X.astype(object), "x").dtype == np.float64
    assert number_array(np.array([1, 2], object), "x").dtype == np.int64


def test_memory_that_is_read_only_is_copied(tmp_path):
    stored = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, X.shape)
    stored[:] = X
    stored.flush()
    weights = np.ones(60)
    weights.flags.writeable = False
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    labels = Y.copy()
    labels.flags.writeable = False
    task = Task.from_arrays(x, labels, model=net, sample_weight=weights)
    assert torch.equal(task.train.inputs, Task.from_arrays(X, Y, model=net).train.inputs)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (None, "x must be an array with a row for each sample but got None"),
        (5, "x must be an array with a row for each sample but got 5"),
        ("age", "x must be an array with a row for each sample but got 'age': give the values themselves, not their"),
        ({"a": 1}, "x must be an array with a row for each sample but got {'a': 1}"),
        ((row for row in X), "x must be an array with a row for each sample but got <generator object"),
        (TensorDataset(torch.ones(2)), "x must be an array but got a TensorDataset: use Task.from_datasets"),
        (DataLoader([1, 2]), "x must be an array but got a DataLoader: use Task.from_loaders"),
        ([{"a": 1}], "x must hold real numbers but got dictionaries: give one dictionary of arrays"),
        ([[1, None]], "x must hold real numbers but got missing values: fill missing values, or drop their"),
        ([torch.ones(2), torch.ones(3)], "x must have rows of one shape but they differ: pad them to one length, or"),
        (np.array([[1, 2], [3]], object), "x must hold real numbers but got rows that differ in length: pad them"),
        (np.zeros(2, [("a", float)]), "x must hold real numbers but got records: give a plain array of shape"),
        (np.zeros(2, "m8[s]"), "x must hold real numbers but got times: convert times to numbers"),
        ([2**70], "x must hold real numbers but got whole numbers of more than 64 bits"),
        (np.array([2**64 - 1], np.uint64), "x must hold whole numbers below 2^63 but one is 1844"),
    ],
)
def test_what_is_no_array_of_numbers(values, sentence):
    assert refused(number_array, values, "x").startswith(sentence)


def test_a_value_for_each_row():
    assert column([["a"], ["b"]], "groups", 2).tolist() == ["a", "b"]
    assert refused(column, [1, 2], "groups", 3) == "groups must have one value for each of 3 rows but has shape (2,)"
    for values in ([1, np.nan], ["a", None], np.array(["2020", "NaT"], "datetime64[D]")):
        assert refused(column, values, "order", 2) == "order must have no missing values but row 1 has one"
    days = [datetime.date(2020, 1, 1 + day % 28) for day in range(60)]
    task = Task.from_arrays(np.arange(60.0)[:, None], Y, model=net, order=days, standardise=False)
    assert {days[int(row)] for row in task.test.inputs[:, 0]} == {datetime.date(2020, 1, day) for day in range(23, 29)}


class TestPandas:
    """What frames and series become; pandas need not be installed."""

    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("pandas")
        import pandas

        self.pd = pandas
        self.frame = self.pd.DataFrame(X, columns=list("abcd"))

    def test_a_frame_and_a_series_are_a_task(self):
        labels = np.array(["red", "green", "blue"])[Y]
        task = Task.from_arrays(self.frame, self.pd.Series(labels), model=net)
        assert task.classes == ("blue", "green", "red")
        plain = Task.from_arrays(X, labels, model=net)
        for part in ("train", "validation", "test"):
            assert torch.equal(getattr(task, part).inputs, getattr(plain, part).inputs)
            assert torch.equal(getattr(task, part).targets, getattr(plain, part).targets)

    def test_categories_keep_their_order(self):
        sizes = self.pd.CategoricalDtype(["small", "medium", "large", "huge"], ordered=True)
        series = self.pd.Series(np.array(["small", "medium", "large"])[Y], dtype=sizes)
        assert Task.from_arrays(X, series, model=net).classes == ("small", "medium", "large")

    def test_columns_of_several_types(self):
        pd = self.pd
        frame = pd.DataFrame({"a": pd.array([1, 2], "Int64"), "b": [True, False], "c": pd.array([0.5, 2], "Float64")})
        assert number_array(frame, "x").tolist() == [[1, 1, 0.5], [2, 0, 2]]
        assert number_array(frame[["a", "b"]], "x").dtype == np.int64
        assert number_array(frame[["b"]], "x").dtype == bool

    def test_columns_name_the_labels_of_a_multilabel_task(self):
        bits = self.pd.DataFrame(np.eye(3, dtype=int)[Y], columns=["red", "green", "blue"])
        assert Task.from_arrays(X, bits, model=net, kind="multilabel").classes == ("red", "green", "blue")

    def test_groups_times_and_weights_may_be_series(self):
        pd = self.pd
        times = pd.Series(pd.date_range("2020", periods=60, tz="UTC"))
        task = Task.from_arrays(self.frame, Y, model=net, order=times, standardise=False)
        assert torch.equal(task.test.inputs, torch.tensor(X[-12:], dtype=torch.float32))
        weighted = Task.from_arrays(
            X, Y, model=net, sample_weight=pd.Series(np.arange(60)), groups=pd.Series(np.arange(60) // 10)
        )
        assert torch.cat([weighted.train.weights, weighted.validation.weights, weighted.test.weights]).sum() == 1770

    def test_frames_that_are_refused(self):
        pd, frame = self.pd, self.frame
        for values, sentence in (
            (frame.assign(city="x"), "column 'city' of x must hold numbers but holds text: encode text as numbers"),
            (
                frame.assign(day=pd.Timestamp(2020, 1, 1)),
                "column 'day' of x must hold numbers but holds times: convert",
            ),
            (frame.mask(frame.a == X[3, 0]), "column 'a' of x must have no missing values but row 3 has one: fill"),
            (frame.assign(e=pd.array([None] * 60, "Int64")), "column 'e' of x must have no missing values but row 0"),
            (frame[["a"]].astype(str), "x must hold real numbers but got text: encode text as numbers"),
            (pd.MultiIndex.from_tuples([(1, 2)]), "x must be a column or a frame but is an index of several levels"),
            (pd.NaT, "x must be an array with a row for each sample but got NaT"),
            (pd.DataFrame(), "x must have at least one column but has none"),
        ):
            assert refused(number_array, values, "x").startswith(sentence)

    def test_rows_in_another_order_are_refused(self):
        shuffled = self.pd.Series(Y).sample(frac=1, random_state=0)
        sentence = (
            "x and y must have their rows in the same order but their indices differ in order: give y.loc[x.index]"
        )
        assert refused(check_same_index, {"x": self.frame, "y": shuffled}) == sentence
        check_same_index({"x": self.frame, "y": self.pd.Series(Y, index=range(100, 160)), "weights": Y})
        with pytest.raises(InputError, match="x and groups must have their rows in the same order"):
            Task.from_arrays(self.frame, Y, model=net, groups=shuffled)
