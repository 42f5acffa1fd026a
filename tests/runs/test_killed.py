"""Killed at any moment, a run is found as it was after its last chunk."""

import shutil
import sys
from pathlib import Path

import pytest

from evomal.runs import RunStore
from tests.processes import finished
from tests.runs.test_store import written

ROOT = Path(__file__).parents[2]
MANY = 300
"""Kills of `make test-long`."""
# Importing takes seconds, so one process prepares everything and forks the writers that are killed.
KILLER = """
import os, signal, sys, time, traceback
from pathlib import Path
from evomal.randomness import generator
from evomal.runs import RunStore, store as store_module
from tests.runs.test_store import SETTINGS, chunk_of

top, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def die_in_a_chunk(rows_left):
    insert = store_module.insert

    def inserting(connection, table, values):
        nonlocal rows_left
        if table == "candidates":  # and not the settings, which the first writer of a folder records
            rows_left -= 1
            if rows_left < 0 and values[1] % 5 == 4:  # the last of its chunk, when the others are in the file
                os.kill(os.getpid(), signal.SIGKILL)
        return insert(connection, table, values)

    store_module.insert = inserting


def write(folder, pipe):
    if (folder / "run.sqlite").exists():
        store = RunStore.open(folder)
    else:
        store = RunStore.create(folder, SETTINGS)
    store._connection.execute("PRAGMA cache_size = 1")  # pages go to the file before the commit, too
    number = len(store.complete_chunks())
    while True:
        store.write_chunk(number // 2, chunk_of(number, 1000))
        os.write(pipe, b".")
        number += 1


def committed(folder):
    if not (folder / "run.sqlite").exists():
        return 0
    with RunStore.read(folder) as store:
        return len(store.complete_chunks())


hot = 0
for kill in range(kills):
    rng = generator(seed, "kill", kill)
    folder = top / str(kill // 5)
    journal = folder / "run.sqlite-journal"
    before = committed(folder)
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if kill % 4 == 3:
                die_in_a_chunk(int(rng.integers(20)))
            write(folder, into)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(into)
    if kill % 4 != 3:
        time.sleep(rng.uniform(0.0, 0.15))
        deadline = time.monotonic() + 10
        while kill % 2 and not journal.exists() and time.monotonic() < deadline:
            pass
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"writer {kill} ended by itself with status {status}"
    reported = 0
    while piece := os.read(out, 65536):
        reported += len(piece)
    os.close(out)
    hot += journal.exists() and journal.read_bytes()[:1] not in (b"", b"\\0")  # otherwise nothing is to be undone
    after = committed(folder)
    # A chunk may be committed and its writer killed before it could say so.
    assert before + reported <= after <= before + reported + 1, (before, reported, after)
print(hot)
"""


def interrupted_in_a_commit(folder: Path) -> str:
    """Leave in the folder what a crash leaves in the middle of a write, and give the dump from before that."""
    origin = folder / "origin"
    written(origin, 4, size=300)
    with RunStore.open(origin) as store:
        before = store.dump()
        store._connection.execute("PRAGMA cache_size = 1")
        store._connection.execute("BEGIN IMMEDIATE")
        store._connection.execute("UPDATE candidates SET sentence = 'changed', weights = weights || weights")
        for name in ("run.sqlite", "run.sqlite-journal"):
            shutil.copy(origin / name, folder)
        store._connection.execute("ROLLBACK")
    assert (origin / "run.sqlite").read_bytes() != (folder / "run.sqlite").read_bytes()
    return before


@pytest.mark.parametrize("opened", [RunStore.open, RunStore.read])
def test_half_a_commit_is_undone(tmp_path, opened):
    before = interrupted_in_a_commit(tmp_path)
    with opened(tmp_path) as store:
        assert store.dump() == before
    assert not (tmp_path / "run.sqlite-journal").exists()


def killed(top: Path, kills: int, seed: int) -> None:
    command = [sys.executable, "-c", KILLER, str(top), str(kills), str(seed)]
    result = finished(command, 1800, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= kills // 4, "too few were killed in the middle of a write"
    for folder in sorted(top.iterdir()):
        with RunStore.open(folder) as store:
            chunks, dump = len(store.complete_chunks()), store.dump()
        written(top / f"{folder.name}-whole", chunks, size=1000)
        with RunStore.read(top / f"{folder.name}-whole") as store:
            assert store.dump() == dump


def test_killed_at_random_moments(tmp_path):
    killed(tmp_path, 16, seed=17)  # its last one is killed in the first chunk of a new folder


@pytest.mark.long
def test_killed_at_many_random_moments(tmp_path):
    killed(tmp_path, MANY, seed=1)
