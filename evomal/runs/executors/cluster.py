"""The workers of a Ray cluster that is joined or started here."""

import contextlib
import logging
import math
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from evomal.errors import InputError
from evomal.extras import optional_library
from evomal.runs.callbacks import SearchListener
from evomal.runs.executors.jobs import WorkerPool
from evomal.runs.executors.ray_pool import RayPool
from evomal.settings import WORKPLACE, SearchSettings
from evomal.text import one_line, plural
from evomal.threads import processors

_CONNECT_SECONDS = 10.0
# Bytes in the path of a Unix socket, less those that Ray adds.
_LONGEST_FOLDER = (103 if sys.platform == "darwin" else 107) - len(
    "/session_2000-01-01_00-00-00_000000_4194304/sockets/plasma_store.1"
)
_REMOVAL_SECONDS = 10.0  # in which Ray's last processes may still add files

# Ray prints these on standard output, which is for results, even if its log is off. The pool reports them itself.
_REPORTED_BY_THE_POOL = (
    "A worker died or was killed|has been marked dead|due to memory pressure|running low on memory|"
    "cannot be scheduled|worker processes have been started|[Rr]aylet"
)

_current: ContextVar[tuple[dict[str, Any], RayPool] | None] = ContextVar("current", default=None)


@contextlib.contextmanager
def ray_workers(settings: SearchSettings, listener: SearchListener | None = None) -> Iterator[WorkerPool]:
    """A context with the workers on the cluster that the settings name.

    A context inside another with the same settings has the same workers. Without an address a cluster is started on
    this machine and shut down afterwards; if the program is connected to a cluster, that one is used and left as it is.
    """
    place = settings.model_dump(include={*WORKPLACE, "threads", "device"})
    outer = _current.get()
    if outer is not None and outer[0] == place:
        with outer[1].reporting_to(listener):
            yield outer[1]
        return
    with _CONNECTION.used(settings) as ray:
        size, resources = _wanted(settings, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        pool = RayPool(size, resources=resources, timeout=settings.worker_timeout, retries=settings.retries)
        token = _current.set((place, pool))
        try:
            with pool.reporting_to(listener):
                yield pool
        finally:
            _current.reset(token)
            pool.close()


class _Connection:
    """The one connection to a cluster that Ray allows a program: searches in several threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._address: str | None = None
        self._opened_here = contextlib.ExitStack()
        """What is closed with the last user; empty if the program was connected before."""

    @contextlib.contextmanager
    def used(self, settings: SearchSettings) -> Iterator[Any]:
        """A context in which the program is connected to the cluster of the settings; gives the module `ray`."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _REPORTED_BY_THE_POOL)
        ray = optional_library("ray", "executor ray", "'evomal[ray]'")
        with self._lock:
            if ray.is_initialized():
                self._require_same(settings.address, ray.get_runtime_context().gcs_address)
            else:
                with contextlib.ExitStack() as stack:
                    _connect(ray, settings, stack)
                    self._opened_here = stack.pop_all()
                self._address = settings.address
            self._users += 1
        try:
            yield ray
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._opened_here.close()

    def _require_same(self, address: str | None, connected: str) -> None:
        if address not in (None, "auto", connected, self._address if self._users else None):
            raise InputError(
                f"address is {address}, but this program is connected to the Ray cluster at {connected}: leave address "
                "out, or end that connection with ray.shutdown()"
            )


_CONNECTION = _Connection()


def _connect(ray: Any, settings: SearchSettings, stack: contextlib.ExitStack) -> None:
    """Join or start a cluster; the stack receives what is to be undone, even if this fails."""
    # The pool reports what goes wrong; Ray would do so in many lines, and add those of every worker.
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if settings.address is None:
        count = max(processors(), (settings.workers or 1) * (settings.threads or 1))
        options |= {"include_dashboard": False, "num_cpus": count}
        options["_temp_dir"] = str(stack.enter_context(_temporary_folder()))
        failure = "no Ray cluster could be started here"
    else:
        _require_listener(settings.address)
        failure = f"no Ray cluster answers at {settings.address}"
    stack.callback(ray.shutdown)
    try:
        with _one_attempt() if settings.address else contextlib.nullcontext():
            ray.init(address=settings.address or "local", **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        raise InputError(f"{failure}: {one_line(error)}") from None


@contextlib.contextmanager
def _one_attempt() -> Iterator[None]:
    """A context in which Ray tries once to join a cluster, for 40 seconds, and not twenty times."""
    name = "RAY_gcs_server_port_wait_time_s"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def _require_listener(address: str) -> None:
    """Raise InputError at once if the address cannot be reached; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection(
            (host.removeprefix("[").removesuffix("]"), int(port)), timeout=_CONNECT_SECONDS
        ).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at {address}: {error}") from None


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A context with a private folder for a cluster; Ray's default is shared by all programs and never emptied."""
    # On macOS the path of the temporary folder is too long for Ray's sockets.
    place = os.environ.get("RAY_TMPDIR") or ("/tmp" if sys.platform == "darwin" else tempfile.gettempdir())
    try:
        Path(place).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="ray-", dir=place)).absolute()
    except OSError as error:
        raise InputError(f"no Ray cluster could be started here: {place}: {error.strerror}") from None
    try:
        length = len(os.fsencode(folder))
        if length > _LONGEST_FOLDER:
            raise InputError(
                f"no Ray cluster could be started here: the path of its temporary folder must have at most "
                f"{_LONGEST_FOLDER} bytes but {folder} has {length}: set RAY_TMPDIR to a shorter path"
            )
        yield folder
    finally:
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                time.sleep(0.05)


def _wanted(settings: SearchSettings, nodes: Sequence[dict[str, float]]) -> tuple[int, dict[str, float]]:
    """The number of workers, by default as many as the cluster has room for, and the resources of each."""
    threads, gpus = settings.threads or 1, settings.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if settings.device != "cpu" and any(node.get("GPU") for node in nodes) else 0.0
    wanted = {"CPU": float(threads)} | ({"GPU": gpus} if gpus else {})
    # The margin lets ten workers with 0.1 GPU each fill one GPU despite rounding.
    room = sum(math.floor(min(node.get(kind, 0.0) / each for kind, each in wanted.items()) + 1e-9) for node in nodes)
    if room == 0:
        needs = plural(threads, "processor") + (f" and {plural(gpus, 'GPU')}" if gpus else "")
        raise InputError(f"a worker needs {needs}, but no node of the cluster has them")
    return settings.workers or room, {"num_cpus": float(threads), "num_gpus": gpus}
