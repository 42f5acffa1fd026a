"""Work in pieces: who takes how much, what is tried again, what is given up."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from evomal.engine.plans import Plan
from evomal.methods import Failure, Stage

_PIECES_EACH = 2  # of a worker's fair share of what is left: large ones first, single ones at the end


@dataclass(frozen=True)
class Piece:
    """Rows that go to a worker together."""

    units: tuple["Unit", ...]

    @property
    def rows(self) -> list[int]:
        """In order."""
        return [row for unit in self.units for row in unit.rows]


@dataclass
class Unit:
    """Rows that must stay together, as their numbers could depend on it, and how often they were lost."""

    rows: range
    losses: int = 0


@dataclass
class Backlog:
    """Rows that are still to be worked on.

    A piece never cuts a unit, so that nothing depends on who works on what. One that was lost with its worker comes
    back as single units, and is tried again before anything else, so that waiting for one that hangs overlaps with
    other work. Whatever was lost more often than `retries` times, the last time alone, is given up; a unit of several
    rows is cut before.
    """

    count: int
    unit: int
    retries: int
    _fresh: deque[Unit] = field(default_factory=deque)
    _lost: deque[Unit] = field(default_factory=deque)

    def __post_init__(self) -> None:
        bounds = range(0, self.count, max(1, self.unit))
        self._fresh.extend(Unit(range(start, min(start + self.unit, self.count))) for start in bounds)

    def __bool__(self) -> bool:
        """Whether anything is waiting."""
        return bool(self._fresh or self._lost)

    def take(self, share: float) -> Piece:
        """The next piece for a worker that could do this share of what is left."""
        if self._lost:
            return Piece((self._lost.popleft(),))
        wanted = max(1, math.floor(len(self._fresh) * share / _PIECES_EACH))
        return Piece(tuple(self._fresh.popleft() for _ in range(min(wanted, len(self._fresh)))))

    def lose(self, piece: Piece, reason: str) -> dict[int, Failure]:
        """Take a piece back whose worker was lost; the rows that are given up, and why."""
        given_up: dict[int, Failure] = {}
        for unit in piece.units:
            losses = unit.losses + 1
            if losses <= self.retries or len(piece.units) > 1:  # whom a worker took along is not to blame
                self._lost.append(Unit(unit.rows, losses))
            elif len(unit.rows) > 1:
                # One chance each: together they have used up the others.
                self._lost.extend(Unit(range(row, row + 1), self.retries) for row in unit.rows)
            else:
                times = "once" if losses == 1 else f"{losses} times"
                given_up[unit.rows[0]] = Failure(f"{reason} ({times})")
        return given_up


def units(plans: Sequence[Plan], device: str) -> dict[Stage, int]:
    """For each stage so many, counted from the first; 0: all.

    Stacked, the last bits depend on how many candidates there are in a chunk, so a worker gets whole chunks, cut where
    one engine alone would cut them. The kernels of the filters work on each candidate by itself on a CPU, which is
    tested; elsewhere they get all, which takes milliseconds.
    """
    optimised = min(plan.meta_chunk for plan in plans) if all(plan.mode == "stacked" for plan in plans) else 1
    trained = math.lcm(*(plan.training_chunk if plan.mode == "stacked" else 1 for plan in plans))
    filtered = 1 if device == "cpu" else 0
    return {
        "optimise": optimised, "evaluate": trained, "gradient_norms": filtered, "gains": filtered,
        "optimise_networks": 1, "evaluate_losses": 1,
    }  # fmt: skip
