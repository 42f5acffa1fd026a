"""A pool of workers on a Ray cluster, as its driver sees them: which are ready, what they run, which were lost."""

import contextlib
import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evomal.errors import DeviceError, EvomalError
from evomal.runs.callbacks import SearchListener
from evomal.runs.canonical import versions
from evomal.runs.executors.jobs import JobChunk, JobQueue, JobRunner, SpeakingPool, jobs_in
from evomal.runs.executors.pickling import folders_of_users_code, pickled
from evomal.runs.executors.worker import Worker, difference
from evomal.text import plural

_TICK = 0.2  # seconds until the listener is asked again whether to stop
_GRACE = 10.0  # seconds that the first ready worker of a new pool waits for the others
_SILENCE = 20.0  # seconds without a ready worker until the user is informed
_PATIENCE = 600.0  # seconds without a ready worker until the pool gives up
_OUT_OF_MEMORY = "its worker ran out of memory"

Results = list[tuple[int, Any]]


class _Data(NamedTuple):
    """An object and its pickled content in Ray's object store."""

    key: int
    value: Any
    content: Any


class _Setup(NamedTuple):
    """What every worker builds."""

    build: bytes
    data: list[_Data]


@dataclass(eq=False)
class _Worker:
    """What the driver knows of a worker."""

    actor: Any
    call: Any = None
    """The result that is waited for, a reference of Ray's; None if it has nothing to do."""
    since: float = 0.0
    """When the call was made."""
    chunks: Sequence[JobChunk] | None = None
    """What it runs; None while it is prepared."""
    setup: _Setup | None = None
    """What it has built, or is building."""
    place: tuple[str, str] | None = None
    """Its device and machine, once it was ready."""


class RayPool(SpeakingPool):
    """A `WorkerPool` of Ray actors; a lost one is replaced.

    Ray could restart actors and retry their calls itself, but then its errors do not tell why a worker was lost (out of
    memory, machine lost), and a call has several candidates of which one may be the cause.
    """

    is_local = False

    def __init__(
        self, size: int, *, resources: dict[str, Any], timeout: float | None, retries: int, patience: float = _PATIENCE
    ) -> None:
        import ray

        super().__init__()
        self.size = size
        self._ray = ray
        self._timeout, self._retries, self._patience = timeout, retries, patience
        self._threads, gpus = int(resources["num_cpus"]), resources["num_gpus"]
        self._sharing = max(1, math.floor(1 / gpus + 1e-9)) if gpus else 1  # workers on one GPU
        self._actor = ray.remote(Worker).options(
            **resources, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )  # fmt: skip
        self._workers: list[_Worker] = []
        self._keys = itertools.count()
        self._data: dict[int, _Data] = {}
        self._setup: _Setup | None = None
        self._description: dict[str, Any] | None = None
        self._failed_starts = 0
        self._all_expected_until: float | None = None
        self._last_ready = time.monotonic()
        self._last_said = ""
        self._start()

    @contextlib.contextmanager
    def reporting_to(self, listener: SearchListener | None) -> Iterator[None]:
        """A context in which a listener is told about workers and may stop the work; None keeps the current one."""
        before = self._listener
        self._listener, self._last_said = listener or before, ""
        try:
            yield
        finally:
            self._listener = before

    def close(self) -> None:
        """End all workers, whatever they are doing; the next call starts new ones."""
        for worker in self._workers:
            self._kill(worker)
        self._workers, self._all_expected_until = [], None

    def prepare(self, build: Callable[..., JobRunner], *data: Any, **options: Any) -> dict[str, Any]:
        setup = _Setup(pickled(functools.partial(build, **options), build.__name__), self._stored(data))
        if setup == self._setup and self._description is not None:
            return self._description
        self._setup, self._description, self._failed_starts = setup, None, 0
        with self._closed_on_errors():
            self._start()
            while not self._are_enough_ready():
                self._step(None)
        self._say_who_is_ready()
        assert self._description is not None
        return self._description

    def run(self, jobs: Sequence[Any], *, chunk: int = 1) -> Iterator[tuple[int, Any]]:
        queue, missing = JobQueue(len(jobs), chunk=chunk, retries=self._retries), len(jobs)
        with self._closed_on_errors():
            self._start()
            while missing:
                for worker in self._ready():
                    if queue and worker.call is None:
                        worker.chunks = queue.take(self.size)
                        content = pickled([jobs[index] for index in jobs_in(worker.chunks)], "jobs")
                        worker.call, worker.since = worker.actor.run.remote(content), time.monotonic()
                for result in self._step(queue):
                    missing -= 1
                    yield result
        self._say_who_is_ready()

    def _stored(self, data: Sequence[Any]) -> list[_Data]:
        """The data in Ray's object store; what is not needed any more is removed before new data is added."""
        self._data = {id(value): self._data[id(value)] for value in data if id(value) in self._data}
        for value in data:
            if id(value) not in self._data:
                self._setup = None  # it refers to the old data
                content = pickled(value, type(value).__name__.lower())
                array = np.frombuffer(content, np.uint8)  # workers read it without a copy
                self._data[id(value)] = _Data(next(self._keys), value, self._ray.put(array))
        return [self._data[id(value)] for value in data]

    def _start(self) -> None:
        self._workers = self._workers or [self._new_worker() for _ in range(self.size)]
        self._last_ready = time.monotonic()

    def _new_worker(self) -> _Worker:
        return _Worker(self._actor.remote(self._threads, folders_of_users_code(), sharing=self._sharing))

    def _ready(self) -> list[_Worker]:
        """Workers that have built the current setup: they run jobs, or have nothing to do."""
        if self._setup is None:
            return []
        built = [worker for worker in self._workers if worker.call is None or worker.chunks is not None]
        return [worker for worker in built if worker.setup is self._setup]

    def _are_enough_ready(self) -> bool:
        ready = len(self._ready())
        if ready and self._all_expected_until is None:
            self._all_expected_until = time.monotonic() + _GRACE
        return ready == self.size or (ready > 0 and time.monotonic() > (self._all_expected_until or 0.0))

    def _step(self, queue: JobQueue | None) -> Results:
        """Prepare the workers that need it, wait a moment, and return the results that have come in."""
        assert self._setup is not None
        self._check_stop()
        for worker in self._workers:
            if worker.call is None and worker.setup is not self._setup:
                keys, contents = [item.key for item in self._setup.data], [item.content for item in self._setup.data]
                worker.setup, worker.chunks, worker.since = self._setup, None, time.monotonic()
                worker.call = worker.actor.prepare.remote(self._setup.build, keys, *contents)
        results: Results = []
        for worker in self._answered():
            results += self._received(worker, queue)
        for worker in list(self._workers):
            results += self._check_time(worker, queue)
        return results

    def _answered(self) -> list[_Worker]:
        """Workers that have an answer, after a moment at most."""
        calls = {worker.call: worker for worker in self._workers if worker.call is not None}
        if not calls:
            time.sleep(_TICK)
            return []
        self._ray.wait(list(calls), num_returns=1, timeout=_TICK)
        answered, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
        return [calls[call] for call in answered]

    def _received(self, worker: _Worker, queue: JobQueue | None) -> Results:
        """The results that a worker has sent, if any."""
        call, worker.call = worker.call, None
        is_outdated = worker.chunks is None and worker.setup is not self._setup
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            if is_outdated:
                return []
            if isinstance(error.cause, MemoryError):
                return self._lose(worker, _OUT_OF_MEMORY, queue)
            if isinstance(error.cause, DeviceError):
                return self._lose(worker, error.cause, queue)
            if isinstance(error.cause, EvomalError):
                raise error.cause from None
            raise  # a defect of this program
        except self._ray.exceptions.RayError as error:
            return self._lose(worker, reason_of(error), queue)
        if worker.chunks is not None:
            return list(zip(jobs_in(worker.chunks), answer, strict=True))
        if not is_outdated:
            self._admit(worker, answer)
        return []

    def _admit(self, worker: _Worker, answer: dict[str, Any]) -> None:
        """Accept a prepared worker; raises EvomalError if its results could differ from those of the others."""
        worker.place = (answer["device"], answer["machine"])
        self._description = self._description or answer["description"]
        differs = difference(answer["versions"], versions()) or difference(answer["description"], self._description)
        if differs is not None:
            raise EvomalError(f"a worker on {answer['machine']} has {differs}, so its results could differ")

    def _check_time(self, worker: _Worker, queue: JobQueue | None) -> Results:
        """Replace a worker that took too long."""
        taken = time.monotonic() - worker.since
        if worker.call is None:
            return []
        if worker.chunks is None:
            if taken > self._patience and self._ready():
                self._replace(worker)
                self.say_once(f"a worker was replaced: it was not ready within {self._patience:g} s")
        elif self._timeout is not None and taken > self._timeout * len(jobs_in(worker.chunks)):
            return self._lose(worker, f"it took longer than {self._timeout:g} s", queue)
        return []

    def _lose(self, worker: _Worker, reason: str | DeviceError, queue: JobQueue | None) -> Results:
        """Replace a worker that was lost; its jobs are run again or given up."""
        self._replace(worker)
        machine = "" if worker.place is None else f" on {worker.place[1]}"
        if worker.chunks is None or queue is None:
            self._failed_starts += 1
            self._say(f"a worker{machine} was lost while it was prepared: {reason}")
            if self._failed_starts > self._retries + self.size:
                raise EvomalError(f"workers are lost before they are ready: {reason}")
            return []
        self._failed_starts = 0
        self._say(f"a worker{machine} was lost with {plural(len(jobs_in(worker.chunks)), 'job')}: {reason}")
        return list(queue.put_back(worker.chunks, reason).items())

    def _replace(self, worker: _Worker) -> None:
        self._kill(worker)
        self._workers[self._workers.index(worker)] = self._new_worker()

    def _kill(self, worker: _Worker) -> None:
        with contextlib.suppress(Exception):  # the worker or the cluster may be gone
            self._ray.kill(worker.actor)

    def _check_stop(self) -> None:
        """Let the listener stop the work, and stop if there are no workers."""
        if self._listener is not None:
            self._listener.on_steps("evaluate", 0)
        now = time.monotonic()
        if self._ready():
            self._last_ready = now
        elif now - self._last_ready > self._patience:
            raise EvomalError(f"no worker of the Ray cluster was ready within {self._patience:g} s")
        elif now - self._last_ready > min(_SILENCE, self._patience / 2):
            self._say_if_new(f"0 of {self.size} workers: waiting until the cluster has room for one")

    def _say_who_is_ready(self) -> None:
        places = [worker.place for worker in self._ready() if worker.place is not None]
        if not places:
            return
        devices = ", ".join(f"{count} × {device}" for device, count in Counter(device for device, _ in places).items())
        machines = sorted({machine for _, machine in places})
        where = machines[0] if len(machines) == 1 else f"{len(machines)} machines"
        self._say_if_new(f"{len(places)} of {self.size} workers: {devices} on {where}")

    def _say_if_new(self, sentence: str) -> None:
        if sentence != self._last_said:
            self._last_said = sentence
            self._say(sentence)

    @contextlib.contextmanager
    def _closed_on_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # also where a caller stops taking results
            self.close()
            raise


def reason_of(error: Exception) -> str:
    """Why a worker was lost, for the record: without process numbers, which differ from run to run."""
    text = f"{type(error).__name__} {error}"
    if "OutOfMemory" in text or "running low on memory" in text:
        return _OUT_OF_MEMORY
    if "NodeDied" in text or "node has died" in text or "node was terminated" in text:
        return "its worker's machine was lost"
    return "its worker died"
