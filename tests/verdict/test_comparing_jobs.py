"""Comparisons in several processes: the same records and numbers as in one, also when they are interrupted."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from evomal.errors import InputError
from evomal.settings import setting_text
from evomal.verdict import compare, transfer
from evomal.verdict.plan import ComparisonPlan
from tests.engine.populations import regression
from tests.processes import begun
from tests.protocols import ONE_TRAINING
from tests.searches import SHORT, commanded, dump_of

TINY = {
    **ONE_TRAINING,
    "population": 4,
    "generations": 1,
    "meta_steps": 1,
    "training_steps": 5,
    "filter_steps": 5,
    "final_steps": 20,
}
COMMON = {**TINY, "finalists": 2, "device": "cpu"}


class Lines:
    """Notes what is announced; nothing else is shown."""

    def __init__(self):
        self.announced, self.expected, self.done = [], 0, 0

    def announce(self, sentence):
        self.announced.append(sentence)

    def expect(self, steps):
        self.expected += steps

    def on_steps(self, stage, steps):
        self.done += steps


def document(result):
    """The result as it is written, without its folder."""
    return json.dumps(result.to_dict(), sort_keys=True)


def trainings(folder):
    """The logged scores, whatever the order in which they came."""
    lines = [json.loads(line)[1] for line in (folder / "trainings.jsonl").read_text().splitlines()]
    logged = [json.dumps(one, sort_keys=True) for line in lines[1:] for one in line["trainings"]]
    return lines[0], sorted(logged)


class Interrupted:
    """A pool of this process, in which Ctrl-C follows the first job."""

    size = 1

    def prepare(self, build, *data, **options):
        self.runner = build(*data, **options)
        return self.runner.describe()

    def run(self, jobs, *, chunk=1):
        yield 0, self.runner.run(jobs[:1])[0]
        raise KeyboardInterrupt


def test_several_processes_give_the_records_and_the_comparison_of_one(tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    task, asked = regression(), {"methods": ["taylorglo", "gp-lfl"], "search_seeds": 2, "losses": ["mae"], "seeds": 2}
    expected = compare(task, folder=one, **asked, **COMMON)
    lines = Lines()
    found = compare(task, folder=two, jobs=2, listener=lines, **asked, **COMMON)
    assert document(found) == document(expected)
    assert trainings(two) == trainings(one)
    names = ["gp-lfl-0", "gp-lfl-1", "taylorglo-0", "taylorglo-1"]
    assert sorted(path.name for path in (two / "searches").iterdir()) == names
    for name in names:
        assert dump_of(two / "searches" / name) == dump_of(one / "searches" / name)
    assert lines.announced[0] == "4 searches in 2 processes"
    done = [line for line in lines.announced if " is done: " in line]
    assert [line.partition(" is done: ")[0] for line in done] == [f"search {number} of 4" for number in range(1, 5)]
    assert any("taylorglo, seed 1 found " in line for line in done)
    assert lines.expected == lines.done > 0
    # Ctrl-C after the first search, and the same again in one process.
    stopped = tmp_path / "stopped"
    with monkeypatch.context() as patched:
        patched.setattr(ComparisonPlan, "workers", lambda *_: contextlib.nullcontext(Interrupted()))
        with pytest.raises(KeyboardInterrupt):
            compare(task, folder=stopped, jobs=2, **asked, **COMMON)
    assert len([*(stopped / "searches").glob("*/best.json")]) == 1
    assert document(compare(task, folder=stopped, **asked, **COMMON)) == document(expected)
    assert trainings(stopped) == trainings(one)


TASK = """
import os, time
from pathlib import Path
import numpy as np
import torch
from evomal import Task

HERE, PROGRAM = Path(__file__).parent, os.getpid()

def model():
    # Workers wait here when the third search has begun, so that Ctrl-C always finds the comparison unfinished.
    while os.getpid() != PROGRAM and (HERE / "wait").exists() and len([*HERE.glob("found/searches/*/run.sqlite")]) == 3:
        time.sleep(0.05)
    return torch.nn.Linear(4, 1)

def make():
    x = np.random.default_rng(0).normal(size=(120, 4))
    return Task.from_arrays(x, x.sum(1), model=model, kind="regression")
"""


@pytest.mark.long
def test_ctrl_c_ends_all_processes_and_the_same_command_resumes_with_any_number_of_them(tmp_path):
    (tmp_path / "own.py").write_text(TASK)
    (tmp_path / "wait").touch()

    def command(folder, *options):
        short = {**SHORT, "generations": 2, "finalists": 2}
        settings = [text for key, value in short.items() for text in ("--set", f"{key}={setting_text(value)}")]
        fixed = ["compare", f"{tmp_path / 'own.py'}:make", "--device", "cpu"]
        asked = ["--methods", "taylorglo", "--search-seeds", "3", "--seeds", "1", "--set", "final_steps=20"]
        return [*fixed, *asked, *settings, "--out", str(folder), *options]

    words = [sys.executable, "-m", "evomal", *command(tmp_path / "found", "--jobs", "2")]
    with begun(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        while "search 1 of 3 is done" not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = process.stderr.read()
        assert process.wait(timeout=100) == 130
        assert "give the same command again to resume" in said
        assert "Traceback" not in said, said
        deadline = time.monotonic() + 20
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(process.pid, 0)  # loky's own processes end when nothing is left for them to watch
                time.sleep(0.1)
            pytest.fail("a process of the comparison is left")
    assert not (tmp_path / "found" / "comparison.json").exists()
    (tmp_path / "wait").unlink()
    documents = []
    for folder in (tmp_path / "found", tmp_path / "whole"):
        assert commanded(command(folder)) == 0
        written = json.loads((folder / "comparison.json").read_text())
        documents.append({key: value for key, value in written.items() if key != "command"})
    assert documents[0] == documents[1]


def test_arguments_that_cannot_be_are_refused_before_anything_is_run():
    with pytest.raises(InputError, match=r"^jobs must be at least 1 but got 0$"):
        compare(regression(), jobs=0)
    with pytest.raises(InputError, match=r"^jobs must be 1 with executor ray, which has workers, but got 2$"):
        transfer(regression(), losses=["mae"], jobs=2, executor="ray")
    lock = threading.Lock()
    task = regression(model=lambda: torch.nn.Linear(4 if lock else 3, 1))
    with pytest.raises(InputError, match=r"^task\.model\.lock is a lock, which cannot be sent to a worker: "):
        compare(task, losses=["mae"], seeds=1, jobs=2, **COMMON)
