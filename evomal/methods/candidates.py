"""Candidates: what a search tries, from its proposal to its record, how they are ranked, and the archive of them."""

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, get_args

from evomal.engine import RungScores
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.variation import MutationName
from evomal.text import shorten

Genome = Expression | tuple[float, ...] | str
"""A tree, the parameters of a polynomial, or the name of a loss whose form is fixed."""
Carried = Literal["elite", "migrant"]
"""How a candidate comes from the generation before with its state: nothing is computed for it again."""
Origin = (
    Carried
    | MutationName
    | Literal["initial", "crossover", "mutation", "copy", "seeded", "sampled", "given", "continued"]
)


class State(StrEnum):
    """How far a candidate came."""

    EVALUATED = "evaluated"
    CACHED = "cached"
    INADMISSIBLE = "inadmissible"
    DEAD = "dead gradient"
    REJECTED = "rejected"
    EQUIVALENT = "gradient-equivalent"
    PASSED_OVER = "passed over"
    DIVERGED = "diverged"
    FAILED = "failed"


_WITH_FITNESS = frozenset({State.EVALUATED, State.CACHED, State.EQUIVALENT})


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A loss that a search tries, and what became of it.

    A strategy proposes it without a state. The evaluator returns it with a state, a sentence for people and, if it was
    trained successfully, a fitness. In this form it is recorded. Two candidates are equal if everything but the time
    they took is equal.
    """

    genome: str
    """The text of the tree, a JSON list of numbers, or the name of a loss whose form is fixed."""
    origin: str
    """How it was made: see `Origin`."""
    parents: tuple[int, ...] = ()
    """Indices of its parents in the generation before."""
    generation: int = 0
    index: int = 0
    """Its position in the generation."""
    weights: tuple[float, ...] = ()
    """The weights to start from until it is evaluated, then those that it ended with; these may not be finite."""
    state: State | None = None
    """None until it is evaluated. An elite is proposed with the state that it has already."""
    fitness: float = math.inf
    """Lower is better; infinite if there is none. NaN and −inf are refused, so that neither can win."""
    sentence: str = ""
    rungs: tuple[tuple[float, float], ...] = ()
    """For every rung that it was trained on, its best learning rate, as a multiple of the task's own, and its fitness
    there; empty where candidates are trained once, at the task's learning rate."""
    factor: float = 1.0
    """What the loss was multiplied by for its gradient at the start to match that of a known loss."""
    fingerprint: str | None = None
    """Equal for candidates whose gradients are equal."""
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Time taken by each stage."""

    def __post_init__(self) -> None:
        if math.isnan(self.fitness) or self.fitness == -math.inf:
            raise InputError(f"fitness must be a finite number, or inf where there is none, but got {self.fitness}")
        if self.has_fitness and self.state not in _WITH_FITNESS:
            raise InputError(f"fitness must be inf for a candidate that is {self.state} but got {self.fitness}")
        if self.state is State.EVALUATED and not self.has_fitness:
            raise InputError("fitness must be finite for a candidate that is evaluated but got inf")

    def __repr__(self) -> str:
        fitness = f", fitness={self.fitness:.4g}" if self.has_fitness else ""
        return f"Candidate({self.place} {shorten(self.genome, 60)!r}, {self.state or 'proposed'}{fitness})"

    @property
    def place(self) -> str:
        """`generation:index`, by which trials refer to it."""
        return f"{self.generation}:{self.index}"

    @property
    def is_carried(self) -> bool:
        """Whether it comes from the generation before with its state, so that nothing was computed for it here."""
        return self.origin in get_args(Carried)

    @property
    def form(self) -> Genome:
        """The genome as an object. Raises InputError if this version of evomal cannot read it."""
        return genome_from(self.genome)

    @property
    def expression(self) -> Expression | None:
        """The tree; None if the genome is not a tree."""
        form = self.form
        return form if isinstance(form, Expression) else None

    @property
    def tree(self) -> Expression:
        """The tree of a candidate that must have one."""
        if (expression := self.expression) is None:
            raise InputError(f"the genome {shorten(self.genome, 60)!r} is not an expression")
        return expression

    @property
    def size(self) -> int | None:
        """Number of nodes or of parameters, 1 for a fixed form; None if the genome cannot be read."""
        try:
            return size_of(self.form)
        except InputError:
            return None

    @property
    def has_fitness(self) -> bool:
        """Whether there is a fitness to compare."""
        return math.isfinite(self.fitness)

    @property
    def standing(self) -> tuple[float, float]:
        """Smaller is better: first the longest rung that it reached, then its fitness there.

        Fitness on rungs of different lengths cannot be compared; a candidate that was trained on a longer rung was
        among the best of the shorter one.
        """
        return (-len(self.rungs) if self.has_fitness else math.inf, self.fitness)

    @property
    def rank(self) -> tuple[tuple[float, float], float, int, int]:
        """Smaller is better: first the standing, then the size, then the earlier candidate."""
        return (self.standing, self.size or math.inf, self.generation, self.index)

    @property
    def rate(self) -> float:
        """Its best learning rate on the longest rung, as a multiple of the task's own."""
        return self.rungs[-1][0] if self.rungs else 1.0

    def ended(self, state: State, sentence: str) -> "Candidate":
        """The candidate in a state without fitness."""
        return replace(self, state=state, fitness=math.inf, sentence=sentence)

    def measured(self, fitness: float) -> "Candidate":
        """The candidate evaluated with this fitness, or diverged if the fitness is not finite."""
        if math.isfinite(fitness):
            return replace(self, state=State.EVALUATED, fitness=float(fitness), sentence="trained and evaluated")
        return self.ended(State.DIVERGED, f"the fitness was {fitness}, which counts as divergence")

    def climbed(self, scores: RungScores) -> "Candidate":
        """The candidate with its scores on a further rung, or diverged if it diverged at every learning rate."""
        if math.isfinite(scores.cost):
            rungs = (*self.rungs, (scores.rate, float(scores.cost)))
            return replace(self.measured(scores.cost), rungs=rungs, factor=scores.factor)
        return self.ended(State.DIVERGED, scores.sentence or "every training diverged")

    def cached(self, earlier: "Candidate") -> "Candidate":
        """The candidate with the result of an earlier one of the same genome (symbolic equivalence)."""
        repeated = earlier.state is State.CACHED
        sentence = earlier.sentence if repeated else f"seen before: {earlier.sentence}"
        return replace(
            self, state=State.CACHED, fitness=earlier.fitness, sentence=sentence, weights=earlier.weights,
            fingerprint=earlier.fingerprint, rungs=earlier.rungs, factor=earlier.factor, seconds={},
        )  # fmt: skip

    def equivalent(self, earlier: "Candidate") -> "Candidate":
        """The candidate with the fitness of an earlier one of the same gradients (gradient equivalence)."""
        sentence = f"same gradients as an earlier candidate: {earlier.sentence}"
        return replace(
            self, state=State.EQUIVALENT, fitness=earlier.fitness, sentence=sentence, fingerprint=earlier.fingerprint,
            rungs=earlier.rungs,
        )  # fmt: skip


def proposed(genome: Genome, origin: Origin, parents: tuple[int, ...] = (), **others: Any) -> Candidate:
    """A new candidate; a strategy's `ask` gives it its generation and index."""
    return Candidate(genome=genome_text(genome), origin=origin, parents=parents, **others)


def trained(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those whose fitness was measured, best first.

    A cached fitness adds nothing, and one taken over because of equal gradients is an estimate: it saves a training,
    but an untrained loss must not replace the trained one.
    """
    evaluated = [candidate for candidate in candidates if candidate.state is State.EVALUATED]
    return sorted(evaluated, key=lambda candidate: candidate.rank)


def best_of(candidates: Iterable[Candidate]) -> Candidate | None:
    """The best candidate that was trained; None if there is none."""
    return next(iter(trained(candidates)), None)


def front_of(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Trained candidates that are better than all that are as small or smaller, smallest first."""
    front: list[Candidate] = []
    sized = [candidate for candidate in candidates if candidate.size is not None]
    for candidate in sorted(trained(sized), key=lambda candidate: candidate.size or 0):
        if not front or candidate.standing < front[-1].standing:
            front.append(candidate)
    return tuple(front)


def comparable(candidates: Sequence[Candidate]) -> list[float]:
    """A number for each candidate, smaller is better: the fitness, or the place in the ranking where there are rungs.

    A candidate without fitness has an infinite number.
    """
    if not any(candidate.rungs for candidate in candidates):
        return [candidate.fitness for candidate in candidates]
    standings = sorted({candidate.standing for candidate in candidates})
    places = {standing: float(place) for place, standing in enumerate(standings)}
    return [places[one.standing] if one.has_fitness else math.inf for one in candidates]


def size_of(genome: Genome) -> int:
    """Number of nodes of a tree or of parameters of a polynomial; 1 for a fixed form."""
    if isinstance(genome, Expression):
        return genome.size
    return 1 if isinstance(genome, str) else len(genome)


def genome_text(genome: Genome) -> str:
    """The genome as it is recorded: a tree's own text, the exact numbers as a JSON list, or a form's name."""
    if isinstance(genome, tuple):
        return json.dumps([float(number) for number in genome], separators=(",", ":"))
    return str(genome)


@functools.lru_cache(maxsize=4096)  # most candidates are read several times, and elites occur in every generation
def genome_from(text: str) -> Genome:
    """The genome of a recorded text.

    Raises:
        InputError: The text is neither a tree nor a list of numbers nor a name.
    """
    if not text.startswith("["):
        return Expression.parse(text, fragment=True) if "(" in text else text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"a genome must be a list of finite numbers: {error}") from None
    if not isinstance(found, list) or not all(type(number) is float and math.isfinite(number) for number in found):
        raise InputError("a genome must be a list of finite numbers")
    return tuple(found)


class Archive:
    """Every candidate that was evaluated; the first of equal genomes or equal fingerprints is kept.

    The lookups are those of EvoMAL's symbolic and gradient equivalence filters (sections 3.5.1 and 3.5.3), by hashing.
    """

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
