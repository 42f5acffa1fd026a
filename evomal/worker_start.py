"""How a worker process begins. It imports nothing slow, since the program may be stopped or killed at any moment."""

import os
import signal
import threading
import time

_SECONDS = 1.0  # between two checks that the parent is alive


def begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it ends, however that happens: a worker may hold locks on folders.

    A terminal sends Ctrl-C to all processes, but the parent decides what becomes of its workers. A worker whose parent
    was killed would wait for its next call forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS)
    os._exit(1)
