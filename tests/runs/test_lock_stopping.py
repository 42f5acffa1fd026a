"""A search is asked to stop, stops after its generation, and is resumed to the same result."""

import os
import sys

import pytest

import evomal
from evomal.cli import main
from evomal.errors import EvomalError, StoppedError
from evomal.runs import RunStore
from evomal.runs.lock import STOP_NAME, is_stop_requested, request_stop, withdraw_stop
from tests.protocols import ON_RUNGS

TINY = {
    "preset": "paper", "population": 4, "generations": 3, "meta_steps": 1, "training_steps": 3, "filter_steps": 3,
    "device": "cpu", "threads": 1, "method": "taylorglo",
}  # fmt: skip


@pytest.fixture(scope="module")
def task():
    return evomal.load_task("diabetes", model="mlp:hidden=4")


def test_requests_are_files_that_can_be_repeated_and_withdrawn(tmp_path):
    assert not is_stop_requested(tmp_path)
    withdraw_stop(tmp_path)
    request_stop(tmp_path)
    request_stop(tmp_path)
    assert is_stop_requested(tmp_path)
    withdraw_stop(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_request_is_never_written_through_a_link(tmp_path):
    (tmp_path / STOP_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EvomalError, match="cannot be written"):
        request_stop(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_stopped_search_is_resumed_to_the_same_record(task, tmp_path):
    def ask(generation):
        if generation.number == 0:
            request_stop(tmp_path / "stopped")

    with pytest.raises(StoppedError, match="stopped on request"):
        evomal.search(task, folder=tmp_path / "stopped", callback=ask, **TINY)
    assert not is_stop_requested(tmp_path / "stopped")
    with RunStore.read(tmp_path / "stopped") as store:
        assert len(store.complete_chunks()) == 1
    for name in ("stopped", "whole"):
        evomal.search(task, folder=tmp_path / name, **TINY)
    with RunStore.read(tmp_path / "stopped") as stopped, RunStore.read(tmp_path / "whole") as whole:
        assert stopped.dump() == whole.dump()


def test_a_request_during_the_last_generation_stops_before_the_final(task, tmp_path):
    settings = {**TINY, "generations": 1, "finalists": 1, "final_seeds": 2, "final_steps": 3}
    with pytest.raises(StoppedError):
        evomal.search(task, folder=tmp_path, callback=lambda _: request_stop(tmp_path), **settings)
    assert evomal.search(task, folder=tmp_path, **settings).final is not None


@pytest.mark.parametrize("settings", [
    {**TINY, "generations": 1, "finalists": 1, "final_seeds": 2, "final_steps": 3},
    {**ON_RUNGS, "method": "taylorglo", "population": 4, "generations": 1, "training_steps": 4, "filter_steps": 3,
     "finalists": 1, "final_seeds": 1, "device": "cpu", "resplit": False},
])  # fmt: skip
def test_a_request_during_the_final_stops_it_between_its_trainings(task, tmp_path, monkeypatch, settings):
    write = RunStore.write_trials

    def asking(store, trials):
        write(store, trials)
        if trials and trials[0].stage != "rivals":
            request_stop(tmp_path / "stopped")

    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "write_trials", asking)
        with pytest.raises(StoppedError):
            evomal.search(task, folder=tmp_path / "stopped", **settings)
    with RunStore.read(tmp_path / "stopped") as store:
        assert {trial.stage for trial in store.trials()} in ({"rivals", "final"}, {"rivals", "rates"})
        assert store.ending is None
    for name in ("stopped", "whole"):
        evomal.search(task, folder=tmp_path / name, **settings)
    with RunStore.read(tmp_path / "stopped") as stopped, RunStore.read(tmp_path / "whole") as whole:
        assert stopped.dump() == whole.dump()


def test_a_request_that_comes_too_late_is_withdrawn(task, tmp_path, monkeypatch):
    finish = RunStore.finish
    monkeypatch.setattr(RunStore, "finish", lambda store, ending: (finish(store, ending), request_stop(tmp_path)))
    evomal.search(task, folder=tmp_path, **{**TINY, "generations": 1})
    assert not is_stop_requested(tmp_path)


def test_a_request_from_before_the_search_does_not_stop_it(task, tmp_path):
    request_stop(tmp_path)
    assert evomal.search(task, folder=tmp_path, **{**TINY, "generations": 1}).best is not None
    assert not is_stop_requested(tmp_path)


def test_the_command_says_how_to_resume(tmp_path, monkeypatch, capsys):
    words = [f"--set={key}={value}" for key, value in TINY.items() if key not in ("preset", "method", "device")]
    folder = tmp_path / "run"
    words = ["search", "diabetes", "--model", "mlp:hidden=4", "--method", "taylorglo", "--preset", "paper", *words]
    monkeypatch.setattr(sys, "argv", ["evomal", *words, "--device", "cpu", "--out", str(folder)])
    monkeypatch.setattr("evomal.runs.lock.is_stop_requested", lambda folder: True)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert f"stopped on request; resume with `evomal resume {folder}`" in capsys.readouterr().err
