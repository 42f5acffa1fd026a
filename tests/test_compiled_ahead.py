"""A second process compiles kernels into the cache; whatever becomes of it, kernels work and nothing is left."""

import importlib
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest

from evomal import compiled_ahead

MODULE = """
from numba import types
from evomal import compiled_ahead
from evomal.compiled import kernel

@kernel()
def add_one(x):
    return x + 1

@kernel()
def add_two(x):
    return x + 2

KERNELS = [(add_one, (types.intp,)), (add_two, (types.intp,))]

def compile_kernels():
    compiled_ahead.report(kernel.compile(signature) for kernel, signature in KERNELS)
"""
COMPILES = "import numba_sample; numba_sample.compile_kernels()"
WAITS = "import time; time.sleep(60)"


@pytest.fixture
def sample(tmp_path, monkeypatch):
    """A module with two kernels and an empty cache."""
    (tmp_path / "numba_sample.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    compiled_ahead.end()  # another test of this process may have left one
    yield importlib.import_module("numba_sample")
    compiled_ahead.end()
    del sys.modules["numba_sample"]


def _start(sample, code: str) -> None:
    compiled_ahead.start(code, [(kernel.py_func, signature) for kernel, signature in sample.KERNELS])


def _found(sample) -> list[int]:
    """How often each kernel was found in the cache when it was called."""
    assert [sample.add_one(1), sample.add_two(1)] == [2, 3]
    return [sum(kernel.stats.cache_hits.values()) for kernel, _ in sample.KERNELS]


def test_kernels_are_compiled_by_the_other_process_only(sample):
    _start(sample, COMPILES)
    process = compiled_ahead._process
    assert _found(sample) == [1, 1]
    assert process.returncode is not None
    assert compiled_ahead._process is None


def test_a_kernel_for_other_types_does_not_wait(sample):
    _start(sample, WAITS)
    assert sample.add_one(1.5) == 2.5


def test_kernels_are_compiled_here_if_the_other_process_fails(sample, capfd):
    _start(sample, "import no_such_module")
    assert _found(sample) == [0, 0]
    assert capfd.readouterr() == ("", "")


def test_kernels_are_compiled_here_if_the_other_process_is_killed(sample):
    _start(sample, WAITS)
    compiled_ahead._process.kill()
    assert _found(sample) == [0, 0]


def test_kernels_are_compiled_here_if_no_process_can_be_started(sample, monkeypatch):
    monkeypatch.setattr(sys, "executable", "no/such/python")
    _start(sample, COMPILES)
    assert _found(sample) == [0, 0]


STARTS = """
import os, signal, sys
from evomal import compiled_ahead
code = "import time; from evomal import compiled_ahead; compiled_ahead.report(time.sleep(60) for _ in (1,))"
compiled_ahead.start(code, ["a kernel"])
print(compiled_ahead._process.pid, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the state of a process from /proc")
@pytest.mark.parametrize("ending", ["", "raise SystemExit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_process_ends_with_the_one_that_started_it(ending):
    done = subprocess.run([sys.executable, "-c", STARTS + ending], capture_output=True, text=True, timeout=60)
    status = Path(f"/proc/{int(done.stdout)}/stat")
    deadline = time.monotonic() + 20
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)
