"""Executors: where the candidates of a search are worked on."""

from evomal.runs.executors.catalogue import EXECUTORS
from evomal.runs.executors.cluster import crew_if_wanted, crew_of
from evomal.runs.executors.crew import Crew, Say, Tick
from evomal.runs.executors.distributed import RayExecutor
from evomal.runs.executors.local import LocalExecutor

__all__ = ["EXECUTORS", "Crew", "LocalExecutor", "RayExecutor", "Say", "Tick", "crew_if_wanted", "crew_of"]
