"""Tasks from arrays and datasets: parts, standardising, hardships on training data only, bad input."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from evomal.errors import InputError
from evomal.tasks.hardships import Hardships
from evomal.tasks.task import Task

RNG = np.random.default_rng(0)
X = RNG.normal(3, 2, (200, 4))
LABELS = RNG.integers(0, 3, 200)
VALUES = RNG.normal(50, 9, 200)


def net():
    return torch.nn.Linear(4, 3)


def test_classification():
    task = Task.from_arrays(X, LABELS, model=net, seed=1)
    assert (len(task.train), len(task.validation), len(task.test)) == (120, 40, 40)
    assert (task.outputs, task.metric.name) == (3, "error_rate")
    assert task.train.targets.dtype == torch.int64
    assert isinstance(task.model(), torch.nn.Linear)
    assert task.record["rows"] == {"train": 120, "validation": 40, "test": 40}


def test_standardised_with_the_training_split_alone():
    task = Task.from_arrays(X, VALUES, model=net, kind="regression")
    for tensor in (task.train.inputs, task.train.targets):
        torch.testing.assert_close(tensor.mean(0), torch.zeros(tensor.shape[1]), atol=1e-5, rtol=0)
        torch.testing.assert_close(tensor.std(0, correction=0), torch.ones(tensor.shape[1]), atol=1e-5, rtol=0)
    assert task.validation.inputs.mean(0).abs().max() > 1e-3
    assert task.train.targets.shape == (120, 1)
    raw = Task.from_arrays(X, VALUES, model=net, kind="regression", standardise=False)
    everything = torch.cat((raw.train.inputs, raw.validation.inputs, raw.test.inputs))
    assert torch.equal(everything.sort(0).values, torch.tensor(X, dtype=torch.float32).sort(0).values)


def test_the_units_of_the_targets_are_kept_and_predictions_converted_back():
    several = np.stack((VALUES, 3 * VALUES**2), axis=1)
    for targets, outputs in ((VALUES, None), (several, 2)):
        task = Task.from_arrays(X, targets, model=net, kind="regression", hardships=Hardships(outliers=0.1))
        raw = Task.from_arrays(
            X, targets, model=net, kind="regression", standardise=False, hardships=Hardships(outliers=0.1)
        )
        values = raw.train.targets.double()
        assert task.units.outputs == outputs
        assert task.units.mean == pytest.approx(tuple(values.mean(0).tolist()) if outputs else values.mean().item())
        deviation = values.std(0, correction=0)
        assert task.units.scale == pytest.approx(tuple(deviation.tolist()) if outputs else deviation.item())
        for part in ("train", "validation", "test"):
            found = task.to_raw(getattr(task, part).targets)
            torch.testing.assert_close(found, getattr(raw, part).targets, rtol=1e-5, atol=1e-3)
            torch.testing.assert_close(torch.from_numpy(task.to_raw(getattr(task, part).targets.numpy())), found)
        assert raw.units is None
        assert raw.to_raw(raw.test.targets) is raw.test.targets
    assert Task.from_arrays(X, LABELS, model=net).units is None
    assert Task.from_arrays(X.astype(int), VALUES, model=net, kind="regression").units is None


def test_whole_numbers_and_images_are_not_standardised():
    task = Task.from_arrays(np.arange(800).reshape(200, 4), LABELS, model=net)
    assert task.train.inputs.max() > 700
    images = Task.from_arrays(RNG.random((200, 1, 8, 8)), LABELS, model=net)
    assert images.train.inputs.min() >= 0


def test_a_constant_feature_survives():
    x = X.copy()
    x[:, 1] = 7
    assert Task.from_arrays(x, LABELS, model=net).train.inputs[:, 1].abs().max() == 0


def test_hardships_touch_training_data_only():
    easy = Task.from_arrays(X, LABELS, model=net)
    hard = Task.from_arrays(X, LABELS, model=net, hardships=Hardships(label_noise=0.5))
    assert (easy.train.targets != hard.train.targets).sum() == 60
    for part in ("validation", "test"):
        assert torch.equal(getattr(easy, part).inputs, getattr(hard, part).inputs)
        assert torch.equal(getattr(easy, part).targets, getattr(hard, part).targets)
    assert hard.record["hardships"]["label_noise"] == 0.5
    outliers = Task.from_arrays(
        X, VALUES, model=net, kind="regression", hardships=Hardships(outliers=0.25), standardise=False
    )
    plain = Task.from_arrays(X, VALUES, model=net, kind="regression", standardise=False)
    assert (outliers.train.targets != plain.train.targets).sum() == 30
    assert torch.equal(outliers.test.targets, plain.test.targets)


def test_equal_rows_in_two_parts_are_reported():
    doubled = np.concatenate((X, X))
    task = Task.from_arrays(doubled, np.concatenate((LABELS, LABELS)), model=net)
    assert task.record["equal_rows_across_splits"] > 50


def test_datasets_are_taken_as_they_are():
    parts = [TensorDataset(torch.randn(n, 4) * 5, torch.randint(3, (n,))) for n in (30, 10, 20)]
    task = Task.from_datasets(*parts, model=net)
    assert torch.equal(task.train.inputs, parts[0].tensors[0])
    assert torch.equal(task.test.targets, parts[2].tensors[1])
    values = [TensorDataset(torch.randn(n, 4), torch.randn(n)) for n in (30, 10, 20)]
    assert Task.from_datasets(*values, model=net, kind="regression").validation.targets.shape == (10, 1)


@pytest.mark.parametrize(
    ("x", "y", "options", "sentence"),
    [
        (X, LABELS[:5], {}, "y must have a target for each of 200 rows of x but got 5"),
        (X[:, 0], LABELS, {}, "x must have a row for each sample and at least one feature but got shape (200,)"),
        (np.where(X[3, 1] == X, np.nan, X), LABELS, {}, "x must be finite but x[3, 1] is nan"),
        (X, LABELS - 1, {}, "class numbers of y must lie between 0 and 1 but one is -1"),
        (X, LABELS * 0, {}, "y must hold at least two classes but all 200 labels are 0"),
        (X, VALUES, {}, "y must be whole class numbers, one a row, but got float64 of shape (200,)"),
        (X, VALUES * np.inf, {"kind": "regression"}, "y must be finite but row 0 is not"),
        (
            X,
            LABELS,
            {"kind": "ranking"},
            "kind must be one of classification, regression, multilabel but got 'ranking'",
        ),
        (X, np.stack((LABELS, LABELS), 1), {"kind": "multilabel"}, "y must be a matrix of zeros and ones"),
        (X, LABELS, {"test": 0.9}, "every part of the data needs a row"),
        (X, LABELS, {"metric": "mse"}, "metric must be one of error_rate, nll, ece, macro_f1 for classification"),
        (X.astype(str), LABELS, {}, "x must hold numbers but got"),
        (X, LABELS, {"test": 0.0}, "the test split must have at least one sample but is empty"),
    ],
)
def test_bad_arrays(x, y, options, sentence):
    with pytest.raises(InputError) as caught:
        Task.from_arrays(x, y, model=net, **options)
    assert sentence in str(caught.value)


def test_bad_datasets():
    good = TensorDataset(torch.randn(9, 4), torch.arange(9) % 3)
    with pytest.raises(InputError, match="the validation dataset must have a length of at least 1"):
        Task.from_datasets(good, TensorDataset(torch.randn(0, 4), torch.arange(0)), good, model=net)
    with pytest.raises(InputError, match="the training dataset must give pairs of input and target"):
        Task.from_datasets(TensorDataset(torch.randn(9, 4)), good, good, model=net)
    with pytest.raises(InputError, match="class numbers of the test data must lie between 0 and 2 but one is 5"):
        Task.from_datasets(good, good, TensorDataset(torch.randn(9, 4), torch.arange(9) % 2 * 5), model=net)
