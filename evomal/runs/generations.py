"""What a generation came to: states counted, the best candidate, the time taken."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evomal.runs.candidates import RecordedCandidate
from evomal.strategies.outcomes import State


@dataclass(frozen=True)
class Generation:
    """A generation as far as it is recorded; `best` is None where nothing was trained, ties go to the smaller.

    Elites take part in `best` and `size`, but nothing was computed for them: they are in no count and take no time.
    """

    number: int
    size: int
    counts: Mapping[State, int]
    best: RecordedCandidate | None
    seconds: Mapping[str, float] = field(compare=False)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in self.counts.items())
        best = "nothing trained" if self.best is None else f"best={self.best.fitness:.4g}"
        return f"Generation({self.number}, {best}, {counts or 'nothing computed'})"


def summarised(candidates: Iterable[RecordedCandidate]) -> tuple[Generation, ...]:
    """The generations of these candidates, in order."""
    members: dict[int, list[RecordedCandidate]] = {}
    for candidate in candidates:
        members.setdefault(candidate.generation, []).append(candidate)
    return tuple(_summary(number, members[number]) for number in sorted(members))


def best_of(candidates: Iterable[RecordedCandidate]) -> RecordedCandidate | None:
    """The one an archive would call the best: trained itself, least fitness, then the smaller, then the earlier."""
    trained = [candidate for candidate in candidates if candidate.state is State.EVALUATED]
    least = min((candidate.fitness for candidate in trained), default=math.inf)
    equals = [candidate for candidate in trained if candidate.fitness == least]
    return min(equals, key=lambda one: (one.size or math.inf, one.generation, one.index), default=None)


def _summary(number: int, members: list[RecordedCandidate]) -> Generation:
    seconds: dict[str, float] = {}
    computed = [member for member in members if member.origin != "elite"]
    for member in computed:
        for stage, taken in member.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + taken
    counts = dict(Counter(member.state for member in computed))
    return Generation(number, len(members), counts, best_of(members), seconds)
