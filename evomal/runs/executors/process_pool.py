"""A pool of worker processes on this machine."""

import functools
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib.externals.loky import process_executor
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from evomal.errors import DeviceError, EvomalError
from evomal.runs.callbacks import SearchListener
from evomal.runs.executors.jobs import JobChunk, JobQueue, JobRunner, SpeakingPool, jobs_in
from evomal.runs.executors.pickling import folders_of_users_code, pickled
from evomal.runs.executors.worker import Worker
from evomal.worker_start import begin_worker

_RETRIES = 1  # of a job whose process died
_TICK = 0.2  # seconds until the listener is asked again whether to stop
_REGISTRATION_MILLISECONDS = 5_000  # until loky has registered a call, at most


class _Setup(NamedTuple):
    """What every process builds: a pickled function, and files of its pickled arguments."""

    number: int
    build: bytes
    files: dict[int, str]
    threads: int
    folders: list[str]
    """Of the user's modules."""
    processes: int


@dataclass(eq=False)
class _Place:
    """A place for a process: empty until one is needed, and when one was lost."""

    executor: Any = None
    setup: int | None = None
    """The number of the setup that its process has built."""
    failed_starts: int = 0
    """How many processes were lost before they had built the setup, one after the other."""

    @property
    def is_used(self) -> bool:
        """Whether processes are still started here."""
        return self.failed_starts <= _RETRIES


@dataclass(frozen=True)
class _Lost:
    """Why a process was lost, instead of its answer."""

    reason: str | DeviceError


class ProcessPool(SpeakingPool):
    """A `WorkerPool` of processes on this machine, which share its processors and its GPU.

    The processes are those of loky (in joblib): it can kill them, and does not import the user's script in them, which
    would then need `if __name__ == "__main__"`. Each process has an executor of its own, since a process that dies
    breaks its executor, and only the job that it ran may count as lost.
    """

    is_local = True

    def __init__(self, size: int, *, threads: int, listener: SearchListener | None = None) -> None:
        super().__init__()
        self.size = size
        self._threads, self._listener = threads, listener
        self._folder = tempfile.TemporaryDirectory(prefix="evomal-")
        self._places = [_Place() for _ in range(size)]
        self._numbers = itertools.count()
        self._data: dict[int, tuple[int, Any]] = {}
        """Key and object by the id of each object that the processes have; holding the object keeps its id unique."""
        self._calls: dict[Future[Any], tuple[_Place, list[JobChunk]]] = {}
        """The calls that are running: the place of the process, and its chunks; none while it builds the setup."""
        self._setup: _Setup | None = None
        self._description: dict[str, Any] | None = None

    def __enter__(self) -> "ProcessPool":
        return self

    def __exit__(self, *_: object) -> None:
        self._kill_all()
        self._folder.cleanup()

    def prepare(self, build: Callable[..., JobRunner], *data: Any, **options: Any) -> dict[str, Any]:
        content, files = pickled(functools.partial(build, **options), build.__name__), self._stored(data)
        is_same = self._setup is not None and (self._setup.build, self._setup.files) == (content, files)
        if self._description is None or not is_same:
            if self._calls:
                self._kill_all()
            self._description = None
            self._setup = _Setup(next(self._numbers), content, files, self._threads, folders_of_users_code(), self.size)
            waiting = list(self._places)
            for place in waiting:
                place.failed_starts = 0  # another setup may need less memory
            while waiting or self._calls:  # all of them at the same time, as starting takes seconds
                for place in waiting:
                    self._submit(place)
                waiting = [place for place, _, answer in self._answers() if not self._has_started(place, answer)]
                waiting = [place for place in waiting if place.is_used]
        assert self._description is not None
        return self._description

    def run(self, jobs: Sequence[Any], *, chunk: int = 1) -> Iterator[tuple[int, Any]]:
        if any(chunks for _, chunks in self._calls.values()):  # left over by a caller that stopped taking results
            self._kill_all()
        queue, missing = JobQueue(len(jobs), chunk=chunk, retries=_RETRIES), len(jobs)
        starting = [place for place, _ in self._calls.values()]  # since a process was lost with one of the last jobs
        idle = [place for place in self._places if place.is_used and place not in starting]
        while missing:
            while queue and idle:
                place = idle.pop(0)
                # One chunk, as a job may take an hour. A new process builds the setup first: no job is to blame if it
                # is lost by then.
                chunks = [] if self._must_build(place) else queue.take(len(jobs))
                if not self._submit(place, jobs, chunks):
                    queue.give_back(chunks)
            for place, chunks, answer in self._answers():
                if chunks:
                    idle.append(place)
                    for result in self._results(chunks, answer, queue):
                        missing -= 1
                        yield result
                elif self._has_started(place, answer) or place.is_used:
                    idle.append(place)

    def _stored(self, data: Sequence[Any]) -> dict[int, str]:
        """The files of the pickled data, by their keys; files that are not needed any more are removed."""
        folder, needed = Path(self._folder.name), {id(value) for value in data}
        for key, _ in [self._data.pop(known) for known in self._data.keys() - needed]:
            (folder / str(key)).unlink()
        for value in data:
            if id(value) not in self._data:
                key = next(self._numbers)
                (folder / str(key)).write_bytes(pickled(value, type(value).__name__.lower()))
                self._data[id(value)] = key, value
        keys = [self._data[id(value)][0] for value in data]
        return {key: str(folder / str(key)) for key in keys}

    def _must_build(self, place: _Place) -> bool:
        assert self._setup is not None
        return place.setup != self._setup.number

    def _submit(self, place: _Place, jobs: Sequence[Any] = (), chunks: Sequence[JobChunk] = ()) -> bool:
        """Give jobs to the process at a place, or let it build the setup; one is started if there is none.

        Returns whether it has the jobs: a process in the place of one that was killed while idle builds the setup.
        """
        content = pickled([jobs[index] for index in jobs_in(chunks)], "jobs") if chunks else None
        if place.executor is None:
            place.executor = ProcessPoolExecutor(1, initializer=begin_worker, initargs=(os.getpid(),))
        try:
            call: Future[Any] = place.executor.submit(_answer, self._setup, content)
        except BrokenProcessPool:  # it was killed while it had nothing to do
            self._kill(place)
            self._submit(place)
            return False
        self._calls[call] = place, list(chunks)
        return True

    def _answers(self) -> list[tuple[_Place, list[JobChunk], list[Any] | _Lost]]:
        """What has come in after a moment, with the place and the chunks that it belongs to."""
        if self._listener is not None:
            self._listener.on_steps("evaluate", 0)  # may stop the work
        done = wait(self._calls, timeout=_TICK, return_when=FIRST_COMPLETED).done
        answered = [(call, *self._calls.pop(call)) for call in done]
        return [(place, chunks, self._answer_of(call, place)) for call, place, chunks in answered]

    def _answer_of(self, call: Future[Any], place: _Place) -> list[Any] | _Lost:
        """The answer of a process, which is ended if it failed."""
        reason: str | DeviceError
        try:
            answer: list[Any] = call.result()
            return answer
        except BrokenProcessPool as error:  # also where a result cannot be read
            reason = "its process was killed" if "SIGKILL" in str(error) else "its process died"
        except MemoryError:
            reason = "its process ran out of memory"
        except DeviceError as error:
            reason = error
        except EvomalError as error:
            raise error from None  # without the traceback of the other process
        self._kill(place)
        return _Lost(reason)

    def _has_started(self, place: _Place, answer: list[Any] | _Lost) -> bool:
        """Whether the process at a place has built the setup; if none can be started, an error ends the work."""
        assert self._setup is not None
        if not isinstance(answer, _Lost):
            place.setup, place.failed_starts, (self._description,) = self._setup.number, 0, answer
            return True
        place.failed_starts += 1
        used = sum(one.is_used for one in self._places)
        if not used:
            self._description = None
            error = DeviceError if isinstance(answer.reason, DeviceError) else EvomalError
            raise error(f"no worker process could be started: {answer.reason}")
        left = "" if place.is_used else f"; {used} of {self.size} worker processes {'is' if used == 1 else 'are'} left"
        self._say(f"a worker process was lost before it was ready: {answer.reason}{left}")
        return False

    def _results(
        self, chunks: Sequence[JobChunk], answer: list[Any] | _Lost, queue: JobQueue
    ) -> Iterable[tuple[int, Any]]:
        """The results of jobs; if their process was lost, they are run again or given up."""
        if not isinstance(answer, _Lost):
            return zip(jobs_in(chunks), answer, strict=True)
        self._say(f"a worker process was lost: {answer.reason}")
        return queue.put_back(chunks, answer.reason).items()

    def _kill_all(self) -> None:
        with ThreadPoolExecutor(self.size) as threads:  # threads, because a second Ctrl-C does not interrupt them
            list(threads.map(self._kill, self._places))
        self._calls.clear()

    def _kill(self, place: _Place) -> None:
        for call in [call for call, (at, _) in self._calls.items() if at is place]:
            # loky's own thread fails if it has not registered a call when its process is killed.
            for _ in range(_REGISTRATION_MILLISECONDS):
                if call.running() or call.done():
                    break
                time.sleep(0.001)
        executor, place.executor, place.setup = place.executor, None, None
        if executor is not None:
            executor.shutdown(wait=True, kill_workers=True)


# ---- in the process of a worker ----

_worker: Worker | None = None
_built: tuple[int, dict[str, Any]] | None = None


def _answer(setup: _Setup, jobs: bytes | None) -> list[Any]:
    """The results of jobs, or the description of the job runner, which is built unless it was built last."""
    global _worker, _built
    if _worker is None:
        # With psutil installed, loky restarts processes that have grown by 300 MB, as all of them do, with a warning.
        process_executor._USE_PSUTIL = False
        _worker = Worker(setup.threads, setup.folders, sharing=setup.processes)
    if _built is None or _built[0] != setup.number:
        _built = None
        contents = [np.memmap(file, np.uint8, "r") for file in setup.files.values()]
        _built = setup.number, _worker.prepare(setup.build, [*setup.files], *contents)["description"]
    return [_built[1]] if jobs is None else _worker.run(jobs)
