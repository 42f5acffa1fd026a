"""Executors: where the candidates of a search are worked on."""

from evomal.runs.executors.catalogue import EXECUTORS
from evomal.runs.executors.local import LocalExecutor

__all__ = ["EXECUTORS", "LocalExecutor"]
