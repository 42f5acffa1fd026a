"""Executors: compute results for candidates with an engine in this process, or with one in each worker of a pool."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from evomal.engine import Engine, EngineSettings, Rung, RungScores
from evomal.engine.device_memory import device_error, is_out_of_memory
from evomal.engine.plans import Plan
from evomal.errors import DeviceError, EvomalError, UserCodeError
from evomal.expression import Expression
from evomal.methods import Executor, Failure, Raised, Stage
from evomal.progress import StageStepsDone
from evomal.runs.callbacks import SearchListener
from evomal.runs.executors.jobs import WorkerPool
from evomal.runs.executors.workers import worker_pool
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.text import one_line
from evomal.users_code import place_of_error

# A candidate can cause these, for example by an assertion in the user's model. Any other error is a defect of evomal,
# unless it was raised in the user's own code.
_CAUSED_BY_CANDIDATES = (RuntimeError, MemoryError, ArithmeticError, ValueError, TypeError, AssertionError, LookupError)
_REPORTED_AS: dict[str, str] = {
    "optimise_networks": "optimise", "evaluate_losses": "evaluate", "try_rates": "evaluate",
}  # fmt: skip
_EXPRESSION_STAGES: tuple[Stage, ...] = ("inadmissible", "gradient_norms", "optimise", "gains", "evaluate")
_TRAININGS: tuple[Stage, ...] = ("evaluate", "evaluate_losses", "try_rates")
_TRIED_TOGETHER = 16  # candidates per chunk on CUDA: few enough that every worker gets some
_WARM_UP_TREE = Expression.parse("square(sub(y, f))")


@contextlib.contextmanager
def open_executor(
    tasks: Sequence[Task], settings: SearchSettings, *, seed: int, engine: EngineSettings,
    listener: SearchListener | None = None, jobs: int = 1,
) -> Iterator[Executor]:  # fmt: skip
    """A context with the executor that the settings ask for, or one of that many processes on this machine."""
    with worker_pool(settings, listener, jobs=jobs) as pool:
        if pool is None:
            yield LocalExecutor(Engine(tasks, seed=seed, settings=engine))
        else:
            tuned: tuple[Stage, ...] = ("optimise",) if settings.tuned_rung == 1 else ()
            stages = ("try_rates", *tuned) if settings.tried_rates else ("evaluate",)
            yield PoolExecutor(pool, tasks, seed=seed, settings=engine, trained_in=stages)


def chunk_sizes(plans: Sequence[Plan], device: str) -> dict[Stage, int]:
    """How many candidates of a stage must be computed together, counted from the first; 0: all.

    In a stack, the last bits may depend on how many candidates are in a chunk, so a worker gets whole chunks, cut where
    one engine alone would cut them. On a CPU, the filters' kernels treat each candidate by itself (a test checks this);
    on other devices one worker filters all candidates, which takes milliseconds. One worker also checks admissibility,
    which takes less time than sending.
    """
    optimised = min(plan.meta_chunk for plan in plans) if all(plan.mode == "stacked" for plan in plans) else 1
    trained = math.lcm(*(plan.training_chunk if plan.mode == "stacked" else 1 for plan in plans))
    filtered = 1 if device == "cpu" else 0
    tried = 1 if device == "cpu" or any(plan.mode == "looped" for plan in plans) else _TRIED_TOGETHER
    return {
        "optimise": optimised, "evaluate": trained, "inadmissible": 0, "gradient_norms": filtered,
        "profiles": filtered, "gains": filtered, "optimise_networks": 1, "evaluate_losses": 1, "try_rates": tried,
    }  # fmt: skip


class LocalExecutor:
    """Gives the engine all candidates at once; if that raises an error, finds the candidate that causes it.

    To find it, the chunks are computed one by one, and the candidates one by one only in a chunk that raises again. So
    the others have the results that they would have without it, also if workers have computed some of the chunks. With
    `raises_memory_errors`, a lack of memory is raised: on another machine the candidate may succeed.
    """

    def __init__(self, engine: Engine, *, raises_memory_errors: bool = False) -> None:
        self._engine, self._raises_memory_errors = engine, raises_memory_errors
        self._chunk_sizes = chunk_sizes(engine.plans, engine.device.type)

    def run(
        self, stage: Stage, *columns: Sequence[Any], seed: int | None = None, report: StageStepsDone | None = None
    ) -> list[Any]:
        options = {"seed": seed, "report": None if report is None else _passing_errors(report)}
        given = {name: value for name, value in options.items() if value is not None}
        try:
            return self._compute(stage, columns, given, sizes=[self._chunk_sizes[stage] or len(columns[0]), 1])
        except _StoppedError as stopped:
            raise stopped.error from stopped.error.__cause__

    def _compute(
        self, stage: Stage, columns: Sequence[Sequence[Any]], options: dict[str, Any], *, sizes: Sequence[int]
    ) -> list[Any]:
        """The results of all candidates; if that raises an error, again in parts of the next smaller of the sizes."""
        try:
            results: list[Any] = getattr(self._engine, stage)(*columns, **options)
        except Exception as raised:
            if (failure := device_error(raised)) is not None:
                raise failure from raised
            # A candidate may cause an error of the user's code; any other EvomalError is due to the settings.
            error = raised.__cause__ if isinstance(raised, UserCodeError) and raised.__cause__ else raised
            if isinstance(error, EvomalError):
                raise
            place = place_of_error(error)
            if not (isinstance(error, _CAUSED_BY_CANDIDATES) or place):
                raise
            if self._raises_memory_errors and is_out_of_memory(error):
                raise
            count = len(columns[0])
            if count == 1:
                sentence = one_line(error)
                message = sentence if str(error).strip() else ""
                return [Failure(sentence, Raised(type(error).__name__, message, place, error))]
            size, *rest = [size for size in sizes if size < count]
            found: list[Any] = []
            for start in range(0, count, size):
                part = [column[start : start + size] for column in columns]
                found += self._compute(stage, part, options, sizes=rest)
            return found
        return results

    def record(self) -> dict[str, Any]:
        return self._engine.record()

    def steps(self, candidates: int) -> dict[str, int]:
        return self._engine.steps(candidates)


class _StoppedError(BaseException):
    """Carries an error of a listener, which stops the work, past the handling of candidates' errors."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _passing_errors(report: StageStepsDone) -> StageStepsDone:
    """The report, whose errors stop the work instead of counting as a candidate's."""

    def reported(stage: str, steps: int) -> None:
        try:
            report(stage, steps)
        except Exception as error:
            raise _StoppedError(error) from None

    return reported


class EngineRunner:
    """An engine in a worker; a job is a stage, a seed and the arguments of one candidate.

    `is_timed`: whether candidates have a time limit.
    """

    def __init__(self, *tasks: Task, seed: int, settings: EngineSettings, is_timed: bool = True) -> None:
        self._engine = Engine(tasks, seed=seed, settings=settings)
        self._executor = LocalExecutor(self._engine, raises_memory_errors=True)
        if not is_timed:
            return
        # Load the kernels now, so that loading does not count towards the time limit of a candidate.
        short = dataclasses.replace(settings, meta_steps=1, training_steps=1, filter_steps=1)
        executor = LocalExecutor(Engine(tasks, seed=seed, settings=short))
        for stage in _EXPRESSION_STAGES:
            executor.run(stage, [_WARM_UP_TREE], [[1.0] * _WARM_UP_TREE.edges])

    def describe(self) -> dict[str, Any]:
        engine = self._engine
        sizes = chunk_sizes(engine.plans, engine.device.type)
        is_stacked = any(plan.mode == "stacked" for plan in engine.plans)
        return {
            "record": engine.record(), "steps": engine.steps(1), "chunk_sizes": sizes, "is_stacked": is_stacked
        }  # fmt: skip

    def run(self, jobs: Sequence[tuple[Stage, int | None, Sequence[Any]]]) -> list[Any]:
        stage, seed, _ = jobs[0]
        columns = [list(column) for column in zip(*(arguments for _, _, arguments in jobs), strict=True)]
        return self._executor.run(stage, *columns, seed=seed)


def _steps_of(job: tuple[Stage, int | None, Sequence[Any]]) -> int:
    """The training steps of a candidate on its rung, for each task; 0 if it is not trained on one."""
    stage, _, arguments = job
    if stage != "try_rates":
        return 0
    rung: Rung = arguments[1]
    return len(arguments[2]) * len(rung.seeds) * rung.steps


def _part(rung: Rung, part: int, parts: int) -> Rung:
    """The rung with one of several parts of its seeds."""
    first, end = (len(rung.seeds) * number // parts for number in (part, part + 1))
    return dataclasses.replace(rung, seeds=rung.seeds[first:end], splits=rung.splits[first:end])


class PoolExecutor:
    """Shares candidates among the workers of a pool; this process needs neither an engine nor a GPU.

    `trained_in` names the long stages of the search: if one of them has fewer chunks than there are workers, the user
    is told.
    """

    def __init__(
        self,
        pool: WorkerPool,
        tasks: Sequence[Task],
        *,
        seed: int,
        settings: EngineSettings,
        trained_in: Sequence[Stage] = ("evaluate",),
    ) -> None:
        self._pool, self._tasks = pool, tasks
        self._options = {"seed": seed, "settings": settings, "is_timed": not pool.is_local}
        self._description = self._prepare()
        for stage in trained_in:
            self._warn_of_idle_workers(settings.population, stage)

    def run(
        self, stage: Stage, *columns: Sequence[Any], seed: int | None = None, report: StageStepsDone | None = None
    ) -> list[Any]:
        self._prepare()  # again, if a search inside this one, as by a callback, has used the same workers
        if stage == "try_rates" and (parts := self._seed_parts(columns[1])) > 1:
            return self._in_parts(parts, *columns, report=report)
        return self._run(stage, columns, seed, report)

    def _run(
        self, stage: Stage, columns: Sequence[Sequence[Any]], seed: int | None, report: StageStepsDone | None
    ) -> list[Any]:
        jobs = [(stage, seed, arguments) for arguments in zip(*columns, strict=True)]
        name = _REPORTED_AS.get(stage, stage)
        steps = self._description["steps"].get(name, 0)
        results: list[Any] = [None] * len(jobs)
        for index, result in self._pool.run(jobs, chunk=self._together(stage, len(jobs))):
            if isinstance(result, Failure) and result.is_of_device:  # recorded, it would be the candidate's
                raise DeviceError(result.sentence)
            results[index] = result
            if report is not None:
                report(name, _steps_of(jobs[index]) * len(self._tasks) or steps)
        return results

    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = self._description["record"]
        return record

    def steps(self, candidates: int) -> dict[str, int]:
        return {stage: each * candidates for stage, each in self._description["steps"].items()}

    def _together(self, stage: Stage, count: int) -> int:
        """How many candidates go to a worker together: those that must, or a whole share if that saves work.

        A share of a generation takes about as long as any other, and is one stack instead of many small ones. Filters
        take less time than sending. Models that are trained one by one are sent one by one: some diverge early.
        """
        least: int = self._description["chunk_sizes"][stage] or max(1, count)
        trained_alone = stage in _TRAININGS and not self._description["is_stacked"]
        return least if trained_alone or not self._pool.is_local else least * math.ceil(count / least / self._pool.size)

    def _seed_parts(self, rungs: Sequence[Rung]) -> int:
        """Into how many parts to divide the seeds of losses, so that few losses occupy all workers.

        On a CPU a training has the same bits in any company; models that are not stacked have one seed at a time.
        """
        is_exact = self._description["record"]["device"] == "cpu" and self._description["is_stacked"]
        if not rungs or not self._pool.is_local or not is_exact:
            return 1
        size, seeds = self._pool.size, len(rungs[0].seeds)

        def longest(parts: int) -> int:
            return math.ceil(len(rungs) / (size // parts)) * math.ceil(seeds / parts)

        return min(range(1, min(size, seeds) + 1), key=longest)  # of equal ones the first

    def _in_parts(
        self, parts: int, losses: Sequence[Any], rungs: Sequence[Rung], rates: Sequence[Any], *,
        report: StageStepsDone | None,
    ) -> list[Any]:  # fmt: skip
        """The scores of losses on their rungs, whose seeds are divided: a worker gets all losses of a part, or some."""
        divided = [_part(rung, part, parts) for part in range(parts) for rung in rungs]
        found = self._run("try_rates", [[*losses] * parts, divided, [*rates] * parts], None, report)
        results = []
        for place in range(len(losses)):
            own = found[place :: len(losses)]
            failure = next((one for one in own if isinstance(one, Failure)), None)
            results.append(RungScores.joined(own) if failure is None else failure)
        return results

    def _prepare(self) -> dict[str, Any]:
        return self._pool.prepare(EngineRunner, *self._tasks, **self._options)

    def _warn_of_idle_workers(self, population: int, stage: Stage) -> None:
        """Tell the user if all candidates of a generation are fewer chunks than there are workers."""
        size = self._description["chunk_sizes"][stage]
        chunks, useful = math.ceil(population / size), min(self._pool.size, population)
        if chunks >= useful:
            return
        noun, verb = ("chunk", "has") if chunks == 1 else ("chunks", "have")
        # Trials on rungs have chunks of a fixed size.
        change = f"population={size * self._pool.size}" if stage == "try_rates" else f"chunk={population // useful}"
        self._pool.say_once(
            f"candidates are stacked in {chunks} {noun} of {min(size, population)}, so only {chunks} of "
            f"{self._pool.size} workers {verb} work: --set {change} or --set population_mode=looped uses more"
        )
