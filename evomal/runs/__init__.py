"""Runs: their record, who may write it, and where they are."""

from evomal.runs.canonical import Difference, versions
from evomal.runs.listing import FoundRun, runs_in
from evomal.runs.lock import FolderLock
from evomal.runs.recorded_run import RunState
from evomal.runs.results import Generation
from evomal.runs.store import Chunk, RunStore

__all__ = [
    "Chunk",
    "Difference",
    "FolderLock",
    "FoundRun",
    "Generation",
    "RunState",
    "RunStore",
    "runs_in",
    "versions",
]
