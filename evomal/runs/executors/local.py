"""All candidates on one engine in this process."""

from collections.abc import Sequence
from typing import Any

from evomal.engine import Engine
from evomal.engine.engine import Report
from evomal.errors import EvomalError
from evomal.methods import Failure, Stage

# Of these a candidate can be the cause, also by what a user's model asserts; else it is a defect and must be seen.
_CAUSED_BY_CANDIDATES = (RuntimeError, MemoryError, ArithmeticError, ValueError, TypeError, AssertionError, LookupError)
_LONGEST = 300


class LocalExecutor:
    """Asks the engine for all candidates at once; where that raises, for each alone, to find who is to blame."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, stage: Stage, *columns: Sequence[Any], report: Report | None = None) -> list[Any]:
        work = getattr(self._engine, stage)
        options = {} if report is None else {"report": report}
        try:
            results: list[Any] = work(*columns, **options)
        except EvomalError:
            raise  # the settings are to blame, not a candidate
        except _CAUSED_BY_CANDIDATES as error:
            rows = list(zip(*columns, strict=True))
            if len(rows) == 1:
                return [Failure(one_line(error))]
            alone = (self.run(stage, *([value] for value in row), report=report) for row in rows)
            return [result for results in alone for result in results]
        return results

    def record(self) -> dict[str, Any]:
        return self._engine.record()

    def steps(self, candidates: int) -> dict[str, int]:
        return self._engine.steps(candidates)


def one_line(error: BaseException) -> str:
    """What an error says, short enough for a record."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__
