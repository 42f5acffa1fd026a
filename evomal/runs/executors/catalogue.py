"""Executors by name."""

from collections.abc import Callable

from evomal.engine import Engine
from evomal.methods import Executor
from evomal.runs.executors.local import LocalExecutor

EXECUTORS: dict[str, Callable[[Engine], Executor]] = {"local": LocalExecutor}
"""By the name that the setting `executor` has."""
