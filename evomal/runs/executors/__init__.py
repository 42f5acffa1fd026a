"""Executors: compute results for candidates in this process, or with the workers of a pool."""

from evomal.runs.executors.executors import LocalExecutor, PoolExecutor, open_executor
from evomal.runs.executors.jobs import JobRunner, WorkerPool
from evomal.runs.executors.process_pool import ProcessPool
from evomal.runs.executors.workers import check_jobs, threads_of_each, worker_pool

__all__ = [
    "JobRunner",
    "LocalExecutor",
    "PoolExecutor",
    "ProcessPool",
    "WorkerPool",
    "check_jobs",
    "open_executor",
    "threads_of_each",
    "worker_pool",
]
