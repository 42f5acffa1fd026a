"""Values at the edge: seeds, counts, milestones, names of tasks and files; refused at once or handled."""

import json
import os

import pytest

from evomal.runs.reading import load_run
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.protocols import OPTIONS

LARGE = str(10**12)
SMALL = [
    "--device", "cpu", "--set", "population=4", "--set", "generations=1", "--set", "meta_steps=1",
    "--set", "training_steps=5", "--set", "filter_steps=5", "--set", "final_steps=5", *OPTIONS,
]  # fmt: skip
TRAIN = ["train", "diabetes", "--model", "mlp:hidden=4", "--loss", "mse", "--device", "cpu"]
COMPARE = ["compare", "diabetes", "--model", "mlp:hidden=4", "--losses", "mae"]
LANDSCAPE = ["analyse", "landscape", "diabetes", "--model", "mlp:hidden=4"]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["search", "diabetes", "--seed", "-1"], "greater than or equal to 0"),
        (["search", "diabetes", "--seed", str(2**63)], "less than or equal to 9223372036854775807"),
        ([*TRAIN, "--seeds", LARGE], "less than or equal to 10000"),
        ([*TRAIN, "--steps", LARGE], f"steps must be at most 1000000000 but got {LARGE}"),
        ([*TRAIN, "--batch-size", LARGE], f"batch_size must be at most 1000000000 but got {LARGE}"),
        ([*TRAIN, "--milestone", "-1"], "milestones must be at least 1 but got -1"),
        ([*COMPARE, "--seeds", LARGE], "less than or equal to 10000"),
        ([*COMPARE, "--search-seeds", LARGE], f"search_seeds must be at most 10000 but got {LARGE}"),
        ([*COMPARE, "--tune-lr", LARGE], f"tune_lr must be at most 10000 but got {LARGE}"),
        ([*COMPARE, "--set", "milestones=-1"], "milestones must be at least 1 but got -1"),
        (["analyse", "behaviour", "ce", "--classes", LARGE], f"classes must be at most 1000000000 but got {LARGE}"),
        (["runs", "\ud800"], "an argument cannot be encoded: '\\ud800'"),
        ([*LANDSCAPE, "--points", LARGE], f"points must be at most 1001 but got {LARGE}"),
        ([*LANDSCAPE, "--seeds", LARGE], "less than or equal to 10000"),
        (["analyse", "training", *LANDSCAPE[2:], "--points", LARGE], f"must be at most 10001 but got {LARGE}"),
        (["analyse", "representation", *LANDSCAPE[2:], "--samples", LARGE], f"must be at most 100000 but got {LARGE}"),
        (["analyse", "smoothing-cost", "--threads", LARGE], f"threads must be at most 1024 but got {LARGE}"),
        (["analyse", "smoothing-cost", "--rounds", LARGE], f"rounds must be at most 10000 but got {LARGE}"),
        (["search", "diabetes", "--set", f"population={LARGE}"], f"population must be at most 100000 but got {LARGE}"),
        (["search", "diabetes", "--set", f"threads={LARGE}"], f"threads must be at most 1024 but got {LARGE}"),
    ],
)
def test_what_is_too_much_is_refused_at_once(run, tmp_path, monkeypatch, arguments, rule):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert rule in err.splitlines()[-1]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../escaped", "escaped-random-0"),
        ("/etc/passwd", "etc_passwd-random-0"),
        ("a\nb\x1b[2J", "a_b_2J-random-0"),
        ("x" * 300, "x" * 111 + "-random-0"),
        ("\udcff", "-random-0"),
    ],
)
def test_the_default_folder_is_one_folder_of_runs(run, tmp_path, monkeypatch, name, folder):  # noqa: F811
    (tmp_path / "own.py").write_text(
        "import evomal, numpy, torch\n"
        "def task():\n"
        "    x = numpy.random.default_rng(0).normal(size=(60, 3))\n"
        "    make = lambda: torch.nn.Linear(3, 1)\n"
        f"    return evomal.Task.from_arrays(x, x[:, 0], kind='regression', model=make, name={name!r})\n"
    )
    monkeypatch.chdir(tmp_path)
    code, _, err = run("search", "own.py:task", "--method", "random", *SMALL)
    assert code == 0, err
    assert os.listdir(tmp_path / "runs") == [folder]
    assert load_run(tmp_path / "runs" / folder).settings["task"]["0"]["name"] == name


def test_names_of_files_that_are_not_utf8(run, tmp_path, monkeypatch):  # noqa: F811
    """They are used, printed and recorded, at the latest before anything is trained."""
    home = tmp_path / os.fsdecode(b"home \xff")
    home.mkdir()
    monkeypatch.chdir(home)
    out = os.fsdecode(b"run \xff")
    assert run("search", "diabetes", "--model", "mlp:hidden=4", *SMALL, "--out", out)[0] == 0
    loss, compared = os.path.join(out, "best.json"), os.fsdecode(b"compared \xfe")
    assert run("train", *TRAIN[1:4], "--loss", loss, "--seeds", "1", "--steps", "5", "--device", "cpu")[0] == 0
    arguments = ["--losses", loss, "--seeds", "1", "--device", "cpu", "--set", "final_steps=5", "--out", compared]
    assert run(*COMPARE[:4], *arguments)[0] == 0
    assert json.loads((home / compared / "comparison.json").read_text())["command"]["folder"]
    assert run("report", out)[0] == 0
    assert run("report", compared)[0] in (0, 2)
    code, _, err = run("search", "diabetes", *SMALL, "--seed-with", loss)
    assert code == 2
    assert "seed_with must be" in err


@pytest.mark.parametrize(
    ("words", "name"),
    [(["--out", ""], "--out"), (["--out="], "--out"), ([""], "an argument"), (["--losses", ""], "--losses")],
)
def test_an_empty_argument(run, tmp_path, monkeypatch, words, name):  # noqa: F811
    """As a path it would be the current folder."""
    monkeypatch.chdir(tmp_path)
    code, _, err = run("compare", "diabetes", *words)
    assert (code, err) == (2, f"evomal: {name} is empty: is a variable not set?\n")
    assert not list(tmp_path.iterdir())


def test_lists_without_a_loss_and_a_seed_of_another_kind(run, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    code, _, err = run("compare", "diabetes", "--losses", ",,")
    assert (code, err) == (2, "evomal: --losses must name at least one loss but got ',,'\n")
    code, _, err = run("search", "diabetes", *SMALL, "--seed-with", "ce")
    assert (code, err) == (2, "evomal: ce: the task is regression, but the loss is for classification\n")
    assert not list(tmp_path.iterdir())


def test_a_name_that_no_folder_can_have(run, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    code, _, err = run("search", "diabetes", "--model", "mlp:hidden=4", *SMALL, "--out", "x" * 300)
    assert code == 2
    assert "File name too long" in err.splitlines()[-1]


def test_a_current_folder_that_was_removed(run, tmp_path, monkeypatch):  # noqa: F811
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = run("losses")
    assert (code, err) == (2, "evomal: the current folder cannot be read: No such file or directory\n")
    os.chdir(tmp_path)
