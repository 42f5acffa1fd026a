"""Errors that tell of too little memory: Python's, those of torch's allocators, and those of CUDA and its libraries."""

from collections.abc import Sequence
from typing import Any

import torch

from evomal.engine import Engine
from evomal.errors import EvomalError, UserCodeError
from evomal.methods import Failure, Raised, Stage
from evomal.progress import StageStepsDone
from evomal.runs.executors.backlog import units
from evomal.text import one_line
from evomal.users_code import place_of_error

# By torch on Linux and macOS, on Windows; by CUDA and Triton; by cuBLAS, cuDNN and the others.
_WORDS = ("can't allocate memory", "not enough memory", "out of memory", "STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the machine was too small at that moment, rather than the program wrong."""
    if isinstance(error, UserCodeError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


# Of these a candidate can be the cause, also by what a user's model asserts; any other is a defect and must be seen,
# unless it was raised in the user's own code.
_CAUSED_BY_CANDIDATES = (RuntimeError, MemoryError, ArithmeticError, ValueError, TypeError, AssertionError, LookupError)
_LONGEST = 300


class LocalExecutor:
    """Asks the engine for all candidates at once; where that raises, looks for who is to blame.

    That is done unit by unit, and one by one only in a unit that raises again: so the others have the numbers that they
    would have without it, and workers with some of the units come to the same. One that can be tried on another machine
    does not bear the blame for too little memory: `raises_memory_errors` leaves that to the caller.
    """

    def __init__(self, engine: Engine, *, raises_memory_errors: bool = False) -> None:
        self._engine, self._raises_memory_errors = engine, raises_memory_errors
        self._units = units(engine.plans, engine.device.type)

    def run(
        self, stage: Stage, *columns: Sequence[Any], seed: int | None = None, report: StageStepsDone | None = None
    ) -> list[Any]:
        options = {"seed": seed, "report": None if report is None else _ending(report)}
        given = {name: value for name, value in options.items() if value is not None}
        try:
            return self._tried(stage, columns, given, smaller=[self._units[stage] or len(columns[0]), 1])
        except _EndedError as end:
            raise end.error from end.error.__cause__

    def _tried(
        self, stage: Stage, columns: Sequence[Sequence[Any]], options: dict[str, Any], *, smaller: Sequence[int]
    ) -> list[Any]:
        """The results of all at once; where that raises, in parts as small as the first of `smaller`, and so on."""
        try:
            results: list[Any] = getattr(self._engine, stage)(*columns, **options)
        except Exception as raised:
            # What the user's code raised may be due to a candidate; for other sentences the settings are to blame.
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
                message = " ".join(str(error).split())[:_LONGEST]
                return [Failure(one_line(error), Raised(type(error).__name__, message, place, error))]
            size, *rest = [size for size in smaller if size < count]
            found: list[Any] = []
            for start in range(0, count, size):
                part = [column[start : start + size] for column in columns]
                found += self._tried(stage, part, options, smaller=rest)
            return found
        return results

    def record(self) -> dict[str, Any]:
        return self._engine.record()

    def steps(self, candidates: int) -> dict[str, int]:
        return self._engine.steps(candidates)


class _EndedError(BaseException):
    """On its way past everything that looks for errors of candidates: what a report raised ends the work."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _ending(report: StageStepsDone) -> StageStepsDone:
    def reported(stage: str, steps: int) -> None:
        try:
            report(stage, steps)
        except Exception as error:
            raise _EndedError(error) from None

    return reported
