"""The paper's tasks on real data: sizes, normalisation, disjoint splits."""

import os

import pytest
import torch

from evomal.errors import InputError
from evomal.tasks import TASKS, Hardships, load_task, task_from_file

DATA = os.environ.get("EVOMAL_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="EVOMAL_DATA names no folder with the datasets")


def test_diabetes_ships_with_scikit_learn():
    task = load_task("diabetes", model="mlp:hidden=8")
    assert task.record["rows"] == {"train": 266, "validation": 88, "test": 88}
    assert task.record["equal_rows_across_splits"] == 0
    assert (task.kind, task.outputs, task.recipe.steps) == ("regression", 1, 10_000)
    assert task.model()(task.train.inputs[:3]).shape == (3, 1)
    other = load_task("diabetes", model="mlp:hidden=8", seed=1)
    assert not torch.equal(task.train.inputs, other.train.inputs)


@needs_data
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("boston", (304, 101, 101)), ("california", (12384, 4128, 4128)), ("mnist", (54000, 6000, 10000))],
)
def test_sizes_of_real_data(name, sizes):
    task = load_task(name, model="mlp:hidden=8")
    assert tuple(map(len, (task.train, task.validation, task.test))) == sizes
    if name == "mnist":
        assert task.train.inputs.mean().abs() < 0.01
        assert task.train.inputs.std() == pytest.approx(1, abs=0.01)
        counts = task.validation.targets.bincount()
        expected = (task.train.targets.bincount() + counts) / 10
        assert (counts - expected).abs().max() <= 1  # stratified
        assert task.recipe.momentum == 0


@needs_data
def test_cifar10_and_its_hardships():
    hard = Hardships(label_noise=0.4, fraction=0.1)
    task = load_task("cifar10", model="logistic", hardships=hard)
    assert (len(task.train), len(task.validation), len(task.test)) == (4500, 5000, 10000)
    assert task.test.targets.bincount().tolist() == [1000] * 10
    assert task.augmentation.flip
    assert task.recipe.milestones == (100_000, 135_000)


def test_the_default_model_is_small_and_the_papers_is_named():
    small = load_task("diabetes")
    assert small.record["model"] == "mlp:hidden=64"
    assert sum(parameter.numel() for parameter in small.model().parameters()) == 4929
    paper = load_task("diabetes", "paper")
    assert paper.record["model"] == "mlp"
    assert sum(parameter.numel() for parameter in paper.model().parameters()) == 1_013_001
    assert {name: (task.default, task.models[0]) for name, task in TASKS.items()} == {
        "diabetes": ("mlp:hidden=64", "mlp"), "boston": ("mlp:hidden=64", "mlp"),
        "california": ("mlp:hidden=64", "mlp"), "mnist": ("mlp:hidden=64", "lenet5"),
        "cifar10": ("allcnnc", "allcnnc"), "cifar100": ("wrn28-10", "wrn28-10"), "svhn": ("wrn28-10", "wrn28-10"),
    }  # fmt: skip


def test_digits_are_never_mirrored():
    assert (TASKS["svhn"].padding, TASKS["svhn"].flip) == (4, False)
    assert (TASKS["mnist"].padding, TASKS["mnist"].flip) == (0, False)


@pytest.mark.parametrize(
    ("name", "model", "sentence"),
    [
        ("diabtes", None, "there is no task named 'diabtes': did you mean 'diabetes'?"),
        ("diabetes", "mpl", "there is no model named 'mpl': did you mean 'mlp'?"),
        ("diabetes", "lenet5", "lenet5"),
    ],
)
def test_bad_names(name, model, sentence):
    with pytest.raises(InputError) as caught:
        load_task(name, model)
    assert sentence in str(caught.value)


def test_hardships_are_checked_before_files_are_read(tmp_path):
    with pytest.raises(InputError, match=r"^hardships must be an evomal\.Hardships but got a dict$"):
        load_task("mnist", data=tmp_path, hardships={"label_noise": 0.3})


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match="evomal data fetch mnist"):
        load_task("mnist", "logistic", data=tmp_path)


def test_tasks_from_a_user_s_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from evomal.tasks import load_task\n"
        "def task(): return load_task('diabetes', 'mlp:hidden=4')\n"
        "def other(): return 3\n"
    )
    assert task_from_file(f"{path}:task").name == "diabetes"
    for function, sentence in (("other", "must return a Task but returned an int"), ("none", "has no function 'none'")):
        with pytest.raises(InputError, match=sentence):
            task_from_file(f"{path}:{function}")
    with pytest.raises(InputError, match="there is no file"):
        task_from_file(f"{tmp_path}/none.py:task")
