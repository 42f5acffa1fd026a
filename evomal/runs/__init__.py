"""Runs: their record, who may write it, and where they are."""

from evomal.runs.candidates import RecordedCandidate, genome_text
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
    "RecordedCandidate",
    "RunState",
    "RunStore",
    "genome_text",
    "runs_in",
    "versions",
]
