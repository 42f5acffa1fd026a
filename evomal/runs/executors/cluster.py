"""A Ray cluster, joined or started here, with workers on it."""

import contextlib
import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from evomal.errors import InputError
from evomal.runs.executors.cluster_folder import cluster_folder
from evomal.runs.executors.worker_pool import Crew, Say, Tick
from evomal.settings import WORKPLACE, SearchSettings
from evomal.tasks.task import Task
from evomal.text import one_line, plural

_MEBIBYTE = 2**20
_CONNECTING = 10.0  # seconds
_SETTINGS_FRAME = 4
_FRAME_HEAD, _FRAME_KIND = 9, 3  # bytes of a frame's head, and the one among them that says its kind
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS_FRAME, 0, 0, 0, 0, 0])
_LEAST_STORE = 96 * _MEBIBYTE  # Ray wants 75

# Ray prints these on standard output, which is for results, however quiet it is told to be.
_TOLD_BY_THE_CREW = (
    "A worker died or was killed|has been marked dead|due to memory pressure|running low on memory|"
    "cannot be scheduled|worker processes have been started|[Rr]aylet"
)

_open: ContextVar[tuple[dict[str, Any], Crew] | None] = ContextVar("open", default=None)


@contextlib.contextmanager
def crew_of(
    settings: SearchSettings, tasks: Sequence[Task], say: Say | None = None, tick: Tick | None = None
) -> Iterator[Crew]:
    """Workers as the settings want them, for this block; a block inside another has the same ones.

    What becomes of them is told to `say`; `tick` is called a few times a second while they are waited for, and may
    raise to end that.

    Without an address a cluster is started on this machine and shut down after. Where the program is connected to a
    cluster already, that one is used and left as it is.
    """
    place = settings.model_dump(include={*WORKPLACE, "threads", "device"})
    outer = _open.get()
    if outer is not None and outer[0] == place:
        with outer[1].telling(say, tick):
            yield outer[1]
        return
    with _connected(settings, tasks) as ray:
        size, needs = _wanted(settings, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        crew = Crew(size, needs=needs, timeout=settings.worker_timeout, retries=settings.retries)
        token = _open.set((place, crew))
        try:
            with crew.telling(say, tick):
                yield crew
        finally:
            _open.reset(token)
            crew.close()


@contextlib.contextmanager
def crew_if_wanted(
    settings: SearchSettings, tasks: Sequence[Task], say: Say | None = None, tick: Tick | None = None
) -> Iterator[Crew | None]:
    """The same where the settings ask for Ray, and nobody where the work is done in this process."""
    if settings.executor == "local":
        yield None
        return
    with crew_of(settings, tasks, say, tick) as crew:
        yield crew


@contextlib.contextmanager
def _connected(settings: SearchSettings, tasks: Sequence[Task]) -> Iterator[Any]:
    ray = _CONNECTION.join(settings, tasks)
    try:
        yield ray
    finally:
        _CONNECTION.leave()


class _Connection:
    """The one connection to a cluster that Ray allows a program: searches in several threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._own = contextlib.ExitStack()
        """What ends with the last user: nothing, where the connection was not made here."""

    def join(self, settings: SearchSettings, tasks: Sequence[Task]) -> Any:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _TOLD_BY_THE_CREW)
        try:
            import ray
        except ImportError:
            raise InputError("executor ray needs Ray, which is not installed: install evomal[ray]") from None
        with self._lock:
            if ray.is_initialized():
                _require_same_cluster(settings.address, ray.get_runtime_context().gcs_address)
            else:
                with contextlib.ExitStack() as stack:
                    _connect(ray, settings, tasks, stack)
                    self._own = stack.pop_all()
            self._users += 1
        return ray

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._own.close()


_CONNECTION = _Connection()


def _connect(ray: Any, settings: SearchSettings, tasks: Sequence[Task], stack: contextlib.ExitStack) -> None:
    """Join or start a cluster; the stack takes what is to be undone, also where this fails halfway."""
    # What goes wrong is told by this program; Ray would tell it in many lines, and the lines of every worker.
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "include_dashboard": None}
    if settings.address is None:
        processors = max(_processors(), (settings.workers or 1) * (settings.threads or 1))
        quiet |= {"include_dashboard": False, "num_cpus": processors, "object_store_memory": _store(tasks)}
        quiet["_temp_dir"] = str(stack.enter_context(cluster_folder()))
    else:
        _require_listener(settings.address)
    stack.callback(ray.shutdown)
    try:
        ray.init(address=settings.address or "local", **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        reason = one_line(error)
        place = "could be started here" if settings.address is None else f"answers at {settings.address}"
        raise InputError(f"no Ray cluster {place}: {reason}") from None


def _require_same_cluster(address: str | None, connected: str) -> None:
    """Raise where another cluster is asked for than the one that the program is connected to."""
    if address in (None, "auto", connected):
        return
    assert address is not None
    (host, port), (other, other_port) = _host_and_port(address), _host_and_port(connected)
    if port != other_port or not _addresses(host) & _addresses(other):
        raise InputError(
            f"address is {address}, but this program is connected to the Ray cluster at {connected}: leave address "
            "out, or end that connection with ray.shutdown()"
        )


def _addresses(host: str) -> set[str]:
    """Of a host; all that lead back to this machine are one."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return {host}
    from ray.util import get_node_ip_address

    here = {"127.0.0.1", "::1", get_node_ip_address()}
    return found | here if found & here else found


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _require_listener(address: str) -> None:
    """Raise soon where nobody listens, or someone else than Ray: Ray itself would try for minutes."""
    if address == "auto":
        return
    try:
        with socket.create_connection(_host_and_port(address), timeout=_CONNECTING) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return  # only its own clients are answered
            # Ray speaks gRPC, which is HTTP/2: whoever does answers this greeting with its settings.
            connection.sendall(_GREETING)
            answer = connection.recv(_FRAME_HEAD)
    except TimeoutError:
        raise InputError(f"no Ray cluster answers at {address}: nothing came within {_CONNECTING:g} s") from None
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address}: {error}") from None
    if len(answer) < _FRAME_HEAD or answer[_FRAME_KIND] != _SETTINGS_FRAME:
        raise InputError(f"no Ray cluster answers at {address}: what listens there is something else")


def _wanted(settings: SearchSettings, nodes: Sequence[dict[str, float]]) -> tuple[int, dict[str, float]]:
    """How many workers, and the processors and GPUs each needs; as many as the cluster has room for, if not said."""
    threads = settings.threads or 1
    gpus = settings.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if settings.device != "cpu" and any(node.get("GPU") for node in nodes) else 0.0
    needs = {"num_cpus": float(threads), "num_gpus": gpus}
    room = sum(_room(node, needs) for node in nodes)
    if room == 0:
        wanted = plural(threads, "processor") + (f" and {plural(gpus, 'GPU')}" if gpus else "")
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
