"""The memory of a search: every outcome, the best candidate, and the front of size against fitness.

The lookups are those of EvoMAL's symbolic and gradient equivalence filters (sections 3.5.1 and 3.5.3), both by hashing.
"""

from dataclasses import dataclass

from evomal.expression import Expression
from evomal.methods.outcomes import Outcome, State
from evomal.methods.proposals import Genome, key_of, size_of
from evomal.text import shorten


@dataclass(frozen=True)
class Candidate:
    """A genome that was trained, with its weights, its fitness and its place in the search."""

    genome: Genome
    weights: tuple[float, ...]
    fitness: float
    generation: int
    index: int

    def __repr__(self) -> str:
        place = f"{self.generation}:{self.index}"
        return f"Candidate({place} {shorten(str(self.genome), 60)!r}, fitness={self.fitness:.4g})"

    @property
    def expression(self) -> Expression | None:
        """The tree; None for a genome of numbers."""
        return self.genome if isinstance(self.genome, Expression) else None

    @property
    def size(self) -> int:
        """Nodes of the tree, or how many numbers there are."""
        return size_of(self.genome)

    @property
    def rank(self) -> tuple[float, int, int, int]:
        """Smaller is better: fitness, then the smaller tree, then the earlier."""
        return (self.fitness, self.size, self.generation, self.index)


class Archive:
    """Outcomes by tree and by gradient fingerprint; only fitness that was measured makes a best or a front.

    A cached fitness is no news, and one taken over from a candidate with equal gradients is a guess: good enough to
    spare a training, not to put an untrained loss in the place of the trained one.
    """

    def __init__(self) -> None:
        self._by_key: dict[str, Outcome] = {}
        self._by_fingerprint: dict[str, Outcome] = {}
        self._best_by_size: dict[int, Candidate] = {}
        self._best: Candidate | None = None

    def __len__(self) -> int:
        """How many different genomes were seen."""
        return len(self._by_key)

    @property
    def best(self) -> Candidate | None:
        """The best candidate ever seen; None while none has a fitness."""
        return self._best

    @property
    def front(self) -> tuple[Candidate, ...]:
        """Candidates that no other beats in size without losing in fitness, smallest first."""
        front: list[Candidate] = []
        for _, candidate in sorted(self._best_by_size.items()):
            if not front or candidate.fitness < front[-1].fitness:
                front.append(candidate)
        return tuple(front)

    def seen(self, genome: Genome) -> Outcome | None:
        """The outcome of the same genome seen before, as a cached one; a rejection is an outcome too."""
        outcome = self._by_key.get(key_of(genome))
        return None if outcome is None else outcome.seen_again()

    def twin(self, fingerprint: str, *, weights: tuple[float, ...] = ()) -> Outcome | None:
        """The fitness of an earlier candidate with the same gradients, for a candidate that has these weights."""
        outcome = self._by_fingerprint.get(fingerprint)
        return None if outcome is None else outcome.of_twin(weights)

    def record(self, genome: Genome, outcome: Outcome, *, generation: int, index: int) -> None:
        """Remember what became of a candidate; of equal genomes and equal fingerprints the first recorded stays."""
        self._by_key.setdefault(key_of(genome), outcome)
        # Whoever was rejected or failed never came to a training, so its gradients foretell no fitness.
        if outcome.fingerprint is not None and outcome.state in (State.EVALUATED, State.DIVERGED):
            self._by_fingerprint.setdefault(outcome.fingerprint, outcome)
        if outcome.state is State.EVALUATED:
            self._rank(Candidate(genome, outcome.weights, outcome.fitness, generation, index))

    def _rank(self, candidate: Candidate) -> None:
        rival = self._best_by_size.get(candidate.size)
        if rival is None or candidate.rank < rival.rank:
            self._best_by_size[candidate.size] = candidate
        if self._best is None or candidate.rank < self._best.rank:
            self._best = candidate
