"""Runs are found below a folder with their state, whatever else lies there."""

import math
import os
from dataclasses import replace

import pytest

from evomal.errors import InputError
from evomal.methods.candidates import State
from evomal.runs import RunState, RunStore, find_runs
from evomal.runs.leads import Scores
from tests.figures.records import record, row
from tests.runs.test_store import SETTINGS, candidate, written


def test_every_state_is_told(tmp_path):
    written(tmp_path / "a" / "interrupted", 3)
    written(tmp_path / "complete", 2)
    with RunStore.open(tmp_path / "complete") as store:
        store.finish("all generations done")
    written(tmp_path / "damaged", 2)
    path = tmp_path / "damaged" / "run.sqlite"
    path.write_bytes(path.read_bytes()[:-4096])
    with RunStore.create(tmp_path / "running", SETTINGS):
        found = {run.folder.name: run for run in find_runs(tmp_path)}
    assert {name: str(run.state) for name, run in found.items()} == {
        name: name for name in ("interrupted", "complete", "damaged", "running")
    }
    interrupted = found["interrupted"]
    assert (interrupted.generations, len(interrupted.candidates)) == (2, 15)
    assert interrupted.best == candidate(1, 2)
    assert interrupted.settings == SETTINGS
    assert interrupted.created <= interrupted.written
    assert found["complete"].ending == "all generations done"
    assert "is damaged" in found["damaged"].problem
    assert (found["running"].candidates, found["running"].written, found["running"].best) == ((), None, None)
    assert find_runs(tmp_path / "running")[0].state is RunState.INTERRUPTED


def test_a_run_in_which_nothing_survived_has_no_best(tmp_path):
    with RunStore.create(tmp_path, SETTINGS) as store:
        store.write_chunk(0, [replace(candidate(0, 0), state=State.REJECTED, fitness=math.inf)])
    assert find_runs(tmp_path)[0].best is None


def test_the_best_is_the_final_s_winner(tmp_path):
    rows = [row(0, 0, 0.1), row(0, 1, 0.2)]
    record(tmp_path, rows, final={"mse": (0.5, 0.5), "0:0": (0.9, 0.9), "0:1": (0.25, 0.75)})
    (found,) = find_runs(tmp_path)
    assert (found.best.index, found.scores) == (1, Scores((0.25, 0.75)))


def test_links_loops_and_odd_things_do_not_matter(tmp_path, monkeypatch):
    written(tmp_path / "top" / "run", 1)
    (tmp_path / "top" / "loop").symlink_to(tmp_path / "top")
    (tmp_path / "top" / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "top" / "odd" / "run.sqlite").mkdir(parents=True)
    os.mkfifo(tmp_path / "top" / "fifo")
    (tmp_path / "top" / "pipe").mkdir()
    os.mkfifo(tmp_path / "top" / "pipe" / "run.sqlite")
    (tmp_path / "top" / "locked").mkdir()
    scandir = os.scandir

    def refusing(place):
        if os.fspath(place).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refusing)
    found = {run.folder.name: run.state for run in find_runs(tmp_path / "top")}
    assert found == {"run": RunState.INTERRUPTED, "odd": RunState.DAMAGED, "pipe": RunState.DAMAGED}
    (tmp_path / "link").symlink_to(tmp_path / "top" / "run")
    assert [run.state for run in find_runs(tmp_path / "link")] == [RunState.INTERRUPTED]


def test_a_run_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    written(tmp_path, 1)

    def refusing(path, **_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("evomal.runs.database.require_regular", refusing)
    (run,) = find_runs(tmp_path)
    assert run.state is RunState.UNREADABLE
    assert "cannot be read: Permission denied" in run.problem


def test_only_folders_are_searched(tmp_path):
    assert find_runs(tmp_path) == ()
    with pytest.raises(InputError, match="is not a folder"):
        find_runs(tmp_path / "missing")
