"""What a user's own code raises, at any moment of any command, is one sentence with the user's file, line and error."""

import pytest

from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.protocols import OPTIONS

_TASK = """
import sys
import numpy
import torch
import evomal

WHERE = "{where}"


def fail(place):
    if place == WHERE:
        {how}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, inputs):
        fail("model")
        if self.training and len(inputs) > 4:
            fail("training")
        return self.layer(inputs)


def make():
    fail("factory")
    return Net()


def mine(outputs, targets):
    fail("metric")
    return {value}


def task():
    fail("task")
    x = numpy.random.default_rng(0).normal(size=(60, 3))
    metric = evomal.Metric(mine, higher_is_better=False)
    return evomal.Task.from_arrays(x, x[:, 0], kind="regression", model=make, metric=metric, name="own")
"""
_SMALL = [
    "--device", "cpu", "--set", "population=4", "--set", "generations=1", "--set", "meta_steps=1",
    "--set", "training_steps=5", "--set", "filter_steps=5", "--set", "final_steps=5", *OPTIONS,
]  # fmt: skip
_COMMANDS = {
    "train": ["train", "TASK", "--loss", "mse", "--seeds", "1", "--steps", "5", "--device", "cpu"],
    "search": ["search", "TASK", "--out", "OUT", *_SMALL],
    "dry run": ["search", "TASK", "--dry-run", *_SMALL],
    "compare": ["compare", "TASK", "--losses", "mae", "--seeds", "1", *_SMALL],
    "transfer": ["transfer", "--to", "TASK", "--loss", "mae", "--seeds", "1", *_SMALL],
    "analyse": ["analyse", "landscape", "TASK", "--losses", "mse", "--steps", "5", "--out", "OUT"],
}


@pytest.fixture
def refused(run, tmp_path):  # noqa: F811
    """Runs a command on a task that fails somewhere: its exit code, and the one sentence that it prints."""

    def command(name, where="", how="raise KeyError('mine')", value="((outputs - targets) ** 2).mean()", debug=()):
        file = tmp_path / "own_task.py"
        file.write_text(_TASK.format(where=where, how=how, value=value))
        places = {"TASK": f"{file}:task", "OUT": str(tmp_path / "out")}
        code, out, err = run(*[places.get(word, word) for word in _COMMANDS[name]], *debug)
        return code, out, err.replace(str(file), "own_task.py")

    return command


@pytest.mark.parametrize("where", ["task", "factory", "model", "training", "metric"])
@pytest.mark.parametrize("name", _COMMANDS)
def test_an_error_is_one_sentence_with_the_place(refused, name, where):
    code, out, err = refused(name, where)
    last = err.splitlines()[-1]
    assert code in (1, 2)
    assert "Traceback" not in out + err
    assert last.startswith("evomal: ")
    assert "KeyError: 'mine'" in last
    assert "own_task.py, line 12" in last


@pytest.mark.parametrize("where", ["task", "factory", "model", "training", "metric"])
def test_an_exit_is_an_error(refused, where):
    code, _, err = refused("train", where, how="sys.exit(0)")
    assert code in (1, 2)
    assert "SystemExit: 0 (own_task.py, line 12)" in err.splitlines()[-1]


def test_the_traceback_is_shown_with_debug(refused):
    code, _, err = refused("train", "metric", debug=["--debug"])
    sentence, *lines = err.splitlines()
    assert code == 1
    assert sentence == "evomal: the metric mine failed: KeyError: 'mine' (own_task.py, line 12)"
    assert lines[0] == "Traceback (most recent call last):"
    assert any("raise KeyError('mine')" in line for line in lines)


@pytest.mark.parametrize(
    ("value", "said"),
    [("None", "returned None"), ("'0.5'", "returned a str"), ("outputs", "returned a tensor"), ("10 ** 999", "an int")],
)
@pytest.mark.parametrize("name", ["train", "compare", "search", "analyse"])
def test_a_metric_that_is_no_number_is_said(refused, name, value, said):
    code, _, err = refused(name, value=value)
    assert code == 2
    assert "the metric mine (own_task.py, line " in err.splitlines()[-1]
    assert "must return one number but" in err.splitlines()[-1]
    assert said in err.splitlines()[-1]


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "float('nan') if len(outputs) == 12 else 1.0"])
def test_a_metric_without_a_finite_value_is_said(refused, value):
    code, out, _ = refused("train", value=value)
    assert "diverged: the validation mine was " in out
    assert "though the model's outputs are finite: see the metric (" in out
    assert "1 of 1 seed diverged" in out
    assert code == 0


def test_a_metric_without_a_finite_value_on_the_test_split_is_said(refused):
    """The metric is first called for the curve, then for the validation split, then for the test split."""
    value = "float('nan') if mine.__dict__.setdefault('calls', []).append(1) or len(mine.calls) == 7 else 1.0"
    code, out, _ = refused("train", value=value)
    assert "diverged: the test mine was nan though the model's outputs are finite: see the metric (" in out
    assert code == 0
