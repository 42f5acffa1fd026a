"""The memory of a search: results by genome and by gradients, the best candidate, and the front.

The lookups are those of EvoMAL's symbolic and gradient equivalence filters (sections 3.5.1 and 3.5.3), both by hashing.
"""

from evomal.methods.candidates import Candidate, State, best_of, front_of


class Archive:
    """Every candidate that was evaluated; the first of equal genomes or equal fingerprints is kept."""

    def __init__(self) -> None:
        self._by_genome: dict[str, Candidate] = {}
        self._by_weights: dict[tuple[str, tuple[float, ...]], Candidate] = {}
        self._by_fingerprint: dict[str, Candidate] = {}
        self._evaluated: list[Candidate] = []

    def __len__(self) -> int:
        """Number of different genomes."""
        return len(self._by_genome)

    @property
    def best(self) -> Candidate | None:
        """The best candidate that was trained; None if there is none."""
        return best_of(self._evaluated)

    @property
    def front(self) -> tuple[Candidate, ...]:
        """Trained candidates that are better than all that are as small or smaller, smallest first."""
        return front_of(self._evaluated)

    def same_genome(self, candidate: Candidate) -> Candidate | None:
        """The first candidate with this genome, whatever became of it; None if there is none.

        If it is proposed with weights of its own, the other must have ended with the same weights.
        """
        if candidate.weights:
            return self._by_weights.get((candidate.genome, candidate.weights))
        return self._by_genome.get(candidate.genome)

    def same_gradients(self, candidate: Candidate) -> Candidate | None:
        """The first candidate that was trained and has the same gradients; None if there is none."""
        return None if candidate.fingerprint is None else self._by_fingerprint.get(candidate.fingerprint)

    def add(self, candidate: Candidate) -> None:
        """Remember an evaluated candidate."""
        if candidate.state is State.PASSED_OVER:  # nothing is known of it
            return
        self._by_genome.setdefault(candidate.genome, candidate)
        self._by_weights.setdefault((candidate.genome, candidate.weights), candidate)
        # A rejected or failed candidate was never trained, so its gradients predict no fitness.
        if candidate.fingerprint is not None and candidate.state in (State.EVALUATED, State.DIVERGED):
            self._by_fingerprint.setdefault(candidate.fingerprint, candidate)
        if candidate.state is State.EVALUATED:
            self._evaluated.append(candidate)
