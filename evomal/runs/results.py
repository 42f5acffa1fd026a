"""What a search found."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evomal.expression import Expression
from evomal.losses.contract import Kind, Loss
from evomal.methods import learned_loss, readable
from evomal.runs.generations import Generation
from evomal.strategies import Candidate, Genome
from evomal.units import Units


@dataclass(frozen=True)
class Best:
    """The best candidate ever seen, as something to use."""

    genome: Genome
    weights: tuple[float, ...]
    fitness: float
    """As the search compares it: the metric, or its negative where more is better."""
    value: float
    """The metric itself, of the mean over the tasks."""
    generation: int
    kind: Kind
    activation: str
    units: Units | None = None
    """Those in which the tasks standardise their targets, where they share them."""

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

    @property
    def counts(self) -> dict[str, int]:
        """Candidates by what became of them, elites not counted."""
        return total_counts(self.history)


def total_counts(history: Sequence[Generation]) -> dict[str, int]:
    """Candidates of all generations by state."""
    counts: dict[str, int] = {}
    for generation in history:
        for state, count in generation.counts.items():
            counts[str(state)] = counts.get(str(state), 0) + count
    return counts
