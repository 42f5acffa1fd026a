"""A pool of worker processes on this machine."""

import functools
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib.externals.loky import process_executor
from joblib.externals.loky.process_executor import ProcessPoolExecutor, TerminatedWorkerError

from evomal.errors import DeviceError, EvomalError
from evomal.methods import Failure
from evomal.runs.callbacks import SearchListener
from evomal.runs.executors.jobs import JobChunk, JobQueue, JobRunner, SpeakingPool, jobs_in
from evomal.runs.executors.pickling import folders_of_users_code, pickled
from evomal.runs.executors.worker import Worker
from evomal.worker_start import begin_worker

_RETRIES = 1  # of a job whose process died
_TICK = 0.2  # seconds until the listener is asked again whether to stop
_REGISTRATION_MILLISECONDS = 5_000  # until loky has registered a call, at most

Results = list[tuple[int, Any]]


class _Setup(NamedTuple):
    """What every process builds: a pickled function, and files of its pickled arguments."""

    number: int
    build: bytes
    files: dict[int, str]
    threads: int
    folders: list[str]
    """Of the user's modules."""
    processes: int


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
        self._executors: list[Any] = [None] * size
        self._numbers = itertools.count()
        self._data: dict[int, tuple[int, Any]] = {}
        """Key and object by the id of each object that the processes have; holding the object keeps its id unique."""
        self._calls: dict[Future[Any], tuple[int, list[JobChunk]]] = {}
        """The calls that are running: the place of the process, and its chunks."""
        self._setup: _Setup | None = None
        self._description: dict[str, Any] = {}

    def __enter__(self) -> "ProcessPool":
        return self

    def __exit__(self, *_: object) -> None:
        self._kill_all()
        self._folder.cleanup()

    def prepare(self, build: Callable[..., JobRunner], *data: Any, **options: Any) -> dict[str, Any]:
        content, files = pickled(functools.partial(build, **options), build.__name__), self._stored(data)
        if self._setup is None or (self._setup.build, self._setup.files) != (content, files):
            self._setup = _Setup(next(self._numbers), content, files, self._threads, folders_of_users_code(), self.size)
            # All processes build it at the same time, as starting takes seconds.
            found = [one for _, one in self._run_jobs(self.size, lambda _: None)]
            built = [one for one in found if not isinstance(one, Failure)]
            if not built:
                self._setup = None
                raise EvomalError(f"no worker process could be started: {found[0].sentence}")
            self._description = built[0]
        return self._description

    def run(self, jobs: Sequence[Any], *, chunk: int = 1) -> Iterator[tuple[int, Any]]:
        return self._run_jobs(
            len(jobs), lambda indices: pickled([jobs[index] for index in indices], "jobs"), chunk=chunk
        )  # fmt: skip

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

    def _run_jobs(
        self, count: int, content: Callable[[Sequence[int]], bytes | None], *, chunk: int = 1
    ) -> Iterator[tuple[int, Any]]:
        """Yields the index and the result of each job; `content` pickles the jobs of some indices."""
        if self._calls:  # left over by a caller that stopped taking results
            self._kill_all()
        queue, missing, idle = JobQueue(count, chunk=chunk, retries=_RETRIES), count, list(range(self.size))
        while missing:
            while queue and idle:
                place, chunks = idle.pop(0), queue.take(count)  # one chunk, as a job may take an hour
                self._calls[self._submit(place, content(jobs_in(chunks)))] = place, chunks
            if self._listener is not None:
                self._listener.on_steps("evaluate", 0)  # may stop the work
            for call in wait(self._calls, timeout=_TICK, return_when=FIRST_COMPLETED).done:
                place, chunks = self._calls.pop(call)
                idle.append(place)
                for result in self._results(call, place, chunks, queue):
                    missing -= 1
                    yield result

    def _submit(self, place: int, jobs: bytes | None) -> Future[Any]:
        """Give jobs to the process at a place, which is started if there is none; returns the future result."""
        if self._executors[place] is None:
            self._executors[place] = ProcessPoolExecutor(1, initializer=begin_worker, initargs=(os.getpid(),))
        try:
            call: Future[Any] = self._executors[place].submit(_answer, self._setup, jobs)
        except TerminatedWorkerError:  # it was killed while it had nothing to do
            self._kill(place)
            return self._submit(place, jobs)
        return call

    def _results(self, call: Future[Any], place: int, chunks: Sequence[JobChunk], queue: JobQueue) -> Results:
        """The results of a call; if its process died, the jobs are run again or given up."""
        try:
            return list(zip(jobs_in(chunks), call.result(), strict=True))
        except TerminatedWorkerError as error:
            reason = "its process was killed" if "SIGKILL" in str(error) else "its process died"
        except MemoryError:
            reason = "its process ran out of memory"
        except DeviceError as error:
            reason = str(error)
        except EvomalError as error:
            raise error from None  # without the traceback of the other process
        self._kill(place)
        self._say(f"a worker process was lost: {reason}")
        return list(queue.put_back(chunks, reason).items())

    def _kill_all(self) -> None:
        with ThreadPoolExecutor(self.size) as threads:  # threads, because a second Ctrl-C does not interrupt them
            list(threads.map(self._kill, range(self.size)))
        self._calls.clear()

    def _kill(self, place: int) -> None:
        for call in [call for call, (at, _) in self._calls.items() if at == place]:
            # loky's own thread fails if it has not registered a call when its process is killed.
            for _ in range(_REGISTRATION_MILLISECONDS):
                if call.running() or call.done():
                    break
                time.sleep(0.001)
        executor, self._executors[place] = self._executors[place], None
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
