"""The kinds of `evomal analyse` that train models, as a person meets them."""

import csv
import json

import pytest

import evomal
from evomal.losses import save_loss
from evomal.verdict.comparison import RateCurve
from evomal.verdict.folder import write_result
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.verdict.results import comparison, entry

TASK = """
import numpy as np
import torch
import evomal

def regression(lr=0.05):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 4))
    task = evomal.Task.from_arrays(x, x[:, 0] - x[:, 1], model=lambda: torch.nn.Linear(4, 1), kind="regression")
    object.__setattr__(task, "recipe", evomal.Recipe(lr=lr, batch_size=32))
    return task

def diverging():
    return regression(1e6)

def classification():
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1, 2], 40)
    x = 9.0 * np.eye(4)[classes] + rng.normal(size=(120, 4))
    net = lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    return evomal.Task.from_arrays(x, classes, model=net)
"""
FAST = ["--steps", "20", "--device", "cpu"]


@pytest.fixture
def tasks(tmp_path):
    path = tmp_path / "tasks_of_this_test.py"
    path.write_text(TASK)
    return path


def written(folder, name):
    return [f"wrote {folder / name}.{suffix}" for suffix in ("svg", "pdf", "png", "csv")]


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_landscape_says_how_high_it_is(run, tasks, tmp_path):  # noqa: F811
    arguments = ["analyse", "landscape", f"{tasks}:regression", *FAST, "--seeds", "2", "--points", "5"]
    code, out, err = run(*arguments, "--losses", "mse,mae", "--out", tmp_path / "f")
    assert code == 0
    lines = out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("wrote")) <= 80
    assert lines[0] == "squared error after 20 steps on own, 60 training rows"
    assert [line.split(":")[0] for line in lines[1:3]] == ["mse", "mae"]
    assert lines[1].endswith(" at a distance of 1 (2 seeds)")
    assert lines[3] == "biases, and the parameters and statistics of normalisation, do not move"
    assert lines[4:] == written(tmp_path / "f", "landscape")
    assert err.splitlines() == ["training with mse, 2 seeds", "training with mae, 2 seeds"]
    rows = rows_of(tmp_path / "f" / "landscape.csv")
    assert len(rows) == 2 * 2 * 5
    centres = [float(row["height"]) for row in rows if row["loss"] == "mse" and float(row["position"]) == 0]
    assert f"mse: {sum(centres) / 2:.4g} at the weights" in lines[1]


def test_a_landscape_in_two_directions_and_as_json(run, tasks, tmp_path):  # noqa: F811
    arguments = ["analyse", "landscape", f"{tasks}:regression", *FAST, "--seeds", "1", "--points", "3", "--two-d"]
    code, out, _ = run(*arguments, "--losses", "mae", "--of", "training", "--json", "--out", tmp_path)
    assert code == 0
    found = json.loads(out)
    assert found["kind"] == "landscape-2d"
    assert set(found["data"]) == {"loss", "seed", "position", "second_position", "height"}
    assert len(found["data"]["height"]) == 9
    assert found["files"][0] == str(tmp_path / "landscape-2d.svg")


def test_training_curves_end_in_a_test_value_for_each_loss(run, tasks, tmp_path):  # noqa: F811
    mine = tmp_path / "mine.json"
    save_loss(evomal.ExpressionLoss("abs(sub(f, y))", kind="regression"), mine)
    arguments = ["analyse", "training", f"{tasks}:regression", *FAST, "--seeds", "2", "--points", "4"]
    code, out, _ = run(*arguments, "--losses", f"mse, huber,mae,{mine}", "--out", tmp_path)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "test mse after 20 steps on own"
    assert [line.split(":")[0] for line in lines[1:5]] == ["mse", "huber", "mae", "mine"]
    assert lines[5:] == written(tmp_path, "training")
    rows = rows_of(tmp_path / "training.csv")
    assert len(rows) == 4 * 2 * 4
    tests = [float(row["test"]) for row in rows if row["loss"] == "mse" and row["step"] == "20"]
    assert lines[1].startswith(f"mse: {sum(tests) / 2:.4g} ± ")
    assert lines[1].endswith(" over 2 seeds")
    _, out, _ = run(*arguments, "--losses", "mse", "--milestone", "10", "--milestone", "15", "--out", tmp_path)
    assert out.startswith("test mse after 20 steps (learning rate divided by ten at 10 and 15) on own\n")


def test_a_diverged_training_is_a_sentence_and_no_failure(run, tasks, tmp_path):  # noqa: F811
    for kind in ("landscape", "training"):
        code, out, _ = run(
            "analyse", kind, f"{tasks}:diverging", *FAST, "--losses", "mse", "--seeds", "1", "--out", tmp_path
        )
        assert code == 0
        assert "mse, seed 1000: the training loss was not finite by step 20" in out.splitlines()
        assert (tmp_path / f"{kind}.svg").exists()
    assert "mse: diverged over 0 seeds, 1 of 1 diverged" in out.splitlines()


def test_a_representation_says_how_classes_lie(run, tasks, tmp_path):  # noqa: F811
    arguments = ["analyse", "representation", f"{tasks}:classification", "--steps", "60", "--device", "cpu"]
    code, out, err = run(*arguments, "--losses", "ce", "--samples", "20", "--out", tmp_path)
    assert code == 0
    lines = out.splitlines()
    assert lines == [
        "20 test rows of own after 60 steps, seed 1000",
        "ce: test error_rate 0.00 %; 100.0% of rows have their nearest row in their own",
        "  class (8 inputs of 2)",
        *written(tmp_path, "representation"),
    ]
    assert err.splitlines() == ["training with ce, 1 seed", "laying out 20 rows by t-SNE"]
    assert set(rows_of(tmp_path / "representation.csv")[0]) == {"loss", "row", "class", "x", "y"}


def test_rates_are_drawn_alike_from_a_record_and_from_trainings_now(run, tasks, tmp_path):  # noqa: F811
    task, rates = f"{tasks}:regression", "0.01,0.1,1e6"
    common = [task, "--rates", rates, "--losses", "mae", "--seeds", "2", "--device", "cpu"]
    code, _, _ = run("compare", *common, "--set", "final_steps=20", "--out", tmp_path / "record")
    assert code == 0
    code, recorded, _ = run("analyse", "learning-rate", tmp_path / "record", "--out", tmp_path / "one")
    assert code == 0
    code, now, _ = run("analyse", "learning-rate", *common, "--steps", "20", "--out", tmp_path / "two")
    assert code == 0
    assert [line for line in recorded.splitlines() if "wrote" not in line] == [
        line for line in now.splitlines() if "wrote" not in line
    ]
    for suffix in ("csv", "svg"):
        contents = [(tmp_path / place / f"learning-rate.{suffix}").read_bytes() for place in ("one", "two")]
        assert contents[0] == contents[1]
    lines = now.splitlines()
    assert lines[0] == "test mse after 20 steps on own, 2 seeds at each rate"
    assert lines[1].startswith("mse: best at 0.1, ")
    assert "mse at 1e+06: 2 of 2 trainings diverged" in lines


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["landscape", "{task}:regression", "--points", "4"],
            "points must be odd, so that the trained weights are one",
        ),
        (["landscape", "{task}:regression", "--of", "x"], "of must be one of task, training but got 'x'"),
        (["landscape", "{task}:none"], "{task}:none: {task} has no function 'none'"),
        (["training", "{task}:regression", "--losses", ","], "--losses must name at least one loss but got ','"),
        (["training", "{task}:regression", "--losses", "mze"], "loss must be a name (ce, "),
        (["training", "{task}:regression", "--losses", "mse,mse"], "losses must be different but mse is given twice"),
        (["training", "{task}:regression", "--steps", "0"], "steps must be at least 1 but got 0"),
        (["training", "nonsense"], "there is no task named 'nonsense': known names are diabetes, "),
        (["training", "mine.py"], "mine.py must be followed by the function that makes the task, as in mine.py:make"),
        (["representation", "{task}:regression", "--samples", "3"], "samples must be at least 10 but got 3"),
        (["learning-rate", "{folder}/none"], "{folder}/none: there is no such folder; to train on a task now, give"),
        (["learning-rate", "{folder}"], "{folder}: is not a folder of evomal compare --rates: there is no learning-"),
        (["learning-rate", "{task}"], "{task}: is not a folder of evomal compare --rates"),
        (
            ["learning-rate", "{folder}", "--losses", "mae"],
            "--losses must be given with --rates, which trains now, but there is no --rates",
        ),
        (
            ["learning-rate", "{folder}", "--device", "auto", "--seeds", "5", "--milestone", "3"],
            "--seeds, --milestone, --device must be given with --rates, which trains now",
        ),
        (["learning-rate", "{task}:regression", "--rates", "a"], "rates must be comma-separated numbers but got 'a'"),
        (["learning-rate", "{task}:regression", "--rates", "1,1"], "rates must be different but got [1.0, 1.0]"),
    ],
)
def test_bad_requests_get_one_sentence_and_write_nothing(run, tasks, tmp_path, arguments, sentence):  # noqa: F811
    names = {"task": tasks, "folder": tmp_path}
    code, out, err = run("analyse", *(one.format(**names) for one in arguments), "--out", tmp_path / "figures")
    assert (code, out) == (2, "")
    assert err.startswith(f"evomal: {sentence.format(**names)}")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "figures").exists()


def test_a_stranger_s_record_does_nothing_to_the_terminal(run, tmp_path):  # noqa: F811
    name = "\x1b[2J$\\frac{"
    content = comparison(entry(name, "plain", 0.1, [0.5]), task=name, metric=name, baseline=name)
    write_result(RateCurve({0.1: content}, search_each=False), tmp_path)
    code, out, err = run("analyse", "learning-rate", tmp_path, "--out", tmp_path / "figures")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert out.splitlines()[1] == r"\x1b[2J$\frac{: best at 0.1, 0.5"
