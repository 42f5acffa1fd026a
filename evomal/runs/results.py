"""What a search found."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evomal.expression import Expression
from evomal.losses.contract import Kind, Loss
from evomal.methods import learned_loss, readable
from evomal.runs.finals import Final, Scores
from evomal.runs.generations import Generation
from evomal.strategies import Candidate, Genome
from evomal.text import cut
from evomal.units import Units


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
        return f"Best({cut(str(self.genome), 60)!r}, fitness={self.fitness:.4g}{mean}, generation={self.generation})"

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
