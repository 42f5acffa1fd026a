"""The server and searches as processes of their own."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.processes import begun
from tests.searches import search_arguments

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def server(top: Path):
    """`evomal serve` on a free port; gives the process, its address and its token."""
    command = [sys.executable, "-m", "evomal", "serve", str(top), "--port", "0"]
    with begun(command, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True) as process:
        first, second = process.stderr.readline(), process.stderr.readline()
        yield process, re.search(r"http://\S+(?=/)", first)[0], re.search(r"token (\S+);", second)[1]


_SEARCH = """
import time
from evomal.runs import run_loop
look = run_loop.stop_if_requested
run_loop.stop_if_requested = lambda folder: (time.sleep({}), look(folder))
from evomal.__main__ import main
main()
"""


@contextlib.contextmanager
def searching(folder: Path, generations: int, *, pause: float = 0.0):
    """A search of many short generations, with a pause after each."""
    small = {"population": 5, "meta_steps": 2, "training_steps": 10, "filter_steps": 10, "finalists": 2}
    words = search_arguments(folder, generations=generations, **small, final_seeds=2)
    command, nowhere = [sys.executable, "-c", _SEARCH.format(pause), *words], subprocess.DEVNULL
    with begun(command, stdout=nowhere, stderr=nowhere, env=ENVIRONMENT) as process:
        yield process


def wait_for(what, seconds: float = 60.0):
    """The first true value that the function returns."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it took too long")
