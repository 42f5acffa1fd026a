"""Commands that start a cluster: the terminal stays clean, and nothing is left behind."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from evomal.errors import InputError
from evomal.runs.executors.cluster import _LONGEST_FOLDER
from evomal.runs.run_loop import search
from tests.engine.populations import regression
from tests.processes import begun
from tests.protocols import OPTIONS
from tests.runs.executors.clusters import USERS_TASK, begun_with
from tests.searches import ROOT, commanded, dump_of

pytest.importorskip("ray")

FILE = (
    USERS_TASK
    + """
SETTINGS = dict(
    preset="paper", population=4, generations=1, meta_steps=2, training_steps=20, filter_steps=10, device="cpu",
    threads=1, population_mode="looped", filters=("symbolic",), finalists=10,
)

if __name__ == "__main__":
    import sys
    from evomal.runs.run_loop import search

    search(make(), folder=sys.argv[1], executor="ray", address=sys.argv[2], workers=1, **SETTINGS)
    print("done")
"""
)
TYPED = [
    *OPTIONS, "--set", "population=4", "--set", "generations=1", "--set", "meta_steps=2", "--set", "training_steps=20",
    "--set", "filter_steps=10", "--set", "threads=1", "--set", "population_mode=looped", "--set", "filters=symbolic",
    "--device", "cpu",
]  # fmt: skip


@pytest.fixture
def users_folder(tmp_path):
    (tmp_path / "beside.py").write_text("WIDTH = 2\n")
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path


@pytest.fixture
def place(rays_folder):
    """Where the commands put what Ray needs: with the longest path that leaves room for Ray's sockets."""
    folder = rays_folder / ("p" * (_LONGEST_FOLDER - len("/ray-12345678") - len(os.fsencode(rays_folder)) - 1))
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def finished(tmp_path, place):
    """Runs a command in a process group of its own and checks that no process is left."""

    def run(*command, cwd, meanwhile=None):
        mark = f"EVOMAL_TEST={tmp_path}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "EVOMAL_TEST": str(tmp_path)}
        options = {"cwd": cwd, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with begun([sys.executable, *command], env={**environment, "RAY_TMPDIR": str(place)}, **options) as process:
            if meanwhile is not None:
                meanwhile(process)
            out, err = process.communicate(timeout=200)
        deadline = time.monotonic() + 120
        while (left := begun_with(mark)) and time.monotonic() < deadline:
            time.sleep(0.2)
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        assert not left
        return process.returncode, out, err

    return run


def candidates_of(folder):
    return dump_of(folder).splitlines()[1:]


@pytest.fixture
def local(users_folder, monkeypatch):
    """The candidates of the search in this process."""
    monkeypatch.chdir(users_folder)
    assert commanded(["search", "mine.py:make", *TYPED, "--out", "local"]) == 0
    return candidates_of(users_folder / "local")


def test_a_users_file_searched_by_a_script_gives_the_local_record(finished, users_folder, cluster, place, local):
    code, out, err = finished("mine.py", "script", cluster.address, cwd=users_folder)
    assert (code, out, err) == (0, "done\n", "")
    assert candidates_of(users_folder / "script") == local
    assert list(place.iterdir()) == []


@pytest.mark.long  # the command starts a cluster of its own
def test_a_users_file_searched_by_the_command_gives_the_local_record(finished, users_folder, place, local):
    code, out, err = finished(
        "-m", "evomal", "search", "mine.py:make", *TYPED, "--executor", "ray", "--workers", "2", "--out", "command",
        "--json", cwd=users_folder,
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["tasks"] == ["own"]
    name = os.uname().nodename
    lines = [line for line in err.splitlines() if "waiting until" not in line]  # on a busy machine
    assert lines[0] in (f"evomal: {n} of 2 workers: {n} × cpu on {name}" for n in (1, 2))
    assert all(line.startswith(("evomal: ", "rivals: ", "generation ", "final: ")) for line in lines)
    assert candidates_of(users_folder / "command") == local
    assert list(place.iterdir()) == []


def wait_until_begun(folder):
    """Wait until a generation is recorded."""
    deadline = time.monotonic() + 100
    while not (folder / "best.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.long
def test_an_interrupted_search_ends_at_once_and_is_resumed_elsewhere(finished, users_folder, place):
    def interrupt(process):
        wait_until_begun(users_folder / "run")
        os.killpg(process.pid, signal.SIGINT)

    code, out, err = finished(
        "-m", "evomal", "search", "mine.py:make", *TYPED, "--set", "generations=1000", "--executor", "ray",
        "--workers", "1", "--out", "run", cwd=users_folder, meanwhile=interrupt,
    )  # fmt: skip
    assert (code, out) == (130, "")
    assert err.splitlines()[-2:] == [
        "stopping after this step; press Ctrl-C again to stop at once",
        f"evomal: interrupted; resume with `evomal resume run --task {users_folder / 'mine.py'}:make`",
    ]
    budget = ["--set", "max_evaluations=1"]
    assert list(place.iterdir()) == []
    code, _, err = finished(
        "-m", "evomal", "resume", "run", *budget, "--executor", "local", "--trust", cwd=users_folder
    )
    assert code == 0, err


@pytest.mark.long  # Ray's agents end a minute after their cluster
def test_a_killed_driver_leaves_no_processes(finished, users_folder):
    def kill(process):
        wait_until_begun(users_folder / "run")
        process.kill()

    code, *_ = finished(
        "-m", "evomal", "search", "mine.py:make", *TYPED, "--set", "generations=1000", "--executor", "ray",
        "--workers", "1", "--out", "run", cwd=users_folder, meanwhile=kill,
    )  # fmt: skip
    assert code == -signal.SIGKILL


def test_without_ray_it_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"^executor ray needs ray, which is not installed: pip install"):
        search(regression(), executor="ray")


def test_an_address_without_a_cluster_is_one_sentence():
    with pytest.raises(InputError) as caught:
        search(regression(), executor="ray", address="127.0.0.1:1")
    assert str(caught.value) == "no Ray cluster answers at 127.0.0.1:1: [Errno 111] Connection refused"
