"""Processes begun by tests, of which none outlives its test, however that one ends."""

import contextlib
import os
import signal
import subprocess


@contextlib.contextmanager
def begun(command, **options):
    """A process in a group of its own, killed at the end of the block with all of the group that is left."""
    with subprocess.Popen([*map(str, command)], start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def finished(command, timeout, **options):
    """What a process printed by its end and its exit code, as `subprocess.run` gives them."""
    with begun(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
