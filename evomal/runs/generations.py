"""The candidates of a search as generations, and as a table."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from evomal.methods.candidates import Candidate, State

if TYPE_CHECKING:
    from evomal.runs.recorded_run import Run

_SHOWN_FAILURES = 3


@dataclass(frozen=True)
class Generation:
    """The result of a generation.

    Elites and migrants count in `best` and `size`. Nothing was computed for them, so they do not count in `counts` and
    `seconds`.
    """

    number: int
    """Counted from 0."""
    size: int
    counts: Mapping[State, int]
    """Number of candidates in each state."""
    best: Candidate | None
    """The candidate of lowest fitness, the smaller of equal ones; None if none has a fitness. It need not have been
    trained: its fitness may be that of an earlier candidate with the same gradients."""
    seconds: Mapping[str, float] = field(compare=False)
    """Time taken by each stage."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in self.counts.items())
        best = "nothing trained" if self.best is None else f"best={self.best.fitness:.4g}"
        return f"Generation({self.number}, {best}, {counts or 'nothing computed'})"


def best_so_far(generations: npt.ArrayLike, fitness: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    """The lowest fitness up to each of `count` generations; infinite until there is one.

    The candidates must be comparable, with the same number of rungs: the cost of a shorter training says nothing about
    that of a longer one.
    """
    lowest = np.full(count, np.inf)
    np.minimum.at(lowest, np.asarray(generations, dtype=np.intp), np.asarray(fitness, dtype=np.float64))
    return np.minimum.accumulate(lowest)


def summarised(candidates: Iterable[Candidate]) -> tuple[Generation, ...]:
    """The generations of these candidates, in order."""
    members: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        members.setdefault(candidate.generation, []).append(candidate)
    return tuple(_summary(number, members[number]) for number in sorted(members))


def _summary(number: int, members: list[Candidate]) -> Generation:
    seconds: dict[str, float] = {}
    counts: Counter[State] = Counter()
    for member in members:
        if member.is_carried or member.state is None:
            continue
        counts[member.state] += 1
        for stage, taken in member.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + taken
    known = [member for member in members if member.has_fitness]
    best = min(known, key=lambda member: member.rank, default=None)
    return Generation(number, len(members), dict(counts), best, seconds)


def reasons_of_failures(candidates: Iterable[Candidate]) -> dict[str, int]:
    """The most frequent reasons why candidates failed, with the number of each."""
    failed = Counter(candidate.sentence for candidate in candidates if candidate.state is State.FAILED)
    return dict(failed.most_common(_SHOWN_FAILURES))


def candidate_columns(run: "Run") -> dict[str, list[Any]]:
    """The columns of `Run.to_dataframe`."""
    found = run.candidates
    fitness = [one.fitness if one.has_fitness else math.nan for one in found]
    return {
        "task": [run.task] * len(found),
        "method": [run.method] * len(found),
        "seed": [run.seed] * len(found),
        "generation": [one.generation for one in found],
        "index": [one.index for one in found],
        "origin": [one.origin for one in found],
        "state": [None if one.state is None else str(one.state) for one in found],
        "sentence": [one.sentence for one in found],
        "loss": [one.genome for one in found],
        "weights": [one.weights for one in found],
        "size": [one.size for one in found],
        "fitness": fitness,
        "metric": [run.metric] * len(found),
        "value": [run.value(value) for value in fitness],
        "rungs": [len(one.rungs) for one in found],
        "rate": [one.rate for one in found],
        "seconds": [math.fsum(one.seconds.values()) for one in found],  # a record sorts its stages
    }
