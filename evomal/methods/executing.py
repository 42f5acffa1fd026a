"""Where candidates are worked on: behind this, one engine here or many elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from evomal.engine.engine import Report

Stage = Literal["optimise", "gradient_norms", "gains", "evaluate", "optimise_networks", "evaluate_losses"]
"""The methods of an `Engine` that work on a list of candidates."""


@dataclass(frozen=True)
class Failure:
    """In the place of a result: why this candidate has none."""

    sentence: str


class Executor(Protocol):
    """Works on lists of candidates. A result may not depend on how many workers there are or who does what."""

    def run(self, stage: Stage, *columns: Sequence[Any], report: Report | None = None) -> list[Any]:
        """The results of the engine's method of that name, in order, or a Failure where a candidate has none.

        The candidates are the rows of the columns, which are the method's arguments.
        """

    def record(self) -> dict[str, Any]:
        """What the engines have decided by rule, and settings that could change a float: see `Engine.record`."""

    def steps(self, candidates: int) -> dict[str, int]:
        """Steps that will be reported for so many candidates: what a progress bar can promise."""
