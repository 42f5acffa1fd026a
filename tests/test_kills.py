"""Commands that write, killed at any moment: files are whole, and the same command again comes to the same result."""

import json
import os
import sys
from pathlib import Path

import pytest
import typer.main

from evomal.cli import app
from tests.kills import WAYS, WORKS
from tests.processes import finished

ROOT = Path(__file__).parents[1]
MANY = {
    "compare": 60,
    "compare methods": 40,
    "compare rates": 40,
    "transfer": 40,
    "compare jobs": 10,
    "campaign": 40,
    "campaign jobs": 8,
    "search with stops": 40,
    "unpack": 60,
    "report": 30,
    "card": 30,
    "analyse": 30,
    "export": 110,
    "save_loss": 200,
    "search jobs": 8,
}
"""Kills of `make test-long`; those of searches and of records beside them make a thousand together."""
SLOW = {"compare jobs", "campaign", "campaign jobs", "search with stops", "search jobs"}
"""Killed by `make test-long` only."""


def killed(top, kills, *works):
    """What was seen of each work, killed so many times."""
    # Where there is a GPU, autograd starts threads that a forked command would miss.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    result = finished([sys.executable, "-m", "tests.kills", top, kills, *works], 1800, cwd=ROOT, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    seen = json.loads(result.stdout)
    assert seen.keys() == {*works}
    for seen_of_one in seen.values():
        assert sum(seen_of_one.get(way, 0) for way in WAYS) == kills
        assert seen_of_one["completed"] >= 1
    return seen


def test_killed_twice_it_is_as_if_it_had_not_been(tmp_path):
    seen = killed(tmp_path, 2, *(work for work in WORKS if work not in SLOW))  # one process, as imports take seconds
    assert all(seen_of_one["in a write"] for seen_of_one in seen.values())
    assert seen["compare"]["at a sync or replacement"]


@pytest.mark.long
@pytest.mark.parametrize("work", WORKS)
def test_killed_many_times_it_is_as_if_it_had_not_been(tmp_path, work):
    seen = killed(tmp_path, MANY[work], work)[work]
    assert all(seen.get(way, 0) >= MANY[work] // 10 for way in WORKS[work].ways)
    if work in ("compare", "compare rates"):
        assert seen["logs"] >= 5, "too few were killed between two trainings"


def test_every_command_that_writes_is_killed():
    # `resume` is killed with searches, `data` by unpacking, and `serve` by requests to stop; the others write nothing.
    beside = {"resume", "data", "serve", "headroom", "runs", "train"}
    beside |= {"losses", "procedures", "tasks", "models", "methods", "doctor"}
    known = {*typer.main.get_command(app).commands}
    assert known - {name.split()[0] for name in WORKS} == beside


def test_make_test_long_kills_a_thousand_times():
    from tests.runs import test_killed, test_killed_searches

    assert sum(MANY.values()) + test_killed.MANY + test_killed_searches.MANY >= 1_000
