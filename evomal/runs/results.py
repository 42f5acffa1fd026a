"""What a search found."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evomal.expression import Expression
from evomal.losses import ExpressionLoss
from evomal.losses.contract import Kind
from evomal.runs.generations import Generation
from evomal.strategies import Candidate


@dataclass(frozen=True)
class Best:
    """The best candidate ever seen, as something to use."""

    expression: Expression
    weights: tuple[float, ...]
    fitness: float
    generation: int
    kind: Kind
    activation: str

    def formula(self) -> str:
        """Simplified text to read, weights rounded."""
        return self.expression.formula(self.weights)

    def loss(self) -> ExpressionLoss:
        """An ordinary module: `loss(output, target)`."""
        return ExpressionLoss(self.expression, weights=self.weights, kind=self.kind, activation=self.activation)


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
