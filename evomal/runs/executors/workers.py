"""Which workers do the work of a search or a comparison: none, processes on this machine, or those of a Ray cluster."""

import contextlib

import torch

from evomal.checks import whole_number
from evomal.errors import InputError
from evomal.runs.callbacks import SearchListener
from evomal.runs.executors.cluster import ray_workers
from evomal.runs.executors.jobs import WorkerPool
from evomal.runs.executors.process_pool import ProcessPool
from evomal.settings import SearchSettings

_MOST_JOBS = 1_024


def check_jobs(jobs: int, settings: SearchSettings) -> None:
    """Raise InputError unless the work can be divided among that many processes on this machine."""
    whole_number("jobs", jobs, at_least=1, at_most=_MOST_JOBS)
    if jobs > 1 and settings.executor != "local":
        raise InputError(f"jobs must be 1 with executor {settings.executor}, which has workers, but got {jobs}")


def threads_of_each(jobs: int, settings: SearchSettings) -> int:
    """The threads of each of that many processes: those of the settings, or an equal part of torch's."""
    return settings.threads or max(1, torch.get_num_threads() // jobs)


def worker_pool(
    settings: SearchSettings, listener: SearchListener | None = None, *, jobs: int = 1
) -> contextlib.AbstractContextManager[WorkerPool | None]:
    """A context with the workers that the jobs or the settings ask for; None if the work is done in this process.

    The listener is told when workers start or are lost, and may stop the work by raising an error.

    Args:
        settings: Their executor and its options, threads and device.
        listener: Who is told; None: nobody.
        jobs: The number of processes on this machine, which `check_jobs` has accepted.
    """
    if jobs > 1:
        return ProcessPool(jobs, threads=threads_of_each(jobs, settings), listener=listener)
    return contextlib.nullcontext() if settings.executor == "local" else ray_workers(settings, listener)
