"""A test that fails leaves no process behind, nor what that process has begun."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

from tests.processes import begun, finished, is_alive

FORKING = """
import os, time
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(1000)
"""


def require_ended(number):
    """A process that was killed still takes a moment to end."""
    deadline = time.monotonic() + 30
    while is_alive(number) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(number)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc")
def test_a_block_that_fails_ends_the_process_and_its_children():
    with (
        contextlib.suppress(ZeroDivisionError),
        begun([sys.executable, "-c", FORKING], stdout=subprocess.PIPE) as process,
    ):
        child = int(process.stdout.readline())
        assert is_alive(process.pid)
        assert is_alive(child)
        raise ZeroDivisionError
    require_ended(child)
    assert not is_alive(process.pid)
    assert process.returncode == -9


def test_a_process_that_takes_too_long_is_ended():
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        finished([sys.executable, "-c", FORKING], 5)
    require_ended(int(caught.value.stdout))


def test_what_ends_by_itself_is_told_whole():
    done = finished([sys.executable, "-c", "import sys; print(1); sys.exit('two')"], 100)
    assert (done.returncode, done.stdout, done.stderr) == (1, "1\n", "two\n")
