"""Whole searches: killed at any moment and resumed, or begun twice, they come to the same record."""

import json
import os
import sys
from collections import Counter

import pytest

from evomal.runs.run_loop import search
from evomal.tasks import load_task
from evomal.threads import thread_count
from tests.processes import finished
from tests.searches import HALF, HOT, ROOT, SEARCHES, SHORT, WAYS, commanded, dump_of, search_arguments

MANY = 120
"""Kills of `make test-long`."""


def killed(top, searches: int, kills: int) -> dict[str, int]:
    """Kill searches and compare them with uninterrupted ones; how often they were killed, how, and what was left."""
    # Where there is a GPU, autograd starts threads that a forked search would miss.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tests.searches", str(top), str(searches), str(kills)]
    result = finished(command, 1800, cwd=ROOT, env=environment)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_search_killed_six_times_is_the_uninterrupted_one(tmp_path):
    seen = killed(tmp_path, 1, 6)
    assert sum(seen.get(way, 0) for way in WAYS) == 6
    assert seen["in the final"] >= 1
    assert seen[HOT] >= seen["in an insert"] >= 1
    assert seen[HALF] >= 1


@pytest.mark.long
def test_searches_of_all_methods_killed_many_times_are_the_uninterrupted_ones(tmp_path):
    seen = killed(tmp_path, len(SEARCHES), MANY)
    assert sum(seen.get(way, 0) for way in WAYS) == MANY
    assert min(seen.get(way, 0) for way in WAYS) >= 3
    assert seen[HOT] >= 5
    assert seen[HALF] >= 5
    assert all(seen.get(f"with {generations} generations", 0) for generations in range(1, SHORT["generations"]))


def test_two_processes_with_one_seed_come_to_the_same_record(tmp_path):
    # What depends on the order of a set would differ between this process and one with another seed of hashes.
    few = {"generations": 2, "finalists": 2, "final_seeds": 2}
    command = [sys.executable, "-m", "evomal", *search_arguments(tmp_path / "one", "--seed", 1, **few)]
    environment = {**os.environ, "PYTHONHASHSEED": "3", "OMP_NUM_THREADS": "1"}
    done = finished(command, 300, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    with thread_count(1):
        assert commanded(search_arguments(tmp_path / "two", "--seed", 1, **few)) == 0
    assert dump_of(tmp_path / "one") == dump_of(tmp_path / "two")
    assert (tmp_path / "one" / "best.json").read_bytes() == (tmp_path / "two" / "best.json").read_bytes()


@pytest.mark.parametrize("inner_steps", [1, 2])
def test_chunks_change_no_candidate_where_they_are_trained_one_after_the_other(tmp_path, inner_steps):
    task = load_task("diabetes", "mlp:hidden=8")
    settings = {**SHORT, "generations": 2, "device": "cpu", "population_mode": "looped", "inner_steps": inner_steps}
    settings |= {"finalists": 2, "final_seeds": 2}
    records = []
    for chunk in (1, 2, None):
        folder = tmp_path / str(chunk)
        search(task, folder=folder, seed=1, chunk=chunk, **settings)
        description, *rest = dump_of(folder).splitlines()
        assert json.loads(description)["settings"]["chunk"] == chunk
        records.append((rest, (folder / "best.json").read_bytes()))
    kinds = Counter(json.loads(line)["kind"] for line in records[0][0])
    assert (kinds["chunk"], kinds["candidate"], kinds["ending"]) == (2, 2 * 6, 1)
    assert kinds["trial"] > 3 + 2 * 3, "three rivals, then with two seeds again and finalists beside them"
    assert records[0] == records[1] == records[2]
