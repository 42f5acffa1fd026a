"""Worker processes on this machine: jobs survive their death once, and they never survive the program."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from evomal.engine import device_memory
from evomal.errors import DeviceError, EvomalError, InputError
from evomal.methods import Failure
from evomal.runs.executors.process_pool import ProcessPool
from tests.processes import begun, is_alive

SCRIPT = """
import os, sys, time
from evomal.runs.executors.process_pool import ProcessPool

class Sleeper:
    def describe(self):
        return {"process": os.getpid()}

    def run(self, jobs):
        time.sleep(1000)

pool = ProcessPool(1, threads=1)
print(pool.prepare(Sleeper)["process"], flush=True)
list(pool.run([0]))
"""

GROWING = """
import itertools, types
sizes = itertools.count(step=10**9)
Process = lambda pid: types.SimpleNamespace(memory_info=lambda: types.SimpleNamespace(rss=next(sizes)))
"""

SLOW = """
import os, sys, time
from evomal.runs.executors.process_pool import ProcessPool

class Slow:
    def describe(self):
        return {}

    def run(self, jobs):
        time.sleep(1.1)  # loky looks at the memory of a process once a second
        return [os.getpid()]

os.environ["PYTHONPATH"] = sys.argv[1] + os.pathsep + os.environ.get("PYTHONPATH", "")  # of the worker
with ProcessPool(1, threads=1) as pool:
    pool.prepare(Slow)
    print(*(process for _, process in pool.run([0] * 4)))
"""

STARTING = """
import os, signal
from joblib.externals.loky import process_executor
from evomal.runs.executors.process_pool import ProcessPool

class Killing:
    def on_steps(self, *_):
        print(*pool._places[0].executor._processes, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

process_executor._ExecutorManagerThread.add_call_item_to_queue = lambda _: None  # killed before anything was sent
pool = ProcessPool(1, threads=1, listener=Killing())
pool.prepare(dict)
"""


class Runner:
    """Runs jobs by their names."""

    def __init__(self, text, *, folder):
        self._text, self._folder = text, folder

    def describe(self):
        return {"text": self._text, "threads": torch.get_num_threads(), "sharing": device_memory._processes}

    def run(self, jobs):
        return [getattr(self, job)() for job in jobs]

    def work(self):
        return self._text

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        return "went on"

    def killed_once(self):
        if not (self._folder / "killed").exists():
            (self._folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "came back"

    def out_of_memory(self):
        raise MemoryError

    def gpu_fails(self):
        raise torch.AcceleratorError("CUDA error: unspecified launch failure\nSearch for it")

    def gpu_fails_once(self):
        if not (self._folder / "failed").exists():
            (self._folder / "failed").touch()
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nSearch for it")
        return "another process"

    def unreadable(self):
        return Unreadable()

    def process(self):
        return os.getpid()

    def refused(self):
        raise InputError("lr must be more than 0 but got 0")


def refuse_to_be_read():
    raise ValueError("this is read in workers only")


class Unreadable:
    """An answer that raises an error where it is read."""

    def __reduce__(self):
        return refuse_to_be_read, ()


class WithoutGpu(Runner):
    """Its GPU fails before it is built."""

    def __init__(self, *, folder):
        raise torch.AcceleratorError("CUDA error: unspecified launch failure\nSearch for it")


class Crowded(Runner):
    """There is room for one process at a time, and for none once a file says so."""

    def __init__(self, *, folder):
        super().__init__("built", folder=folder)
        if (folder / "full").exists():
            raise MemoryError
        try:
            (folder / "room").touch(exist_ok=False)
        except FileExistsError:
            raise MemoryError from None

    def leave(self):
        (self._folder / "room").unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    def close(self):
        (self._folder / "full").touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Listener:
    """Notes what is said."""

    def __init__(self):
        self.said, self.is_stopping = [], False

    def on_steps(self, stage, steps):
        if self.is_stopping:
            raise KeyboardInterrupt

    def say(self, sentence):
        self.said.append(sentence)


def test_jobs_of_a_process_that_dies_are_run_again_once(tmp_path):
    listener = Listener()
    with ProcessPool(2, threads=1, listener=listener) as pool:
        assert pool.prepare(Runner, "first", folder=tmp_path) == {"text": "first", "threads": 1, "sharing": 2}
        jobs = ["work", "killed_once", "interrupted", "out_of_memory", "gpu_fails_once"]
        given_up = Failure("its process ran out of memory (2 times)")
        assert dict(pool.run(jobs)) == {
            0: "first", 1: "came back", 2: "went on", 3: given_up, 4: "another process"
        }  # fmt: skip
        assert sorted(listener.said) == [
            "a worker process was lost: its process ran out of memory",
            "a worker process was lost: its process ran out of memory",
            "a worker process was lost: its process was killed",
            "a worker process was lost: the GPU failed: CUDA error: an illegal memory access was encountered",
        ]
        assert pool.prepare(Runner, "second", folder=tmp_path)["text"] == "second"
        assert dict(pool.run(["work"] * 3)) == dict.fromkeys(range(3), "second")
        with pytest.raises(InputError, match=r"^lr must be more than 0 but got 0$"):
            list(pool.run(["work", "refused"]))
        assert dict(pool.run(["work"])) == {0: "second"}
        listener.is_stopping = True
        usual = sys.getswitchinterval()
        sys.setswitchinterval(0.5)  # so that the pool is closed before other threads have noted the job
        try:
            with pytest.raises(KeyboardInterrupt):
                list(pool.run(["work"]))
            pool.__exit__()
        finally:
            sys.setswitchinterval(usual)


def test_of_a_job_that_is_given_up_is_known_if_a_gpu_failed(tmp_path):
    with ProcessPool(2, threads=1) as pool:
        pool.prepare(Runner, "first", folder=tmp_path)
        found = dict(pool.run(["work", "gpu_fails", "out_of_memory"]))
    assert found[0] == "first"
    assert found[1] == Failure("the GPU failed: CUDA error: unspecified launch failure (2 times)")
    assert [found[index].is_of_device for index in (1, 2)] == [True, False]


def test_an_answer_that_cannot_be_read_is_a_lost_process(tmp_path):
    with ProcessPool(1, threads=1) as pool:
        pool.prepare(Runner, "first", folder=tmp_path)
        assert dict(pool.run(["unreadable", "work"])) == {0: Failure("its process died (2 times)"), 1: "first"}


def test_a_gpu_that_fails_while_processes_start_is_said(tmp_path):
    listener = Listener()
    failure = "the GPU failed: CUDA error: unspecified launch failure"
    with ProcessPool(2, threads=1, listener=listener) as pool:
        with pytest.raises(DeviceError, match=f"^no worker process could be started: {failure}$"):
            pool.prepare(WithoutGpu, folder=tmp_path)
        assert listener.said
        assert all(
            sentence.startswith(f"a worker process was lost before it was ready: {failure}")
            for sentence in listener.said
        )
        assert pool.prepare(Runner, "later", folder=tmp_path)["text"] == "later"


def test_a_process_without_room_is_not_started_for_ever(tmp_path):
    listener = Listener()
    with ProcessPool(2, threads=1, listener=listener) as pool:
        pool.prepare(Crowded, folder=tmp_path)
        lost = "a worker process was lost before it was ready: its process ran out of memory"
        assert listener.said == [lost, f"{lost}; 1 of 2 worker processes is left"]
        assert dict(pool.run(["work"] * 5)) == dict.fromkeys(range(5), "built")
        # The only process is lost with a job, and the next one has room.
        assert dict(pool.run(["work", "leave", "work"])) == {
            0: "built", 1: Failure("its process was killed (2 times)"), 2: "built"
        }  # fmt: skip
        assert len(listener.said) == 4
        # Now none has: no job is blamed for it.
        with pytest.raises(EvomalError, match=r"^no worker process could be started: its process ran out of memory$"):
            list(pool.run(["close", "work"]))
        (tmp_path / "full").unlink()
        (tmp_path / "room").unlink()
        assert pool.prepare(Crowded, folder=tmp_path)["text"] == "built"


def kill_while_idle(pool):
    (place,) = pool._places
    executor, ((_, process),) = place.executor, pool.run(["process"])
    os.kill(process, signal.SIGKILL)
    while not executor._flags.broken:
        time.sleep(0.01)


def test_no_job_is_to_blame_for_a_process_that_was_killed_before_it_began(tmp_path):
    listener = Listener()
    with ProcessPool(1, threads=1, listener=listener) as pool:
        pool.prepare(Crowded, folder=tmp_path)
        kill_while_idle(pool)
        (tmp_path / "room").unlink()
        assert dict(pool.run(["work"] * 3)) == dict.fromkeys(range(3), "built")
        assert listener.said == []
        kill_while_idle(pool)  # and there is no room for another
        with pytest.raises(EvomalError, match=r"^no worker process could be started: its process ran out of memory$"):
            list(pool.run(["work"]))
        assert listener.said == ["a worker process was lost before it was ready: its process ran out of memory"]


def test_a_process_that_grows_is_not_restarted(tmp_path):
    (tmp_path / "psutil.py").write_text(GROWING)
    found = subprocess.run(
        [sys.executable, "-c", SLOW, str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )
    assert len(found.stdout.split()) == 4
    assert len({*found.stdout.split()}) == 1


def test_what_cannot_be_sent_to_a_process_is_named():
    with ProcessPool(1, threads=1) as pool, pytest.raises(InputError, match=r"^lock is a lock, which cannot be sent"):
        pool.prepare(Runner, threading.Lock(), folder=None)


def require_end(process):
    """Wait until a process has ended."""
    deadline = time.monotonic() + 60
    while is_alive(process):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_process_ends_with_the_program_and_a_script_needs_no_guard(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    with begun([sys.executable, tmp_path / "script.py"], stdout=subprocess.PIPE, text=True) as program:
        process = int(program.stdout.readline())
        assert is_alive(process)
        program.kill()
        require_end(process)


def test_a_process_that_was_not_asked_for_anything_yet_ends_with_the_program(tmp_path):
    with begun([sys.executable, "-c", STARTING], stdout=subprocess.PIPE, text=True) as program:
        require_end(int(program.stdout.readline()))
