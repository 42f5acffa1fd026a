"""`evomal headroom`, and a search on rungs with what is drawn of it."""

import json

import evomal
from evomal.runs.estimates import Estimate
from evomal.settings import setting_text
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.protocols import ON_RUNGS, OPTIONS

TASK = ["diabetes", "--model", "mlp:hidden=4", "--device", "cpu"]
SHORT = {**ON_RUNGS, "population": 4, "generations": 1, "training_steps": 8, "filter_steps": 5, "finalists": 1}
CHANGES = [text for key, value in SHORT.items() for text in ("--set", f"{key}={setting_text(value)}")]


def test_known_losses_are_listed_the_best_first_with_a_sentence(run):  # noqa: F811
    code, out, _ = run("headroom", *TASK, *CHANGES)
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "mse" in {line.split()[0] for line in lines}
    assert "(4 seeds, lr" in " ".join(lines)
    printed = str(evomal.headroom(evomal.load_task("diabetes", "mlp:hidden=4"), device="cpu", **SHORT))
    assert printed.splitlines() == lines, "the same as from Python"
    found = json.loads(run("headroom", *TASK, *CHANGES, "--json")[1])
    assert found["baseline"] == "mse"
    assert lines[0].split()[0] == found["best"]
    assert all(len(row["costs"]) == 4 and row["steps"] == 8 for row in found["losses"].values())


def test_headroom_of_several_tasks_is_the_worst_change_from_the_baseline(run, tmp_path):  # noqa: F811
    (tmp_path / "own.py").write_text(
        "import numpy as np\nfrom torch import nn\nimport evomal\n\n"
        "def made(rate):\n"
        "    x = np.random.default_rng(0).normal(size=(60, 3))\n"
        "    recipe = evomal.Recipe(lr=rate, batch_size=16)\n"
        "    return evomal.Task.from_arrays(\n"
        "        x, 9 * x[:, 0], model=lambda: nn.Linear(3, 1), kind='regression', recipe=recipe)\n\n"
        "def first():\n    return made(0.1)\n\ndef second():\n    return made(0.2).judged_by('mae')\n"
    )
    tasks = [f"{tmp_path / 'own.py'}:{name}" for name in ("first", "second")]
    code, out, _ = run("headroom", *tasks, "--device", "cpu", *CHANGES)
    assert code == 0
    (baseline,) = (line for line in out.splitlines() if line.startswith("mse  "))
    assert baseline.split()[1:5] == ["0.00", "±", "0.00", "%,"]
    assert "times the learning rate of each task" in baseline
    found = json.loads(run("headroom", *tasks, "--device", "cpu", *CHANGES, "--json")[1])
    assert (found["metric"], found["losses"]["mse"]["lr"]) == ("worst_change", None)


def test_headroom_needs_several_learning_rates(run):  # noqa: F811
    code, out, err = run("headroom", *TASK, "--preset", "paper")
    assert (code, out) == (2, "")
    assert err == "evomal: tried_rates must be at least 1 to measure headroom but got 0\n"


def test_a_search_on_rungs_says_what_to_use_and_is_drawn(run, tmp_path):  # noqa: F811
    code, out, _ = run("search", *TASK, *CHANGES, "--set", "seed_with=mse,mae", "--out", tmp_path / "run")
    assert code == 0
    assert " with lr " in out
    for kind in ("rungs", "headroom"):
        code, out, err = run("analyse", kind, tmp_path / "run", "--out", tmp_path / "figures")
        assert (code, err) == (0, "")
        assert out.startswith("diabetes, mlp:hidden=4")
        assert (tmp_path / "figures" / f"{kind}.csv").read_text().count("\n") > 1
    code, _, err = run("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert (code, err) == (0, "")
    page = (tmp_path / "page.html").read_text()
    assert "Headroom" in page
    assert "Rung 1 to 2" in page


def test_a_command_that_uses_one_of_several_processors_names_jobs(run, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("evomal.cli.display.processors", lambda: 3)
    advice = "evomal: one of 3 processors is used; --jobs 3 uses 3, with the same result"
    _, _, err = run("headroom", *TASK, *CHANGES)
    assert [line for line in err.splitlines() if "--jobs" in line] == [advice]
    search = ["search", *TASK, *CHANGES, "--set", "threads=1", "--out"]
    code, _, err = run(*search, tmp_path / "run")
    assert (code, err.splitlines()[0], err.count("--jobs")) == (0, advice, 1)
    for others in (["resume", tmp_path / "run"], [*search, tmp_path / "one", *OPTIONS]):
        code, _, err = run(*others)
        assert (code, "--jobs" in err) == (0, False)


def test_a_time_chooses_the_number_of_generations_and_says_so(run, tmp_path, monkeypatch):  # noqa: F811
    def estimate(tasks, *, method, settings, seed, jobs):
        stages = {"setup": 1.0, "filter": 0.1 * settings.generations, "evaluate": 0.4 / jobs * settings.generations}
        return Estimate(stages, 2**20, settings.generations, settings.population, "cpu", "looped")

    monkeypatch.setattr("evomal.runs.estimates.estimate", estimate)
    options = [text for text in CHANGES if text != "--set" and not text.startswith("generations=")]
    changes = [text for change in options for text in ("--set", change)]
    code, out, err = run("search", *TASK, *changes, "--time", "2.1s", "--out", tmp_path / "run", "--json")
    assert (code, len(json.loads(out)["history"])) == (0, 2)
    assert err.splitlines()[0] == "evomal: about 2 generations of 4 candidates fit into 2.1s"
    code, out, err = run("search", *TASK, *changes, "--time", "2.21s", "--dry-run", "--jobs", "2")
    assert (code, "4 generations of 4" in out) == (0, True)
    code, out, err = run("search", *TASK, *changes, "--time", "1s", "--dry-run")
    assert (code, "1 generation of 4" in out) == (0, True)
    short = "fit into 1s, which is too short for a search: it will take about 1.5 s\n"
    assert err == f"evomal: about 1 generation of 4 candidates {short}"
    code, _, err = run("search", *TASK, *CHANGES, "--time", "8s", "--out", tmp_path / "other")
    assert code == 2
    assert err == "evomal: --time chooses the number of generations, so it cannot be combined with --set generations\n"
    code, _, err = run("search", *TASK, "--time", "soon", "--out", tmp_path / "other")
    assert (code, err.count("\n")) == (2, 1)
