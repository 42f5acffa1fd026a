"""Where candidates are worked on: behind this, one engine here or many elsewhere."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from evomal.engine.engine import Report

Stage = Literal["optimise", "gradient_norms", "gains", "evaluate", "optimise_networks", "evaluate_losses"]
"""The methods of an `Engine` that work on a list of candidates."""


@dataclass(frozen=True)
class Raised:
    """An error that user code or a library raised while a candidate was worked on."""

    kind: str
    message: str
    place: str
    """File and line of the innermost call in the user's own code; empty where there is none."""
    error: BaseException

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.kind}: {self.message}{where}" if self.message else f"{self.kind}{where}"

    def is_like(self, other: "Raised | None") -> bool:
        """Whether the other has the same cause: raised in the same place, or with the same words."""
        if other is None or other.kind != self.kind:
            return False
        return other.place == self.place if self.place else other.message == self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Neither an error of a stranger's class nor its traceback can be sent to other processes; their text can.
        text = "".join(traceback.format_exception(self.error))
        return Raised, (self.kind, self.message, self.place, RaisedInWorkerError(text))


class RaisedInWorkerError(Exception):
    """What was raised in another process, as its traceback reads."""


@dataclass(frozen=True)
class Failure:
    """In the place of a result: why this candidate has none."""

    sentence: str
    raised: Raised | None = field(default=None, compare=False)
    """What was raised; None where its worker was lost."""


class Executor(Protocol):
    """Works on lists of candidates. A result may not depend on how many workers there are or who does what."""

    def run(
        self, stage: Stage, *columns: Sequence[Any], seed: int | None = None, report: Report | None = None
    ) -> list[Any]:
        """The results of the engine's method of that name, in order, or a Failure where a candidate has none.

        The candidates are the rows of the columns, which are the method's arguments. `seed` is that of trainings where
        it is not to be the search's.
        """

    def record(self) -> dict[str, Any]:
        """What the engines have decided by rule, and settings that could change a float: see `Engine.record`."""

    def steps(self, candidates: int) -> dict[str, int]:
        """Steps that will be reported for so many candidates: what a progress bar can promise."""
