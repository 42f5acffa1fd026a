"""Jobs for a pool of workers: what a pool offers, and the queue of the jobs that are still to be done."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evomal.errors import DeviceError
from evomal.methods import Failure
from evomal.runs.callbacks import SearchListener


class JobRunner(Protocol):
    """Runs jobs in a worker, with the data that it was built from."""

    def describe(self) -> dict[str, Any]:
        """Facts on which all workers must agree."""

    def run(self, jobs: Sequence[Any]) -> list[Any]:
        """A result for each job."""


class WorkerPool(Protocol):
    """Worker processes that all build the same job runner and share the jobs among them.

    Results do not depend on the number of workers. Jobs of a worker that is lost are run again elsewhere.

    Example:
        >>> pool.prepare(TrialTrainer, task, settings=settings)  # doctest: +SKIP
        >>> for index, scores in pool.run(groups):  # doctest: +SKIP
        ...     log.add(groups[index], scores)
    """

    size: int
    """Number of workers."""
    is_local: bool
    """Whether the workers are processes of this machine: equally fast, and without a time limit."""

    def prepare(self, build: Callable[..., JobRunner], *data: Any, **options: Any) -> dict[str, Any]:
        """Build `build(*data, **options)` in every worker, unless they have built the same already.

        Data is sent to each machine once, and stays there while the same objects are used again.

        Returns:
            The description by the job runner.

        Raises:
            InputError: Something cannot be sent to a worker.
            EvomalError: The job runner cannot be built, workers disagree, or there are none.
        """

    def run(self, jobs: Sequence[Any], *, chunk: int = 1) -> Iterator[tuple[int, Any]]:
        """The index and the result of each job, as they come in; a Failure for a job that was lost with its workers.

        Args:
            jobs: Arguments of the job runner.
            chunk: Number of jobs, counted from the first, that go to a worker together.

        Raises:
            EvomalError: Workers are lost before they have built the job runner, again and again.
        """

    def say_once(self, sentence: str) -> None:
        """Show a sentence to the user, unless it was shown before."""


class SpeakingPool:
    """A pool that says sentences to its listener, if it has one."""

    _listener: SearchListener | None = None

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say_once(self, sentence: str) -> None:
        """Show a sentence to the user, unless it was shown before."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._say(sentence)

    def _say(self, sentence: str) -> None:
        if self._listener is not None:
            self._listener.say(sentence)


@dataclass(frozen=True)
class JobChunk:
    """Jobs that one worker must run together, because their results could depend on it."""

    jobs: range
    times_lost: int = 0
    """How often it was lost with its worker."""


def jobs_in(chunks: Sequence[JobChunk]) -> list[int]:
    """The jobs of several chunks, in order."""
    return [job for chunk in chunks for job in chunk.jobs]


class JobQueue:
    """Jobs that no worker runs yet.

    Chunks that were lost with their worker come back one by one, before all others, so that waiting for one that hangs
    overlaps with other work. A chunk that is lost more than `retries` times, the last time alone, is given up; if it
    has several jobs, each gets one chance alone first.
    """

    def __init__(self, count: int, *, chunk: int, retries: int) -> None:
        starts = range(0, count, max(1, chunk))
        self._new = deque(JobChunk(range(start, min(start + chunk, count))) for start in starts)
        self._lost: deque[JobChunk] = deque()
        self._retries = retries

    def __bool__(self) -> bool:
        """Whether any jobs are waiting."""
        return bool(self._new or self._lost)

    def take(self, workers: int) -> list[JobChunk]:
        """The next chunks for one of the workers: half of its fair share, so that all end at about the same time."""
        if self._lost:
            return [self._lost.popleft()]
        return [self._new.popleft() for _ in range(min(len(self._new), max(1, len(self._new) // (2 * workers))))]

    def give_back(self, chunks: Sequence[JobChunk]) -> None:
        """Take chunks back that no worker has begun."""
        self._lost.extendleft(reversed(chunks))

    def put_back(self, chunks: Sequence[JobChunk], reason: str | DeviceError) -> dict[int, Failure]:
        """Take chunks back that were lost with their worker; returns the jobs that are given up."""
        given_up = {}
        for chunk in chunks:
            times_lost = chunk.times_lost + 1
            if times_lost <= self._retries or len(chunks) > 1:  # any of several may be the cause
                self._lost.append(JobChunk(chunk.jobs, times_lost))
            elif len(chunk.jobs) > 1:
                self._lost.extend(JobChunk(range(job, job + 1), self._retries) for job in chunk.jobs)
            else:
                times = "once" if times_lost == 1 else f"{times_lost} times"
                given_up[chunk.jobs[0]] = Failure(f"{reason} ({times})", is_of_device=isinstance(reason, DeviceError))
        return given_up
