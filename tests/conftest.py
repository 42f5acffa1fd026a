"""Settings shared by all tests."""

import gc
import os
import signal

import pytest
import torch
from hypothesis import settings

from evomal.figures import style
from evomal.runs import estimates

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers that each use all cores wait for each other more than they work.
    torch.set_num_threads(1)

# Derandomised: a failure on one machine is a failure on every machine; no deadline, as timings are not what is tested.
settings.register_profile("evomal", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("evomal")


# Pixels take most of the time of a figure, and are not what is tested.
style._PNG_DOTS_PER_INCH = 40


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Neighbouring tests run in one process, so that what a module of tests makes once is made in one process only."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_collection_finish():
    """What is imported by now stays: to look through it for garbage again and again takes a tenth of the time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    """At the end some libraries look for what was left."""
    gc.unfreeze()


@pytest.fixture
def ctrl_c_raises():
    """Python's own handler, although a shell has what it starts in the background ignore Ctrl-C; given back after."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rough_estimates(monkeypatch):
    """Estimates of times from very few steps, for tests of everything but their numbers."""
    monkeypatch.setitem(estimates._PROBE_STEPS, "cpu", (1, 4))
