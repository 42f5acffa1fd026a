"""A second process that compiles kernels into the cache while this one imports torch and reads data.

Compiling holds the interpreter lock, so that a thread would hide little of it. The process ends with this one. If it
fails, the kernels are compiled here when they are first used.
"""

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Hashable, Iterator, Sequence

_process: "subprocess.Popen[bytes] | None" = None
_pending: list[Hashable] = []


def start(code: str, kernels: Sequence[Hashable]) -> None:
    """Run code in the second process, with the module search path of this one, unless it is running already.

    Args:
        code: Statements in one line, which call `report` with an iterator that compiles the kernels in this order.
        kernels: The kernels: of each, the function and the types of its arguments.
    """
    global _process
    if _process is not None or not kernels:
        return
    command = [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"]
    try:
        _process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
    except OSError:  # no more processes, or no interpreter to run
        return
    _pending[:] = kernels
    atexit.register(end)


def end() -> None:
    """End the process."""
    global _process
    if _process is not None:
        _process.kill()
        _process.communicate()  # which closes its pipes
        _process = None
    _pending.clear()


def has_compiled(kernel: Hashable) -> bool:
    """Wait while the process has yet to compile this kernel; return whether it has compiled it during the wait."""
    is_compiled = False
    while _process is not None and kernel in _pending:
        assert _process.stdout is not None
        if _process.stdout.read(1):
            is_compiled = _pending.pop(0) == kernel
        else:  # it has failed or was killed
            _pending.clear()
    if not _pending:
        end()
    return is_compiled


def report(compiled: Iterator[object]) -> None:
    """In the second process: report each kernel once it is compiled; end when the first process has ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for _ in compiled:
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # not through the stream, whose lock would still be held when the interpreter ends
    os._exit(1)
