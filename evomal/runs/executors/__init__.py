"""Executors: compute results for candidates in this process, or with the workers of a pool."""

from evomal.runs.executors.cluster import worker_pool
from evomal.runs.executors.executors import LocalExecutor, PoolExecutor, open_executor
from evomal.runs.executors.jobs import JobRunner, WorkerPool

__all__ = ["JobRunner", "LocalExecutor", "PoolExecutor", "WorkerPool", "open_executor", "worker_pool"]
