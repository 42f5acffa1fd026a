"""Runs: the search itself, its record, and runs read from their folders."""

from evomal.runs.canonical import Difference, versions
from evomal.runs.generations import Generation
from evomal.runs.lock import FolderLock
from evomal.runs.reading import find_runs, load_run, read_runs
from evomal.runs.recorded_run import Run, Runs, RunState
from evomal.runs.results import Best, SearchResult
from evomal.runs.store import Chunk, RunStore

__all__ = [
    "Best",
    "Chunk",
    "Difference",
    "FolderLock",
    "Generation",
    "Run",
    "RunState",
    "RunStore",
    "Runs",
    "SearchResult",
    "find_runs",
    "load_run",
    "read_runs",
    "versions",
]
