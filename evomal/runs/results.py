"""What a generation came to: states counted, the best candidate, the time taken."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evomal.expression import Expression
from evomal.losses.contract import Kind, Loss
from evomal.methods import learned_loss, readable
from evomal.methods.archive import Candidate
from evomal.methods.outcomes import State
from evomal.methods.proposals import Genome
from evomal.runs.candidates import RecordedCandidate
from evomal.runs.finals import Final, Scores
from evomal.text import shorten
from evomal.units import Units


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


@dataclass(frozen=True)
class Best:
    """The best candidate of a search, as something to use: the final's winner, or where there is no final the one of
    least fitness."""

    genome: Genome
    weights: tuple[float, ...]
    fitness: float
    """Of its training in the search, as the search compares it: the metric, or its negative where more is better."""
    value: float
    """The metric itself, of the mean over the tasks."""
    generation: int
    kind: Kind
    activation: str
    units: Units | None = None
    """Those in which the tasks standardise their targets, where they share them."""
    scores: tuple[float, ...] = ()
    """What its trainings in the final came to, one for each fresh seed, as costs; none where there was no final."""

    def __repr__(self) -> str:
        mean = f", mean={self.mean:.4g} of {len(self.scores)}" if self.scores else ""
        return (
            f"Best({shorten(str(self.genome), 60)!r}, fitness={self.fitness:.4g}{mean}, generation={self.generation})"
        )

    @property
    def mean(self) -> float:
        """Of the scores; NaN where there was no final."""
        return Scores(self.scores).mean if self.scores else math.nan

    @property
    def expression(self) -> Expression | None:
        """The tree; None where the method's losses are not expressions."""
        return self.genome if isinstance(self.genome, Expression) else None

    def formula(self) -> str:
        """Simplified text to read, weights rounded."""
        return readable(self.genome, self.weights)

    def loss(self) -> Loss:
        """An ordinary module: `loss(output, target)`, of raw outputs and raw targets for regression.

        It has the units of the task it was learned on and standardises both inside; tasks that standardise their
        targets use it without. Learned on several tasks of different units it has none.
        """
        loss = learned_loss(self.genome, self.weights, kind=self.kind, activation=self.activation)
        return loss.in_units(self.units)


@dataclass(frozen=True)
class SearchResult:
    """The best loss, or None when nothing survived; what each generation came to; size against fitness."""

    best: Best | None
    history: tuple[Generation, ...]
    front: tuple[Candidate, ...]
    ending: str
    """Why the search stopped."""
    folder: Path | None
    seconds: float
    forced: tuple[str, ...] = ()
    """What the run was gone on with over, although it differed: after that nothing need repeat."""
    rivals: Mapping[str, float] = field(default_factory=dict)
    """Fitness of the baseline, which is the first, and of the known losses that fit the task, by name: one training
    each, under the protocol of candidates; infinite where it diverged."""
    final: Final | None = None
    """The best candidates and the rivals trained again with fresh seeds; None where the settings want no final."""
    metric: str = ""
    """What fitness is measured by."""
    higher_is_better: bool = False
    """Whether more of the metric is better, so that a fitness is its negative."""

    def __repr__(self) -> str:
        rivals = ", ".join(f"{name} {fitness:.4g}" for name, fitness in self.rivals.items())
        verdict = "" if self.final is None else f", {self.final.verdict}"
        return f"SearchResult(best={self.best!r}, rivals=({rivals}){verdict}, {len(self.history)} generations)"

    @property
    def counts(self) -> dict[str, int]:
        """Candidates by what became of them, elites not counted."""
        return total_counts(self.history)

    def value(self, fitness: float) -> float:
        """The metric itself, of a fitness as the search compares it."""
        return -fitness if self.higher_is_better else fitness


def total_counts(history: Sequence[Generation]) -> dict[str, int]:
    """Candidates of all generations by state."""
    counts: dict[str, int] = {}
    for generation in history:
        for state, count in generation.counts.items():
            counts[str(state)] = counts.get(str(state), 0) + count
    return counts
