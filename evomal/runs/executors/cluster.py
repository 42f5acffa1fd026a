"""A Ray cluster, joined or started here, with workers on it."""

import contextlib
import logging
import math
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from evomal.errors import InputError
from evomal.runs.executors.crew import Crew, Say
from evomal.settings import WORKPLACE, SearchSettings
from evomal.tasks.task import Task

_MEBIBYTE = 2**20
_CONNECTING = 10.0  # seconds
_LEAST_STORE = 96 * _MEBIBYTE  # Ray wants 75

# Ray prints these on standard output, which is for results, however quiet it is told to be.
_TOLD_BY_THE_CREW = (
    "A worker died or was killed|has been marked dead|due to memory pressure|running low on memory|"
    "cannot be scheduled|worker processes have been started|[Rr]aylet"
)

_open: ContextVar[tuple[dict[str, Any], Crew] | None] = ContextVar("open", default=None)


@contextlib.contextmanager
def crew_of(settings: SearchSettings, tasks: Sequence[Task], say: Say | None = None) -> Iterator[Crew]:
    """Workers as the settings want them, for this block; a block inside another has the same ones.

    Without an address a cluster is started on this machine and shut down after. Where the program is connected to a
    cluster already, that one is used and left as it is.
    """
    place = settings.model_dump(include={*WORKPLACE, "threads", "device"})
    outer = _open.get()
    if outer is not None and outer[0] == place:
        with outer[1].telling(say):
            yield outer[1]
        return
    with _connected(settings, tasks) as ray:
        size, needs = _wanted(settings, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        crew = Crew(size, needs=needs, timeout=settings.worker_timeout, retries=settings.retries)
        token = _open.set((place, crew))
        try:
            with crew.telling(say):
                yield crew
        finally:
            _open.reset(token)
            crew.close()


@contextlib.contextmanager
def crew_if_wanted(settings: SearchSettings, tasks: Sequence[Task], say: Say | None = None) -> Iterator[Crew | None]:
    """The same where the settings ask for Ray, and nobody where the work is done in this process."""
    if settings.executor == "local":
        yield None
        return
    with crew_of(settings, tasks, say) as crew:
        yield crew


@contextlib.contextmanager
def _connected(settings: SearchSettings, tasks: Sequence[Task]) -> Iterator[Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _TOLD_BY_THE_CREW)
    try:
        import ray
    except ImportError:
        raise InputError("executor ray needs Ray, which is not installed: install evomal[ray]") from None
    if ray.is_initialized():
        yield ray
        return
    # What goes wrong is told by this program; Ray would tell it in many lines, and the lines of every worker.
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "include_dashboard": None}
    if settings.address is None:
        processors = max(_processors(), (settings.workers or 1) * (settings.threads or 1))
        quiet |= {"include_dashboard": False, "num_cpus": processors, "object_store_memory": _store(tasks)}
    else:
        _require_listener(settings.address)
    try:
        ray.init(address=settings.address or "local", **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        place = "could be started here" if settings.address is None else f"answers at {settings.address}"
        raise InputError(f"no Ray cluster {place}: {reason}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Raise at once where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECTING).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address}: {error}") from None


def _wanted(settings: SearchSettings, nodes: Sequence[dict[str, float]]) -> tuple[int, dict[str, float]]:
    """How many workers, and the processors and GPUs each needs; as many as the cluster has room for, if not said."""
    threads = settings.threads or 1
    gpus = settings.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if settings.device != "cpu" and any(node.get("GPU") for node in nodes) else 0.0
    needs = {"num_cpus": float(threads), "num_gpus": gpus}
    room = sum(_room(node, needs) for node in nodes)
    if room == 0:
        wanted = f"{threads:g} processors" + (f" and {gpus:g} GPUs" if gpus else "")
        raise InputError(f"a worker needs {wanted}, but no node of the cluster has them")
    return settings.workers or room, needs


def _room(node: dict[str, float], needs: dict[str, float]) -> int:
    wanted = {"CPU": needs["num_cpus"], "GPU": needs["num_gpus"]}
    rooms = [node.get(kind, 0.0) / number for kind, number in wanted.items() if number > 0]
    return math.floor(min(rooms) + 1e-9)  # ten tenths of a GPU are one


def _store(tasks: Sequence[Task]) -> int:
    """Bytes for Ray's object store on this machine: the data, and room for what is being replaced."""
    size = 0
    for task in tasks:
        for name in ("train", "validation", "test"):
            part = getattr(task, name, None)  # what is no task is refused by the engine, in a sentence
            size += 0 if part is None else part.inputs.nbytes + part.targets.nbytes
    return _LEAST_STORE + 3 * size


def _processors() -> int:
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)  # macOS has none
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
