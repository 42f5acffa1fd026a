"""Executors: compute results for candidates in this process, or with the workers of a pool."""

from evomal.runs.executors.cluster import worker_pool
from evomal.runs.executors.executors import LocalExecutor, PoolExecutor, open_executor
from evomal.runs.executors.jobs import JobRunner, WorkerPool
from evomal.runs.executors.process_pool import ProcessPool

__all__ = ["JobRunner", "LocalExecutor", "PoolExecutor", "ProcessPool", "WorkerPool", "open_executor", "worker_pool"]
