"""Tasks from arrays and datasets: parts, standardising, hardships on training data only, bad input."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import evomal
from evomal.errors import InputError
from evomal.tasks.hardships import Hardships
from evomal.tasks.metrics import chosen_metric
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
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


def test_tasks_and_parts_are_printed_in_a_line():
    task = Task.from_arrays(X, LABELS, model=net, name="mine")
    assert (
        repr(task)
        == str(task)
        == ("Task('mine', classification, rows=120 + 40 + 40, outputs=3, metric='error_rate', model='net')")
    )
    assert repr(task.train) == "Part(inputs=[120, 4] torch.float32, targets=[120] torch.int64)"


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


@pytest.mark.parametrize("inputs", ["whole numbers", "images", "one number", "dictionary"])
@pytest.mark.parametrize("shape", [(200,), (200, 2), (200, 3, 3)])
def test_targets_are_standardised_whatever_the_inputs_are(inputs, shape):
    rows = np.arange(200)
    given = {
        "whole numbers": rows[:, None], "images": rows[:, None, None, None] + np.zeros((1, 4, 4)), "one number": rows,
        "dictionary": {"ids": rows[:, None], "image": rows[:, None, None, None] / 1.0},
    }[inputs]  # fmt: skip
    values = 1000 + 50 * RNG.normal(size=shape)
    task = Task.from_arrays(given, values, model=net, kind="regression")
    targets = task.train.targets
    axes = 0 if len(shape) < 3 else (0, 1, 2)
    torch.testing.assert_close(targets.mean(axes), torch.zeros_like(targets.mean(axes)), atol=1e-5, rtol=0)
    torch.testing.assert_close(targets.std(axes, correction=0), torch.ones_like(targets.mean(axes)))
    own = task.test.inputs if not isinstance(task.test.inputs, dict) else task.test.inputs["ids"]
    expected = torch.tensor(values[own.reshape(len(own), -1)[:, 0].long()], dtype=torch.float32)
    torch.testing.assert_close(task.to_raw(task.test.targets), expected.view_as(task.test.targets))
    raw = Task.from_arrays(given, values, model=net, kind="regression", standardise=False)
    assert raw.units is None
    assert torch.isin(raw.train.targets, torch.tensor(values, dtype=torch.float32)).all()


def test_whole_numbers_and_images_are_not_standardised():
    task = Task.from_arrays(np.arange(800).reshape(200, 4), LABELS, model=net)
    assert task.train.inputs.max() > 700
    images = Task.from_arrays(RNG.random((200, 1, 8, 8)), LABELS, model=net)
    assert images.train.inputs.min() >= 0


def test_a_constant_feature_survives():
    x = X.copy()
    x[:, 1] = 7
    assert Task.from_arrays(x, LABELS, model=net).train.inputs[:, 1].abs().max() == 0


def test_targets_of_regression_must_differ():
    with pytest.raises(InputError, match=r"targets of y must differ between samples but all 200 are 7\.5"):
        Task.from_arrays(X, np.full(200, 7.5), model=net, kind="regression")
    data = TensorDataset(torch.rand(20, 4), torch.ones(20, 2))
    with pytest.raises(InputError, match=r"the train split must differ between samples but all 20 are \[1.0, 1.0\]"):
        Task.from_datasets(data, data, data, model=net, kind="regression")
    one_constant = np.stack((VALUES, np.ones(200)), axis=1)
    assert Task.from_arrays(X, one_constant, model=net, kind="regression").outputs == 2


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
        (X, np.where(np.arange(200) == 7, 0.7, LABELS), {}, "class numbers of y must be whole but row 7 is 0.7"),
        (X, np.where(np.arange(200) == 7, np.nan, LABELS), {}, "class numbers of y must be whole but row 7 is nan"),
        (X, np.stack((LABELS, LABELS), 1), {}, "class numbers of y must have shape (samples,), one for each sample"),
        (X, VALUES * np.inf, {"kind": "regression"}, "targets of y must be finite but row 0 has inf"),
        (X, VALUES > 50, {"kind": "regression"}, "regression targets of y must be numbers but are true and false"),
        (X, LABELS, {"seed": 0.5}, "seed must be a whole number but got 0.5"),
        (X, LABELS, {"seed": True}, "seed must be a whole number but got True"),
        (X * 1j, LABELS, {}, "x must hold real numbers but got complex128"),
        (X, VALUES * 1j, {"kind": "regression"}, "y must hold real numbers but got complex128"),
        (X, LABELS.astype(complex), {}, "y must hold numbers or texts as labels but got complex128"),
        (np.ma.masked_equal(X, X[4, 2]), LABELS, {}, "x must have no masked values but row 4 has one"),
        (
            X,
            np.ma.masked_equal(VALUES, VALUES[9]),
            {"kind": "regression"},
            "y must have no masked values but row 9 has one",
        ),
        ([[1.0], [1.0, 2.0]], [0, 1], {}, "x must have rows of one shape but they differ"),
        (X[:, :0], LABELS, {}, "x must have a row for each sample and at least one feature but got shape (200, 0)"),
        (
            X,
            LABELS,
            {"kind": "ranking"},
            "kind must be one of classification, regression, multilabel but got 'ranking'",
        ),
        (
            X,
            np.stack((LABELS * 0, LABELS * 0 + 2), 1),
            {"kind": "multilabel"},
            "multilabel targets of y must be zeros and ones but row 0 has 2.0",
        ),
        (X, LABELS, {"test": 0.9}, "every part of the data needs a row"),
        (X, LABELS, {"metric": "mse"}, "metric must be one of error_rate, balanced_error, nll, log_loss, brier"),
        (X.astype(str), LABELS, {}, "x must hold real numbers but got"),
        (X, LABELS, {"test": 0.0}, "the test split must have at least one sample but is empty"),
        (
            X,
            LABELS,
            {"test": 0.0, "validation": 0.0},
            "the validation split must have at least one sample but is empty",
        ),
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
    with pytest.raises(InputError, match="item 0 of the training dataset must be a pair of input and target"):
        Task.from_datasets(TensorDataset(torch.randn(9, 4)), good, good, model=net)
    with pytest.raises(InputError, match="class numbers of the test split must lie between 0 and 2 but one is 5"):
        Task.from_datasets(good, good, TensorDataset(torch.randn(9, 4), torch.arange(9) % 2 * 5), model=net)
    with pytest.raises(InputError, match=r"class numbers of the validation dataset must be whole but row 2 is 0\.7"):
        Task.from_datasets(good, TensorDataset(torch.randn(3, 4), torch.tensor([0.0, 1.0, 0.7])), good, model=net)
    broken = torch.randn(9, 4)
    broken[4, 1] = torch.nan
    with pytest.raises(InputError, match="the inputs of the validation dataset must be finite but row 4 has nan"):
        Task.from_datasets(good, TensorDataset(broken, torch.arange(9) % 3), good, model=net)
    pairs = [TensorDataset(torch.randn(9, 4), torch.randn(9, count)) for count in (2, 2, 1)]
    with pytest.raises(InputError, match="the test split must have 2 targets per sample but has 1"):
        Task.from_datasets(*pairs, model=net, kind="regression")


def hand_built(kind="regression", outputs=1, metric=None, **changes):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(30, 4, generator=rng)
    y = x.sum(1) if kind == "regression" else (x[:, :outputs].argmax(1))
    parts = {name: Part(x, y) for name in ("train", "validation", "test")} | changes
    metric = chosen_metric(None, kind) if metric is None else metric
    return Task(kind=kind, model=lambda: torch.nn.Linear(4, outputs), metric=metric, outputs=outputs, **parts)


def test_a_vector_of_regression_targets_becomes_a_column():
    task = hand_built()
    assert task.train.targets.shape == task.validation.targets.shape == task.test.targets.shape == (30, 1)
    # A model that knows the answer has no error; (n, 1) − (n,) would be the error of every pair.
    score = evomal.train(task, "mse", steps=300, seed=0)
    assert score.test < 1e-3
    with torch.no_grad():
        model = torch.nn.Linear(4, 1)
        model.weight.fill_(1.0)
        model.bias.fill_(0.0)
        assert task.metric(model(task.test.inputs), task.test.targets) == pytest.approx(0, abs=1e-12)


def test_whole_labels_may_be_floats_and_columns():
    task = hand_built("classification", 3)
    labels = task.train.targets
    other = hand_built("classification", 3, train=Part(task.train.inputs, labels.double()[:, None]))
    assert torch.equal(other.train.targets, labels)
    assert other.train.targets.dtype == torch.int64
    whole = Task.from_arrays(X, LABELS.astype(np.float32), model=net)
    assert torch.equal(whole.train.targets, Task.from_arrays(X, LABELS, model=net).train.targets)
    assert Task.from_arrays(X > 3, LABELS > 0, model=net).train.inputs.unique().tolist() == [0.0, 1.0]


WITH_NAN = torch.ones(30, 4).index_put((torch.tensor(5), torch.tensor(1)), torch.tensor(torch.nan))


@pytest.mark.parametrize(
    ("kind", "outputs", "changes", "sentence"),
    [
        (
            "regression",
            1,
            {"test": Part(torch.ones(3, 4), torch.ones(3, 2))},
            "the test split must have 1 target per sample",
        ),
        (
            "regression",
            1,
            {"test": Part(torch.ones(3, 4), torch.ones(2))},
            "the test split must have a target for each",
        ),
        (
            "regression",
            1,
            {"test": Part(torch.ones(0, 4), torch.ones(0))},
            "the test split must have at least one sample",
        ),
        (
            "regression",
            1,
            {"validation": Part(torch.ones(30, 4), WITH_NAN[:, 1])},
            "targets of the validation split must be finite but row 5 has nan",
        ),
        (
            "regression",
            1,
            {"test": Part(WITH_NAN, torch.ones(30))},
            "the inputs of the test split must be finite but row 5 has nan",
        ),
        (
            "regression",
            1,
            {"test": Part(torch.ones(2, 4, dtype=torch.complex64), torch.ones(2))},
            "the test split must hold real numbers but got complex64",
        ),
        (
            "regression",
            1,
            {"test": Part(torch.ones(2, 4), torch.ones(2, 1, 1))},
            "all splits must have targets of one shape for a sample, such as (1,), but the test split has (1, 1)",
        ),
        (
            "classification",
            3,
            {"validation": Part(torch.ones(2, 4), torch.tensor([0, 3]))},
            "class numbers of the validation split must lie between 0 and 2 but one is 3",
        ),
        (
            "classification",
            3,
            {"validation": Part(torch.ones(2, 4), torch.tensor([0, -1]))},
            "class numbers of the validation split must lie between 0 and 2 but one is -1",
        ),
        (
            "classification",
            3,
            {"validation": Part(torch.ones(2, 4), torch.tensor([0, 0.7]))},
            "class numbers of the validation split must be whole but row 1 is 0.7",
        ),
        (
            "classification",
            3,
            {"train": Part(torch.ones(2, 4), torch.tensor([1, 1]))},
            "the train split must hold at least two classes but all 2 labels are 1",
        ),
        (
            "classification",
            3,
            {"train": Part(np.ma.masked_equal(np.ones((2, 4)), 1.0), torch.tensor([1, 0]))},
            "the train split must have no masked values but row 0 has one",
        ),
        (
            "classification",
            3,
            {"test": Part(torch.ones(2, 4), torch.tensor([0, 1])), "metric": chosen_metric("auroc", "classification")},
            "the metric auroc needs every class in the test split, but class 2 has no sample there",
        ),
    ],
)
def test_hand_built_tasks_keep_the_same_rules(kind, outputs, changes, sentence):
    with pytest.raises(InputError) as caught:
        hand_built(kind, outputs, **changes)
    assert sentence in str(caught.value)


def test_a_metric_by_its_name_will_do():
    assert hand_built(metric="r2").metric.higher_is_better
    assert hand_built().judged_by("mae").metric.name == "mae"


def test_a_recipe_comes_with_arrays_or_datasets():
    recipe = Recipe(steps=200, lr=0.1, batch_size=8, milestones=(100,))
    x, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 2
    part = TensorDataset(torch.randn(8, 3), torch.arange(8) % 2)
    options = {"model": lambda: torch.nn.Linear(3, 2), "recipe": recipe}
    tasks = Task.from_arrays(x, y, **options), Task.from_datasets(part, part, part, **options)
    assert [task.recipe for task in tasks] == [recipe, recipe]
    with pytest.raises(InputError, match=r"^recipe must be an evomal\.Recipe but got a dict$"):
        Task.from_arrays(x, y, model=options["model"], recipe={"lr": 0.1})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"steps": 0}, "steps must be at least 1 but got 0"),
        ({"batch_size": float("nan")}, "batch_size must be a whole number but got nan"),
        ({"momentum": -1}, "momentum must be a finite number of at least 0 but got -1"),
        ({"lr": 0}, "lr must be a finite number of more than 0 but got 0"),
        ({"lr": "fast"}, "lr must be a number but got 'fast'"),
        ({"milestones": (0,)}, "milestones must be at least 1 but got 0"),
    ],
)
def test_bad_recipes(values, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        Recipe(**values)
