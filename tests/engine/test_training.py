"""Training: the usual loop as oracle, reproducible, honest about diverged, and silent on global state."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from evomal.engine import train
from evomal.engine.resolve import initial_model
from evomal.errors import InputError
from evomal.losses import AbsoluteErrorLoss, ExpressionLoss, save_loss
from evomal.tasks.parts import Batches
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from tests.engine.populations import with_recipe


def net():
    return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))


def classifier():
    return torch.nn.Linear(4, 3)


def regression(model=net):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    return Task.from_arrays(x, x @ [1.0, -2.0, 0.5, 0.0] + 0.1 * rng.normal(size=300), model=model, kind="regression")


def classification():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    return Task.from_arrays(x, x[:, :3].argmax(1), model=classifier)


def test_it_learns():
    score = train(regression(), "mse", steps=300, device="cpu")
    assert score.test < 0.2
    assert score.outcome == "trained"
    assert set(score.metrics) == {"mse", "mae", "r2"}
    assert score.metrics["mse"] == score.test
    assert [point.step for point in score.curve] == list(range(15, 301, 15))
    assert score.curve[-1].validation == score.validation < score.curve[0].validation


def test_it_equals_the_usual_loop():
    task = regression(model=lambda: torch.nn.Linear(4, 1))
    score = train(task, "mse", seed=3, steps=120, lr=0.05, milestones=(40, 80), batch_size=32, device="cpu")
    model = initial_model(task, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    batches = Batches(len(task.train), 32, seed=3, purpose="training")
    for step in range(120):
        optimizer.param_groups[0]["lr"] = 0.05 * 0.1 ** ((step >= 40) + (step >= 80))
        rows = batches[step]
        optimizer.zero_grad()
        F.mse_loss(model(task.train.inputs[rows]), task.train.targets[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        expected = F.mse_loss(model(task.test.inputs), task.test.targets).item()
    assert score.test == pytest.approx(expected, rel=1e-6)


def test_a_shorter_training_has_its_milestones_at_the_same_fractions():
    long = Recipe(lr=0.05, batch_size=32, steps=150, milestones=(100, 135))
    task = with_recipe(regression(model=lambda: torch.nn.Linear(4, 1)), long)
    shortened = train(task, "mse", steps=60, device="cpu")
    assert shortened.milestones == (40, 54)
    assert shortened == train(task, "mse", steps=60, milestones=(40, 54), device="cpu")
    constant = train(task, "mse", steps=60, milestones=(), device="cpu")
    assert constant.milestones == ()
    assert constant.test != shortened.test
    assert train(task, "mse", device="cpu").milestones == (100, 135)
    assert long.for_steps(10).milestones == (7, 9)
    assert long.for_steps(1).milestones == (1, 1)
    assert long.for_steps(None) == long
    with pytest.raises(InputError, match=r"^milestones must be at least 1 but got 0$"):
        train(task, "mse", steps=5, milestones=(0,), device="cpu")


def test_steps_are_reported_as_they_are_done():
    reported = []
    train(regression(), "mse", steps=25, device="cpu", report=reported.append)
    assert reported == [10, 10, 5]
    reported.clear()
    assert train(regression(), "mse", steps=225, lr=1e6, device="cpu", report=reported.append).diverged
    assert sum(reported) == 225


def test_a_score_is_printed_in_a_line():
    score = train(regression(), "mse", steps=20, device="cpu")
    assert repr(score) == f"Score(test={score.test:.4g}, validation={score.validation:.4g}, seed=0, steps=20)"
    diverged = train(regression(), "mse", steps=100, lr=1e6, device="cpu")
    assert repr(diverged) == "Score(the training loss was not finite by step 50, seed=0, steps=50)"


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_optimizers_by_name(optimizer):
    assert train(classification(), "ce", steps=300, optimizer=optimizer, device="cpu").test < 0.3


def test_losses_by_name_module_and_file(tmp_path):
    task = regression()
    by_name = train(task, "mae", steps=30, device="cpu")
    save_loss(AbsoluteErrorLoss(), tmp_path / "loss.json")
    assert train(task, tmp_path / "loss.json", steps=30, device="cpu") == by_name
    assert train(task, AbsoluteErrorLoss(), steps=30, device="cpu") == by_name
    assert train(task, torch.nn.L1Loss(), steps=30, device="cpu").test == pytest.approx(by_name.test, rel=1e-5)
    assert train(
        task, ExpressionLoss("abs(sub(y, f))", kind="regression"), steps=30, device="cpu"
    ).test == pytest.approx(by_name.test, rel=1e-4)


def test_same_seed_same_result_and_global_states_untouched():
    task = regression()
    random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    first, again, other = (train(task, "mse", seed=seed, steps=60, device="cpu") for seed in (0, 0, 1))
    assert first == again
    assert first.test != other.test
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


def test_same_result_in_another_process():
    code = """from tests.engine.test_training import regression, train
print(train(regression(), 'mse', steps=60, device='cpu').test)"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(printed) == train(regression(), "mse", steps=60, device="cpu").test


def test_every_loss_starts_from_the_same_weights():
    task = regression()
    first, again = (list(initial_model(task, 7).parameters()) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], next(initial_model(task, 8).parameters()))


def test_divergence_is_an_outcome_with_a_sentence():
    score = train(
        regression(), ExpressionLoss("square(square(sub(y, f)))", kind="regression"), steps=200, lr=10, device="cpu"
    )
    assert score.diverged
    assert score.test == score.validation == float("inf")
    assert score.sentence.startswith("the training loss was ")
    assert score.steps < 200


@pytest.mark.parametrize(
    ("loss", "options", "sentence"),
    [
        ("mes", {}, "loss must be a name (ce, "),
        (None, {}, "a loss must be a module, a name or a loss file but got NoneType"),
        (torch.square, {}, "a loss must be a module, a name or a loss file but got builtin_function_or_method"),
        ("mse", {"steps": 0}, "steps must be at least 1 but got 0"),
        ("mse", {"lr": 0.0}, "lr must be a finite number of more than 0 but got 0.0"),
        (
            "mse",
            {"optimizer": "lion"},
            "there is no optimizer named 'lion': known names are sgd, adam, adamw",
        ),
        ("mse", {"device": "tpu!"}, "device must be auto, cpu, cuda"),
        ("ce", {}, "the task is regression, but ce is for classification, multilabel"),
        (ExpressionLoss("mul(y, f)"), {}, "the task is regression, but the loss is for classification"),
    ],
)
def test_bad_input(loss, options, sentence):
    with pytest.raises(InputError) as caught:
        train(regression(), loss, **{"device": "cpu", **options})
    assert sentence in str(caught.value)


def test_a_factory_that_makes_no_module():
    with pytest.raises(InputError, match=r"a task's model must make an nn\.Module but made an int"):
        train(regression(model=lambda: 3), "mse", device="cpu")


def test_a_score_has_the_trained_model_on_request():
    task = regression()
    score, without = (train(task, "mse", seed=4, steps=40, device="cpu", keep_model=keep) for keep in (True, False))
    assert score == without
    assert score.to_dict() == without.to_dict()
    assert "model" not in score.to_dict()
    assert without.model is None
    with torch.no_grad():
        outputs = score.model(task.test.inputs)
    assert F.mse_loss(outputs, task.test.targets).item() == pytest.approx(score.test, rel=1e-5)
    first, second = train([task, task], "mse", steps=2, device="cpu", keep_model=True)
    assert first.model is not second.model
    diverged = train(task, "mse", steps=60, lr=1e6, device="cpu", keep_model=True)
    assert diverged.diverged
    assert diverged.model is None
