"""Processes begun by tests, of which none outlives its test, however that one ends."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest


@contextlib.contextmanager
def begun(command, **options):
    """A process in a group of its own, killed at the end of the block with all of the group that is left."""
    with subprocess.Popen([*map(str, command)], start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def is_alive(number):
    """Whether a process runs: one that has ended but that its parent did not wait for does not."""
    with contextlib.suppress(OSError), open(f"/proc/{number}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


def finished(command, timeout, **options):
    """What a process printed by its end and its exit code, as `subprocess.run` gives them."""
    with begun(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def check_in_interpreter(program):
    """Run statements in a process that interprets Triton kernels: the mode is chosen when Triton is imported."""
    pytest.importorskip("triton", reason="Triton has no wheel for this platform")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", f"{program}\nprint('checked')"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if "triton/runtime/interpreter.py" in done.stderr and "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("the interpreter of this Triton needs an older NumPy")
    assert done.stdout == "checked\n", done.stderr
