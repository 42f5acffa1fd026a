"""Runs are found, grouped, and told apart, whatever lies beside them."""

import shutil

import pytest

import evomal
from evomal.errors import InputError
from evomal.runs import RunStore
from evomal.runs.reading import read_runs
from evomal.runs.recorded_run import UNKNOWN
from evomal.text import plural
from tests.figures.records import record, row, settings


def test_runs_are_grouped_by_task_and_method_in_the_order_of_the_methods(tmp_path):
    for method in ("random", "mine", "evomal"):
        for seed in (1, 0):
            record(tmp_path / f"{method}-{seed}", [row(0, 0, 1.0)], method=method, seed=seed)
    record(tmp_path / "other", [row(0, 0, 1.0)], task="another")
    groups = read_runs([tmp_path]).by_method()
    assert list(groups) == [("another, linear", "mse"), ("planted, linear", "mse")]
    methods = groups["planted, linear", "mse"]
    assert list(methods) == ["evomal", "random", "mine"]
    assert [run.seed for run in methods["evomal"]] == [0, 1]


def test_a_run_named_twice_is_read_once(tmp_path):
    folder = record(tmp_path / "deep" / "run", [row(0, 0, 1.0)])
    found = read_runs([tmp_path, folder, folder / ".." / "run"])
    assert [run.folder for run in found.runs] == [folder]
    assert found.notes == ()


def test_hardships_and_metrics_make_another_task(tmp_path):
    noisy = {"0": {"name": "planted", "metric": "mse", "hardships": {"label_noise": 0.4, "outliers": 0.0}}}
    record(tmp_path / "plain", [row(0, 0, 1.0)])
    record(tmp_path / "mae", [row(0, 0, 1.0)], metric="mae")
    with RunStore.create(tmp_path / "noisy", {**settings(), "task": noisy}):
        pass
    keys = [("planted, label_noise 0.4", "mse"), ("planted, linear", "mae"), ("planted, linear", "mse")]
    assert list(read_runs([tmp_path]).by_method()) == keys


@pytest.mark.parametrize(("metric", "is_higher"), [("mse", False), ("r2", True), ("macro_f1", True), ("own", False)])
def test_the_metric_s_name_says_which_way_is_better(tmp_path, metric, is_higher):
    record(tmp_path, [row(0, 0, -0.5)], metric=metric)
    (run,) = read_runs([tmp_path]).runs
    assert run.higher_is_better == is_higher
    assert run.value(-0.5) == (0.5 if is_higher else -0.5)


@pytest.mark.parametrize(("value", "is_higher"), [(0.5, True), (-0.5, False)])
def test_a_user_s_own_metric_is_known_from_the_loss_file(tmp_path, value, is_higher):
    record(tmp_path, [row(0, 0, -0.5)], metric="own")
    evomal.save_loss(
        evomal.ExpressionLoss("abs(sub(f, y))", kind="regression"),
        tmp_path / "best.json",
        provenance={"fitness": -0.5, "value": value},
    )
    assert read_runs([tmp_path]).runs[0].higher_is_better == is_higher


def test_damaged_runs_are_left_out_unless_there_is_no_other(tmp_path):
    whole = record(tmp_path / "whole", [row(0, 0, 1.0)])
    damaged = tmp_path / "damaged"
    shutil.copytree(whole, damaged)
    content = (damaged / "run.sqlite").read_bytes()
    (damaged / "run.sqlite").write_bytes(content[:-4096])
    found = read_runs([tmp_path])
    assert [run.folder for run in found.runs] == [whole]
    (note,) = found.notes
    assert note.startswith(f"left out: {damaged / 'run.sqlite'}: is damaged (")
    with pytest.raises(InputError, match="is damaged"):
        read_runs([damaged])


def test_no_run_is_said_and_no_folder_is_an_error(tmp_path):
    found = read_runs([tmp_path])
    assert (found.runs, found.sentence) == ((), f"there is no run in {tmp_path}")
    with pytest.raises(InputError, match="there is no run in"):
        found.only()
    with pytest.raises(InputError, match=r"nowhere: is not a folder$"):
        read_runs([tmp_path, tmp_path / "nowhere"])


def test_one_run_is_asked_for_by_name(tmp_path):
    first = record(tmp_path / "a", [row(0, 0, 1.0)])
    record(tmp_path / "b", [row(0, 0, 1.0)])
    assert read_runs([first]).only().folder == first
    with pytest.raises(InputError) as refusal:
        read_runs([tmp_path]).only()
    assert str(refusal.value) == f"one run was expected but got 2: name one of them, such as {first}"


def test_records_of_others_are_read_as_far_as_they_can_be(tmp_path):
    for name, task in {"texts": {"name": "x"}, "none": None, "numbers": {"0": {"name": 3, "metric": []}}}.items():
        with RunStore.create(tmp_path / name, {**settings(), "task": task, "method": 7, "seed": "s", "device": None}):
            pass
    for run in read_runs([tmp_path]).runs:
        assert (run.task, run.method, run.metric, run.seed) == (UNKNOWN, UNKNOWN, UNKNOWN, None)
        assert (run.hardware, run.generations, run.computed) == (UNKNOWN, 0, ())


def test_what_searches_of_one_method_do_not_share_is_noted(tmp_path):
    record(tmp_path / "a", [row(0, 0, 1.0)])
    record(tmp_path / "b", [row(0, 0, 1.0)], settings={"population": 9, "threads": 2}, threads=2)
    found = read_runs([tmp_path])
    assert found.notes == (
        "the searches of evomal on planted, linear differ in population",
        "more than one search of evomal on planted, linear has seed 0",
    )
    assert [run.hardware for run in found.runs] == ["cpu, 1 thread", "cpu, 2 threads"]


def test_elites_are_computed_once_and_odd_genomes_have_no_size(tmp_path):
    rows = [row(0, 0, 1.0), row(1, 0, 1.0, origin="elite", parents=[0]), row(1, 1, 2.0, "cached", genome="abs(")]
    record(tmp_path, rows)
    (run,) = read_runs([tmp_path]).runs
    assert [len(part) for part in (run.candidates, run.computed, run.trained)] == [3, 2, 1]
    assert run.generations == 2
    assert [candidate.size for candidate in run.candidates] == [4, 4, None]
    assert row(0, 0, 1.0, genome="[1.0,2.0]").size == 2
    assert row(0, 0, 1.0, genome='["a"]').size is None


def test_nouns_are_counted():
    assert [plural(1, "search"), plural(2, "search"), plural(0, "thread")] == ["1 search", "2 searches", "0 threads"]
