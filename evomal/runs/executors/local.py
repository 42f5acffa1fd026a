"""All candidates on one engine in this process."""

from collections.abc import Sequence
from typing import Any

from evomal.engine import Engine
from evomal.engine.engine import Report
from evomal.errors import EvomalError
from evomal.methods import Failure, Stage
from evomal.runs.executors.memory_errors import is_out_of_memory
from evomal.runs.executors.units import units

# Of these a candidate can be the cause, also by what a user's model asserts; else it is a defect and must be seen.
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

    def run(self, stage: Stage, *columns: Sequence[Any], report: Report | None = None) -> list[Any]:
        count = len(columns[0])
        return self._tried(stage, columns, report, smaller=[self._units[stage] or count, 1])

    def _tried(
        self, stage: Stage, columns: Sequence[Sequence[Any]], report: Report | None, *, smaller: Sequence[int]
    ) -> list[Any]:
        """The results of all at once; where that raises, in parts as small as the first of `smaller`, and so on."""
        options = {} if report is None else {"report": report}
        try:
            results: list[Any] = getattr(self._engine, stage)(*columns, **options)
        except EvomalError:
            raise  # the settings are to blame, not a candidate
        except _CAUSED_BY_CANDIDATES as error:
            if self._raises_memory_errors and is_out_of_memory(error):
                raise
            count = len(columns[0])
            if count == 1:
                return [Failure(one_line(error))]
            size, *rest = [size for size in smaller if size < count]
            found: list[Any] = []
            for start in range(0, count, size):
                part = [column[start : start + size] for column in columns]
                found += self._tried(stage, part, report, smaller=rest)
            return found
        return results

    def record(self) -> dict[str, Any]:
        return self._engine.record()

    def steps(self, candidates: int) -> dict[str, int]:
        return self._engine.steps(candidates)


def one_line(error: BaseException) -> str:
    """What an error says, short enough for a record."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__
