"""A Ray cluster of two nodes on this machine, and the job runners of its workers in tests."""

import contextlib
import os
import signal
import tempfile
import time
from pathlib import Path

import pytest
import torch

from evomal.runs.executors.cluster import _temporary_folder

SEAT = {"seat": 1}
"""A resource that every node has once, so that workers that need it run on different nodes."""
NODE = {"num_cpus": 4, "object_store_memory": 80 * 2**20, "include_dashboard": False, "resources": SEAT}


@contextlib.contextmanager
def two_nodes():
    """A head and a node, each with four processors as Ray counts them; both are removed afterwards."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster()
    try:
        # Whichever folder it is told to use, Ray notes the head's address in its default one, which must exist: only
        # without an argument does it make that one, below RAY_TMPDIR.
        cluster.add_node(**NODE)
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


@contextlib.contextmanager
def rays_own_folder():
    """A new folder in place of Ray's default one, which stays as it is."""
    with pytest.MonkeyPatch.context() as patch:
        # Another such folder is made in it, which leaves 15 bytes of those that Ray's sockets may have.
        if len(os.fsencode(tempfile.gettempdir())) > 15:
            patch.setenv("RAY_TMPDIR", "/tmp")
        with _temporary_folder() as folder:
            patch.setenv("RAY_TMPDIR", str(folder))
            yield folder


class Doubling:
    """Doubles numbers; some words have worse effects."""

    def __init__(self, factor, **answers):
        self._factor, self._answers = factor, answers

    def describe(self):
        return {"factor": self._factor, **self._answers}

    def run(self, jobs):
        return [self._doubled(number) for number in jobs]

    def _doubled(self, number):
        if number == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == "hangs":
            time.sleep(1000)
        if number == "is too large":
            torch.empty(2**50)
        if number == "meets a broken GPU":
            raise torch.AcceleratorError("CUDA error: busy")
        if number == "a defect":
            raise AttributeError("there is no such thing")
        if isinstance(number, str):
            raise KeyError(number)
        return self._factor * number


class Slow(Doubling):
    """Doubles numbers; the second worker takes long to build it. Files in a folder count them."""

    def __init__(self, factor, *, folder, seconds):
        super().__init__(factor, tag=Path(folder).name)
        number = 0
        while number < 5:
            with contextlib.suppress(FileExistsError):
                (Path(folder) / str(number)).touch(exist_ok=False)
                break
            number += 1
        if number == 1:
            time.sleep(seconds)


def workers(words="ray::Worker"):
    """Process ids of this process's own workers whose title begins with these words."""
    parents, titles = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            number = int(folder.name)
            parents[number] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            titles[number] = (folder / "cmdline").read_text()
    found = {os.getpid()}
    while more := {number for number, parent in parents.items() if parent in found} - found:
        found |= more
    return {number for number in found if titles.get(number, "").startswith(words)}


def workers_of(node):
    """Process ids of the workers on one node of the cluster."""
    raylet = node.all_processes["raylet"][0].process.pid
    return {number for number in workers() if _parent(number) == raylet}


def wait_until_gone(numbers, patience=100):
    """Wait until all these processes have ended; a zombie has no command."""
    deadline = time.monotonic() + patience
    while any(_command(number).startswith("ray::") for number in numbers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _parent(number):
    try:
        return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _command(number):
    try:
        return Path(f"/proc/{number}/cmdline").read_text()
    except OSError:
        return ""


def begun_with(mark):
    """Process ids of processes with this text in their environment, which child processes inherit."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.add(int(folder.name))
    return found


USERS_TASK = """
import torch
from evomal import Task
from beside import WIDTH

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, WIDTH)

    def forward(self, inputs):
        return self.layer(inputs)

def make():
    rows = torch.sin(torch.arange(270.0)).reshape(90, 3).numpy()
    return Task.from_arrays(rows, (rows.sum(1) > 0).astype(int), model=Net)
"""
"""A user's task, in a file that imports another file of the same folder."""
