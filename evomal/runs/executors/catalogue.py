"""Executors by name."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from evomal.engine import Engine, EngineSettings
from evomal.methods import Executor
from evomal.runs.executors.cluster import crew_of
from evomal.runs.executors.distributed import RayExecutor
from evomal.runs.executors.local import LocalExecutor
from evomal.runs.executors.worker_pool import Say, Tick
from evomal.settings import SearchSettings
from evomal.tasks.task import Task

Opening = Callable[
    [Sequence[Task], int, EngineSettings, SearchSettings, Say | None, Tick | None], AbstractContextManager[Executor]
]


@contextlib.contextmanager
def _local(
    tasks: Sequence[Task], seed: int, engine: EngineSettings, settings: SearchSettings, say: Say | None,
    tick: Tick | None,
) -> Iterator[Executor]:  # fmt: skip
    yield LocalExecutor(Engine(tasks, seed=seed, settings=engine))


@contextlib.contextmanager
def _ray(
    tasks: Sequence[Task], seed: int, engine: EngineSettings, settings: SearchSettings, say: Say | None,
    tick: Tick | None,
) -> Iterator[Executor]:  # fmt: skip
    with crew_of(settings, tasks, say, tick) as crew:
        yield RayExecutor(crew, tasks, seed=seed, settings=engine)


EXECUTORS: dict[str, Opening] = {"local": _local, "ray": _ray}
"""By the name that the setting `executor` has: each gives an executor for the time of a block."""
