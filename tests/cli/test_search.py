"""The commands around a search, as a person meets them."""

import json
import os
import re
import shlex

import pytest

from evomal.losses import load_loss
from evomal.methods import METHODS
from evomal.runs import RunStore
from evomal.runs.estimates import Estimate
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.protocols import ONE_TRAINING, OPTIONS

SHORT = [
    "--model", "mlp:hidden=8", "--device", "cpu", "--set", "population=5", "--set", "generations=2", "--set",
    "meta_steps=2", "--set", "training_steps=5", "--set", "filter_steps=10", *OPTIONS,
]  # fmt: skip


def test_a_search_is_recorded_listed_and_not_begun_twice(run, tmp_path):  # noqa: F811
    folder = tmp_path / "my run"
    code, out, err = run("search", "diabetes", "--out", folder, *SHORT)
    assert code == 0
    assert [line.split(":")[0] for line in err.splitlines()] == [
        "rivals", "generation 1 of 2", "generation 2 of 2", "final",
    ]  # fmt: skip
    assert "all 2 generations are done" in out
    assert str(folder) in out
    code, out, _ = run("runs", tmp_path, "--json")
    (found,) = json.loads(out)
    assert (found["state"], found["generations"], found["candidates"]) == ("complete", 2, 10)
    code, out, _ = run("runs", tmp_path)
    assert f"{folder}: complete, 2 generations" in out
    code, _, err = run("search", "diabetes", "--out", folder, *SHORT)
    assert code == 2
    assert f"holds a run: resume it with `evomal resume '{folder}'`, or name another --out" in err
    code, out, err = run("resume", folder, "--set", "generations=3")
    assert (code, [line.split(":")[0] for line in err.splitlines()]) == (0, ["generation 3 of 3", "final"])
    assert "all 3 generations are done" in out
    code, out, err = run("resume", folder)
    assert (code, err, "all 3 generations are done" in out) == (0, "", True)


def test_an_interrupted_search_is_resumed_to_the_same_result(run, tmp_path, monkeypatch):  # noqa: F811
    code, out, _ = run("search", "diabetes", "--out", tmp_path / "whole", *SHORT, "--json")
    whole = json.loads(out)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("evomal.runs.display.generation_line", interrupted)
        code, _, err = run("search", "diabetes", "--out", tmp_path / "parts", *SHORT)
    assert code == 130
    assert f"interrupted; resume with `evomal resume {tmp_path / 'parts'}`" in err
    code, out, _ = run("resume", tmp_path / "parts", "--json")
    assert code == 0
    resumed = json.loads(out)
    assert resumed["best"] == whole["best"]
    assert resumed["recommended"] == whole["recommended"]
    assert [entry["counts"] for entry in resumed["history"]] == [entry["counts"] for entry in whole["history"]]
    if whole["best"]:
        assert str(load_loss(tmp_path / "parts" / "best.json").expression) == whole["best"]["genome"]


def test_a_search_by_a_file_on_a_user_s_task(run, tmp_path):  # noqa: F811
    (tmp_path / "mine.py").write_text(
        "from evomal import load_task\ndef task(): return load_task('diabetes', 'mlp:hidden=4')\n"
    )
    (tmp_path / "short.toml").write_text(
        'preset = "paper"\npopulation = 4\ngenerations = 1\nmeta_steps = 1\ntraining_steps = 2\nfilter_steps = 3\n'
    )
    arguments = [
        "--config",
        tmp_path / "short.toml",
        "--seed-with",
        "mse",
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
    ]
    spec = f"{tmp_path / 'mine.py'}:task"
    code, out, _ = run("search", spec, *arguments)
    assert code == 0
    code, _, err = run("search", spec, *arguments)
    assert code == 2
    (advised,) = re.findall("`evomal (.*)`", err)
    assert shlex.split(advised) == ["resume", str(tmp_path / "run"), "--task", spec]
    code, again, _ = run(*shlex.split(advised))
    assert code == 0
    assert again.splitlines()[:3] == out.splitlines()[:3]


def test_a_loss_file_of_something_else_is_not_replaced(run, tmp_path):  # noqa: F811
    (tmp_path / "best.json").write_text("precious")
    code, _, err = run("search", "diabetes", "--out", tmp_path, *SHORT)
    assert code == 2
    assert err == f"evomal: {tmp_path / 'best.json'}: exists already, but a new run needs a folder without one\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("best.json", "precious")]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_a_folder_where_none_can_be_is_bad_input(run):  # noqa: F811
    code, _, err = run("search", "diabetes", "--out", "/proc/run", *SHORT)
    assert (code, err) == (2, "evomal: /proc/run: cannot be created: No such file or directory\n")


@pytest.mark.usefixtures("rough_estimates")
def test_a_dry_run_says_what_it_would_take_and_writes_nothing(run, tmp_path):  # noqa: F811
    code, out, err = run("search", "diabetes", "--out", tmp_path / "run", *SHORT, "--dry-run")
    assert (code, err) == (0, "")
    labels = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert labels == ["task", "method", "settings", "device", "time", "memory", "folder"]
    assert [line for line in out.splitlines() if len(line) > 80 and "folder" not in line] == []
    assert "evomal, seed 0: 2 generations of 5" in out
    code, out, _ = run("search", "diabetes", "--out", tmp_path / "run", *SHORT, "--dry-run", "--json")
    found = json.loads(out)
    assert found["seconds"] == pytest.approx(sum(found["stages"].values()))
    assert found["settings"]["population"] == found["population"] == 5
    assert list(tmp_path.iterdir()) == []


def test_a_run_under_other_threads_is_refused_unless_forced(run, tmp_path):  # noqa: F811
    folder = tmp_path / "mine"
    assert run("search", "diabetes", "--out", folder, *SHORT, "--set", "max_evaluations=1")[0] == 0
    before = (folder / "run.sqlite").read_bytes()
    code, out, err = run("resume", folder, "--set", "threads=2")
    assert (code, out) == (2, "")
    assert "is the record of another search: threads was 1 but is 2" in err
    assert (folder / "run.sqlite").read_bytes() == before
    code, _, _ = run("resume", folder, "--set", "threads=2", "--force")
    assert code == 0
    assert "the result may then not be reproducible" in " ".join(run("resume", "--help")[1].replace("│", " ").split())


def test_methods_are_listed(run):  # noqa: F811
    code, out, _ = run("methods")
    assert code == 0
    assert all(name in out for name in METHODS)
    assert [row["name"] for row in json.loads(run("methods", "--json")[1])] == list(METHODS)


TINY = [
    "--device", "cpu", "--set", "population=3", "--set", "generations=1", "--set", "meta_steps=1", "--set",
    "training_steps=1", "--set", "filter_steps=1", *OPTIONS,
]  # fmt: skip


def test_the_model_without_a_name_is_small_and_with_the_paper_s_preset_the_paper_s(run, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("evomal.runs.estimates.estimate", lambda *_, **__: Estimate({}, 0, 1, 3, "cpu", ""))
    (tmp_path / "paper.toml").write_text('preset = "paper"\n')
    cases = {
        "bare": ([], "mlp:hidden=64"),
        "preset": (["--preset", "paper"], "mlp"),
        "file": (["--config", tmp_path / "paper.toml"], "mlp"),
        "named": (["--preset", "paper", "--model", "mlp:hidden=4"], "mlp:hidden=4"),
    }
    for name, (options, model) in cases.items():
        code, out, _ = run("search", "diabetes", "--out", tmp_path / name, *options, *TINY, "--dry-run")
        assert code == 0
        assert f"diabetes, {model}: regression" in out
    assert run("search", "diabetes", "--out", tmp_path / "run", *TINY)[0] == 0
    with RunStore.read(tmp_path / "run") as store:
        assert store.settings["source"]["model"] == "mlp:hidden=64"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["search", "diabtes"], "there is no task named 'diabtes': did you mean 'diabetes'?"),
        (["search", "diabetes", "--method", "evomall"], "there is no method named 'evomall'"),
        (["search", "diabetes", "--set", "population=0"], "population must be at least 1 but got 0"),
        (["search", "diabetes", "--set", "popultion=9"], "did you mean 'population'"),
        (["search", "diabetes", "--preset", "fast"], "preset"),
        (["search", "diabetes", "--seed-with", "nothing.json"], "nothing.json"),
        (["search", "diabetes", "--config", "missing.toml"], "missing.toml"),
        (["resume", "nowhere"], "nowhere"),
        (["runs", "nowhere"], "nowhere: is not a folder"),
    ],
)
def test_bad_requests_get_one_sentence_and_change_nothing(run, tmp_path, monkeypatch, arguments, sentence):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_started_from_python_is_resumed_from_python(run, tmp_path):  # noqa: F811
    from evomal.runs.run_loop import search
    from tests.engine.populations import regression

    short = {**ONE_TRAINING, "population": 3, "generations": 1, "meta_steps": 1, "training_steps": 2, "filter_steps": 2}
    search(regression(), folder=tmp_path, device="cpu", **short)
    code, out, err = run("resume", tmp_path)
    assert (code, out) == (2, "")
    assert err == f"evomal: {tmp_path}: was started from Python: resume it by evomal.search with its tasks\n"


def test_interrupted_before_there_is_a_record_nothing_is_promised(run, tmp_path, monkeypatch):  # noqa: F811
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("evomal.runs.run_loop.prepared", interrupted)
    code, out, err = run("search", "diabetes", "--out", tmp_path / "run", *SHORT)
    assert (code, out, err) == (130, "", "evomal: interrupted before anything was recorded\n")
    monkeypatch.setattr("evomal.cli.searching.task_from_spec", interrupted)
    code, out, err = run("search", "diabetes", "--out", tmp_path / "run", *SHORT)
    assert (code, out, err) == (130, "", "evomal: interrupted\n")


BROKEN_METRIC = """
from evomal import load_task
from evomal.tasks.metrics import Metric

def mine(outputs, targets):
    return outputs.missing

def task():
    return load_task("diabetes", "mlp:hidden=4").judged_by(Metric(mine, higher_is_better=False))
"""


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        (
            "outputs.missing", 1,
            "the task cannot be trained with its own loss, mse: AttributeError: 'Tensor' object has no attribute "
            "'missing' ({file}, line 6)",
        ),
        ("None", 2, "the metric mine ({file}, line 5) must return one number but returned None"),
    ],
)  # fmt: skip
def test_a_user_s_metric_that_fails_ends_the_search_in_one_sentence(run, tmp_path, body, code, sentence):  # noqa: F811
    file = tmp_path / "mine.py"
    file.write_text(BROKEN_METRIC.replace("outputs.missing", body))
    found = run("search", f"{file}:task", "--out", tmp_path / "run", *SHORT[2:])
    assert found == (code, "", f"evomal: {sentence.format(file=file)}\n")


def test_the_summary_and_the_listing_have_rivals_and_final(run, tmp_path):  # noqa: F811
    options = [*SHORT, "--seed-with", "mse", "--out", tmp_path / "run"]
    code, out, err = run("search", "diabetes", *options)
    assert code == 0
    labels = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert labels == ["best", "expression", "validation", "rivals", "final", "candidates", "ended", "files"]
    data = json.loads(run("resume", tmp_path / "run", "--json")[1])
    assert list(data["rivals"]) == list(data["final"]["rivals"]) == ["mse", "mae", "huber"]
    assert data["best"]["mean"] == pytest.approx(sum(data["best"]["scores"]) / 3)
    assert f"final        {data['final']['verdict']}" in out
    assert f"mse {data['rivals']['mse']:.4g}, mae " in err.splitlines()[0]
    assert f"{data['best']['mean']:.4g} ± " in run("runs", tmp_path)[1]
    code, out, _ = run("search", "diabetes", *options[:-1], tmp_path / "paper", "--set", "finalists=0")
    assert "(the best of one training each), found in generation" in out
    assert "(one training each)" in out
