"""Campaigns end to end: stopped, killed and resumed to the same result, in one process or several."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import evomal
from evomal.campaigns import cells, figures, read_campaign, read_result, run_campaign
from evomal.campaigns.cells import CellRunner, OutOfTimeError, PlannedComparison, PlannedSearch, TimeLimit
from evomal.campaigns.running import planned
from evomal.errors import DeviceError, EvomalError, InputError, StoppedError
from evomal.figures import data
from evomal.users_code import users_code
from evomal.verdict.plan import ComparisonPlan
from tests.campaigns.tiny import TINY, without_times
from tests.cli.test_app import run  # noqa: F401  (a fixture)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("declared") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def whole(file, tmp_path_factory):
    """The campaign, run without interruption."""
    out = tmp_path_factory.mktemp("whole")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(figures, "save_figure", lambda figure, path, _: figure.savefig(f"{path}.svg"))
    run_campaign(read_campaign(file), out, command=["repeat"])
    monkeypatch.undo()
    return out


@pytest.fixture
def without_figures(monkeypatch):
    monkeypatch.setattr(figures, "save_figure", lambda *_: None)


def content(out):
    return without_times(json.loads((out / "campaign.json").read_text()))


def test_every_cell_is_measured_and_written(whole):
    result = read_result(whole / "campaign.json")
    clean, outliers = result.tasks
    assert result.left == ()
    assert [(cell.method, cell.seed) for cell in clean.searches] == [("taylorglo", 0), ("evomal", 0)]
    assert outliers.rows == {"training": 266, "validation": 88, "test": 88}
    assert clean.known_losses == outliers.known_losses == ["mse", "huber"]
    assert clean.contestants == ["taylorglo", "evomal"]
    assert outliers.contestants == ["taylorglo", "taylorglo (paper) from clean", "evomal (paper) from clean"]
    assert [len(outliers.costs(name, "tuned")) for name in outliers.contestants] == [2, 1, 1]
    assert {row.variant for row in clean.comparison.rows} == {"plain", "tuned", "rescaled"}
    assert {row.variant for row in outliers.comparison.rows} == {"plain", "tuned"}
    assert all(len(loss.test) == 2 for row in clean.comparison.rows for loss in row.losses if loss is not None)
    made = clean.comparison.made
    assert made.commit
    assert "torch" in made.hardware
    assert made.seconds > 0


def test_the_files_hold_the_same_numbers_as_the_comparison(whole):
    task = read_result(whole / "campaign.json").task("clean")
    recorded = json.loads((whole / "clean" / "comparison" / "comparison.json").read_text())
    assert "curve" not in (whole / "campaign.json").read_text()
    for row, entry in zip(task.comparison.rows, recorded["entries"], strict=True):
        assert (row.name, row.variant) == (entry["name"], entry["variant"])
        for loss, full in zip(row.losses, entry["losses"], strict=True):
            if loss is not None:
                assert loss.test == pytest.approx([score["test"] for score in full["scores"]], rel=1e-6)
                assert [len(seed) for seed in loss.left_out] == [20] * len(loss.test)
        if entry["difference"] is not None and entry["difference"]["low"] is not None:
            shown = task.difference(row.name, task.comparison.baseline, row.variant)
            assert shown.error_of_rows == pytest.approx(entry["difference"]["error_of_rows"], rel=1e-3, abs=1e-7)
            assert (shown.low, shown.high) == pytest.approx(
                (entry["difference"]["low"], entry["difference"]["high"]), rel=1e-3, abs=1e-6
            )
    assert task.has_rows
    page = (whole / "campaign.md").read_text()
    assert "# A tiny campaign" in page
    assert "which allow for other test rows" in " ".join(page.split())
    assert "- command: `repeat`" in page
    assert "## Diabetes with outliers" in page
    assert (whole / "figures" / "gains.svg").exists()


def test_a_finished_cell_is_never_run_again(file, whole, monkeypatch):
    def refused(*_, **__):
        raise AssertionError("nothing is to be computed")

    monkeypatch.setattr(cells, "search", refused)
    monkeypatch.setattr(cells, "compare_contestants", refused)
    before = (whole / "campaign.json").read_bytes()
    assert run_campaign(read_campaign(file), whole, command=["repeat"]).left == ()
    assert (whole / "campaign.json").read_bytes() == before


def test_figures_of_a_task_are_drawn_when_all_its_searches_are_done(file, whole, tmp_path, monkeypatch):
    out, drawn = tmp_path / "copied", []
    shutil.copytree(whole, out)
    (out / "campaign.json").unlink()
    for name in ("clean", "outliers"):
        (out / name / "comparison" / "cell.json").unlink()
    next((out / "outliers" / "searches").glob("*/cell.json")).unlink()

    def refused(*_, **__):
        raise EvomalError("not now")

    monkeypatch.setattr(cells, "search", refused)
    monkeypatch.setattr(cells, "compare_contestants", refused)
    monkeypatch.setattr(figures, "save_figure", lambda _, path, __: drawn.append(path.name))
    with pytest.raises(EvomalError, match="not now"):
        run_campaign(read_campaign(file), out)
    assert {name for name in drawn if name != "gains"} == {"clean-search-curves", "clean-filters", "clean-run-times"}


def test_a_campaign_stops_anywhere_and_is_resumed_to_the_same_result(
    file, whole, tmp_path, monkeypatch, without_figures
):
    checked, check = [0], TimeLimit.check

    def stops_now_and_then(limit):
        check(limit)
        checked[0] += 1
        if checked[0] % 31 == 0:
            raise OutOfTimeError

    monkeypatch.setattr(TimeLimit, "check", stops_now_and_then)
    left = []
    for _ in range(60):
        left.append(len(run_campaign(read_campaign(file), tmp_path, command=["repeat"]).left))
        if not left[-1]:
            break
    assert len(left) > 3
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    assert content(tmp_path) == content(whole)


def test_a_killed_campaign_is_resumed_to_the_same_result(file, whole, tmp_path, without_figures):
    child = os.fork()
    if not child:
        torch.set_num_threads(1)  # the threads of earlier tests do not exist in this process
        run_campaign(read_campaign(file), tmp_path)
        os._exit(0)
    while not list(tmp_path.glob("clean/searches/*/cell.json")):
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not (tmp_path / "campaign.json").exists()
    run_campaign(read_campaign(file), tmp_path, command=["repeat"])
    assert content(tmp_path) == content(whole)


class OneProcess:
    """A pool whose only worker is this process."""

    size = 1

    def prepare(self, build, *data, **options):
        self.runner = build(*data, **options)
        return self.runner.describe()

    def run(self, jobs, *, chunk=1):
        for index in reversed(range(len(jobs))):  # results come in any order
            yield index, self.runner.run(jobs[index : index + 1])[0]


def test_workers_give_the_same_result(file, whole, tmp_path, monkeypatch, without_figures):
    monkeypatch.setattr(
        ComparisonPlan, "workers", lambda plan, _: contextlib.nullcontext(OneProcess() if plan.jobs > 1 else None)
    )
    run_campaign(read_campaign(file), tmp_path, only=["clean"], jobs=2, command=["repeat"])
    assert content(tmp_path)["tasks"] == content(whole)["tasks"][:1]


@pytest.mark.long
def test_several_processes_give_the_same_result(file, whole, tmp_path, without_figures):
    words = [sys.executable, "-m", "evomal", "campaign", str(file), "--out", str(tmp_path), "--jobs", "2"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob("clean/searches/*/cell.json")):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    run_campaign(read_campaign(file), tmp_path, jobs=2, command=["repeat"])
    assert content(tmp_path) == content(whole)


def test_no_time_is_said_in_words(run, file, tmp_path):  # noqa: F811
    code, out, _ = run("campaign", file, "--out", tmp_path, "--time", "0.001")
    assert code == 0
    assert "6 cells left: clean/paper-taylorglo-0," in out
    assert "the same command continues" in " ".join(out.split())


def test_the_dry_run_lists_the_cells_with_times(run, file, whole, tmp_path, rough_estimates):  # noqa: F811
    code, out, _ = run("campaign", file, "--out", whole, "--dry-run")
    assert code == 0
    assert "clean/paper-evomal" in out
    assert "2 cells, 2 done" in out
    assert "clean/comparison" in out
    assert "left: about 0.0 s" in out
    code, out, _ = run("campaign", file, "--out", tmp_path, "--dry-run", "--only", "outliers", "--json")
    (searches,) = [row for row in json.loads(out)["cells"] if row["name"] == "outliers/paper-taylorglo"]
    assert (searches["cells"], searches["done"]) == (2, 0)
    assert searches["seconds_each"] > 0
    both = ("--only", "outliers", "--only", "clean")
    code, out, _ = run("campaign", file, "--out", tmp_path, "--dry-run", *both, "--json")
    assert {row["name"].partition("/")[0] for row in json.loads(out)["cells"]} == {"clean", "outliers"}
    assert not any(tmp_path.iterdir())


def test_a_part_is_measured_first_and_the_rest_follows(run, file, whole, tmp_path, without_figures):  # noqa: F811
    words = ("campaign", file, "--out", tmp_path, "--search-seeds", "1", "--methods", "taylorglo")
    code, out, _ = run(*words)
    assert code == 0
    assert "left" not in out
    result = read_result(tmp_path / "campaign.json")
    assert [(task.name, cell.method, cell.seed) for task in result.tasks for cell in task.searches] == [
        ("clean", "taylorglo", 0), ("outliers", "taylorglo", 0),
    ]  # fmt: skip
    assert [task.comparison is not None for task in result.tasks] == [True, True]
    run_campaign(read_campaign(file), tmp_path, command=["repeat"])
    assert content(tmp_path) == content(whole)
    code, out, _ = run("campaign", file, "--out", tmp_path / "alone", "--only", "outliers", "--no-transfer")
    assert code == 0
    (task,) = read_result(tmp_path / "alone" / "campaign.json").tasks
    assert (task.name, task.contestants) == ("outliers", ["taylorglo"])
    code, _, err = run(*words[:-2], "--presets", "quick")
    assert (code, err) == (2, "evomal: there is no preset of this campaign named 'quick': known names are paper\n")
    code, _, err = run(*words[:-1], "evomall")
    assert (code, err) == (2, "evomal: there is no method of this campaign named 'evomall': did you mean 'evomal'?\n")


def test_figures_show_trainings_of_the_comparison_and_are_resumed(tmp_path, monkeypatch):
    path, drawn = tmp_path / "tiny.toml", {}
    wanted = 'figures = { kinds = ["training-curves", "landscapes"], seeds = 2 }\n'
    text = TINY.replace('methods = ["taylorglo", "evomal"]', f"methods = []\n{wanted}")
    text = text.replace("[settings]", '[settings]\nbatch_size = 8\nmomentum = 0.5\nprecision = "float32"')
    path.write_text(text[: text.rindex("[[tasks]]")])
    monkeypatch.setattr(figures, "save_figure", lambda figure, path, columns: drawn.update({path.name: columns}))
    trained, train = [], data.train

    def stops_once(task, loss, **settings):
        trained.append(settings["seed"])
        if len(trained) == 3:
            raise OutOfTimeError
        return train(task, loss, **settings)

    monkeypatch.setattr(data, "train", stops_once)
    assert run_campaign(read_campaign(path), tmp_path / "out").left == ("clean/training-curves", "clean/landscapes")
    assert run_campaign(read_campaign(path), tmp_path / "out").left == ()
    assert trained == [1000, 1001, 1000, 1000, 1001]  # two losses, two seeds; one was stopped
    (task,) = read_result(tmp_path / "out" / "campaign.json").tasks
    curves = drawn["clean-training-curves"]
    for name in ("mse", "huber"):
        rows = zip(*(curves[key] for key in ("loss", "seed", "test")), strict=True)
        shown = {seed: test for loss, seed, test in rows if loss == name}
        assert list(shown.values()) == pytest.approx(task.row(name, "tuned").losses[0].test, rel=1e-4)
    assert {*drawn["clean-landscapes"]["loss"]} == {"mse", "huber"}
    assert [cell.kind for cell in task.figures] == ["training-curves", "landscapes"]
    (first, *_) = sorted((tmp_path / "out" / "clean" / "figures" / "models").glob("*.npz"))
    first.write_bytes(b"damaged")
    (tmp_path / "out" / "clean" / "figures" / "landscapes" / "cell.json").unlink()
    with pytest.raises(InputError, match=r"\.npz: is not what evomal writes: remove it to train again"):
        run_campaign(read_campaign(path), tmp_path / "out")


def test_bad_input_ends_with_2(run, file, tmp_path):  # noqa: F811
    assert run("campaign", tmp_path / "none.toml", "--out", tmp_path)[0] == 2
    code, _, err = run("campaign", file, "--out", tmp_path, "--only", "claen")
    assert (code, err) == (2, "evomal: there is no task named 'claen': did you mean 'clean'?\n")
    assert run("campaign", file, "--out", tmp_path, "--time", "soon")[0] == 2
    named = tmp_path / "named.toml"
    named.write_text('title = "t"\n[[tasks]]\nname = "a"\ntask = "tasks.py:make"\n')
    (tmp_path / "tasks.py").write_text("raise SystemExit('was run')\n")
    code, _, err = run("campaign", named, "--out", tmp_path / "out")
    assert code == 2
    assert "does not run unless told to: add --trust" in err


def test_weight_decay_that_cannot_be_tuned_is_refused_before_the_searches(tmp_path, monkeypatch):
    monkeypatch.setattr(PlannedSearch, "run", lambda *_: pytest.fail("was searched"))
    path = tmp_path / "tiny.toml"
    path.write_text(TINY.replace("tune_lr = 2", "tune_lr = 2\ntune_decay = true").replace("seeds = 2", "seeds = 1")
                    .replace('device = "cpu"', 'device = "cpu"\nweight_decay = 0.0'))  # fmt: skip
    with pytest.raises(InputError, match="tune_decay needs a weight decay to begin with"):
        run_campaign(read_campaign(path), tmp_path / "out")


def test_a_record_of_an_earlier_version_is_not_taken_for_one_of_this(file, whole, tmp_path):
    """Which would be resumed with candidates scaled to the baseline."""
    old = next(iter(planned(read_campaign(file), whole)[0].searches))
    shutil.copytree(old.folder, tmp_path / "old")
    (tmp_path / "old" / "cell.json").unlink()
    settings = old.settings.with_changes(scaled_to="best")
    later = dataclasses.replace(old, folder=tmp_path / "old", settings=settings)
    with pytest.raises(InputError, match="its record is of an earlier version, with scaled_to 'baseline': set that in"):
        later.run(None)


@pytest.mark.parametrize(
    ("rows", "hardships", "place"),
    [(100, {}, "new splits"), (100, {"outliers": 0.3}, "rows of the search"), (10_000, {"outliers": 0.3}, "own rows")],
)
def test_a_search_tells_which_rows_its_final_was_on(tmp_path, rows, hardships, place):
    x = np.random.default_rng(0).normal(size=(rows, 3))
    task = evomal.Task.from_arrays(
        x, x[:, 0], model=lambda: torch.nn.Linear(3, 1), kind="regression", hardships=evomal.Hardships(**hardships)
    )
    settings = evomal.SearchSettings.preset(
        "quick", population=6, generations=1, first_trees=20, islands=1, training_steps=4, rungs=(1.0,),
        rung_seeds=(1,), finalists=2, final_seeds=2, final_steps=4, filters=("symbolic",), device="cpu",
    )  # fmt: skip
    assert PlannedSearch("own", "evomal", "quick", 0, settings, {}, tmp_path / "run").run(task).final_on == place


def test_a_search_that_fails_does_not_stop_the_others(file, tmp_path, monkeypatch):
    search = PlannedSearch.run

    def fails(one, task, listener=None):
        if one.method == "evomal":
            raise EvomalError("the device is lost")
        return search(one, task, listener)

    monkeypatch.setattr(PlannedSearch, "run", fails)
    with pytest.raises(EvomalError, match=r"^failed: clean/paper-evomal-0: the device is lost$"):
        run_campaign(read_campaign(file), tmp_path, only=["clean"])
    result = read_result(tmp_path / "campaign.json")
    assert result.left[:2] == ("clean/paper-evomal-0", "clean/comparison")
    assert result.tasks[0].comparison is None


def test_a_gpu_that_fails_costs_its_process_and_no_search(file, monkeypatch):
    def fails(one, task, listener=None):
        with users_code("training on planets"):
            raise torch.AcceleratorError("CUDA error: all CUDA-capable devices are busy")

    monkeypatch.setattr(PlannedSearch, "run", fails)
    searches = [one for plan in planned(read_campaign(file), Path("out")) for one in plan.searches]
    with pytest.raises(DeviceError, match=r"^the GPU failed: CUDA error: all CUDA-capable devices are busy$"):
        CellRunner(None, until=None).run(searches[:1])


def test_a_failure_is_said_also_when_the_time_is_used_up(file, tmp_path, monkeypatch):
    def fails_once(one, *_):
        if one.seed == 0 and one.method == "taylorglo":
            raise EvomalError("the device is lost")
        raise OutOfTimeError

    monkeypatch.setattr(PlannedSearch, "run", fails_once)
    with pytest.raises(EvomalError, match=r"^failed: clean/paper-taylorglo-0: the device is lost$"):
        run_campaign(read_campaign(file), tmp_path)
    assert len(read_result(tmp_path / "campaign.json").left) == 6


def copy_of(whole, folder):
    return Path(shutil.copytree(whole, folder / "copy"))


def test_a_task_that_cannot_be_loaded_does_not_stop_the_others(file, whole, tmp_path, without_figures):
    out, path = copy_of(whole, tmp_path), tmp_path / "tiny.toml"
    path.write_text(
        file.read_text().replace("[[tasks]]", '[[tasks]]\nname = "absent"\ntask = "none.py:make"\n[[tasks]]', 1)
    )
    (out / "campaign.json").unlink()
    with pytest.raises(InputError, match=r"^failed: absent: .*none\.py:make: there is no file"):
        run_campaign(read_campaign(path), out)
    result = read_result(out / "campaign.json")
    assert [task.name for task in result.tasks] == ["clean", "outliers"]
    assert [name.partition("/")[0] for name in result.left] == ["absent"] * 3


def test_a_comparison_that_fails_does_not_stop_the_others(file, whole, tmp_path, monkeypatch, without_figures):
    out, tried = copy_of(whole, tmp_path), []
    for cell in out.glob("*/comparison/cell.json"):
        cell.unlink()

    def fails(comparison, *_):
        tried.append(str(comparison))
        raise EvomalError("the device is lost")

    monkeypatch.setattr(PlannedComparison, "run", fails)
    with pytest.raises(EvomalError, match=r"^failed: clean/comparison: the device is lost; outliers/comparison: "):
        run_campaign(read_campaign(file), out)
    assert tried == ["clean/comparison", "outliers/comparison"]
    assert read_result(out / "campaign.json").left == tuple(tried)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_request_to_stop_ends_the_campaign(run, file, tmp_path, monkeypatch, jobs):  # noqa: F811
    begun = []

    def is_stopped(one, *_):
        begun.append(str(one))
        raise StoppedError("the search was stopped on request")

    monkeypatch.setattr(PlannedSearch, "run", is_stopped)
    monkeypatch.setattr(
        ComparisonPlan, "workers", lambda plan, _: contextlib.nullcontext(OneProcess() if plan.jobs > 1 else None)
    )
    code, _, err = run("campaign", file, "--out", tmp_path, "--jobs", str(jobs))
    assert code == 130
    assert "stopped on request; give the same command again to resume" in err
    assert len(begun) == 1
    assert len(read_result(tmp_path / "campaign.json").left) == 6


def test_the_files_cover_the_tasks_that_were_not_chosen(run, file, whole, tmp_path, without_figures):  # noqa: F811
    out = copy_of(whole, tmp_path)
    (out / "outliers" / "comparison" / "cell.json").unlink()
    code, shown, _ = run("campaign", file, "--out", out, "--only", "clean")
    assert code == 0
    assert "left" not in shown  # nothing that the same command would continue
    result = read_result(out / "campaign.json")
    assert [task.name for task in result.tasks] == ["clean", "outliers"]
    assert result.left == ("outliers/comparison",)


def test_the_commit_of_a_copy_is_told(monkeypatch):
    monkeypatch.setenv(cells.COMMIT, "abc1234")
    assert cells.commit() == "abc1234"


def test_a_damaged_cell_is_said_and_not_overwritten(file, whole, tmp_path):
    place = tmp_path / "clean" / "searches" / "paper-taylorglo-0"
    place.mkdir(parents=True)
    written = json.loads((whole / place.relative_to(tmp_path) / "cell.json").read_text())
    for content in ({}, {**written, "result": {}}):
        (place / "cell.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=r"cell\.json: is not what evomal writes: remove it to run the cell"):
            run_campaign(read_campaign(file), tmp_path)
