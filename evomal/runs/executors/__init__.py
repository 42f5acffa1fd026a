"""Executors: where the candidates of a search are worked on."""

from evomal.runs.executors.catalogue import EXECUTORS
from evomal.runs.executors.cluster import crew_if_wanted, crew_of
from evomal.runs.executors.distributed import RayExecutor
from evomal.runs.executors.local import LocalExecutor
from evomal.runs.executors.worker_pool import Crew, Say, Tick

__all__ = ["EXECUTORS", "Crew", "LocalExecutor", "RayExecutor", "Say", "Tick", "crew_if_wanted", "crew_of"]
