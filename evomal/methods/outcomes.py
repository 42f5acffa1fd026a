"""What became of a candidate: a named state with a sentence, and a fitness where there is one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from evomal.errors import InputError


class State(StrEnum):
    """How far a candidate came."""

    EVALUATED = "evaluated"
    CACHED = "cached"
    DEAD = "dead gradient"
    REJECTED = "rejected"
    EQUIVALENT = "gradient-equivalent"
    DIVERGED = "diverged"
    FAILED = "failed"


_WITH_FITNESS = frozenset({State.EVALUATED, State.CACHED, State.EQUIVALENT})


@dataclass(frozen=True)
class Outcome:
    """A state, the fitness to be minimised (inf where there is none), and a sentence for people.

    A fitness of NaN or −inf cannot be made at all, so neither can ever win; `measured` turns what a training returns
    into an outcome, whatever it returns. The seconds by stage differ from run to run and take no part in equality.
    """

    state: State
    fitness: float
    sentence: str
    weights: tuple[float, ...] = field(default=(), repr=False)
    fingerprint: str | None = field(default=None, repr=False)
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if math.isnan(self.fitness) or self.fitness == -math.inf:
            raise InputError(f"fitness must be a finite number, or inf where there is none, but got {self.fitness}")
        if self.has_fitness and self.state not in _WITH_FITNESS:
            raise InputError(f"fitness must be inf for a candidate that is {self.state} but got {self.fitness}")
        if self.state is State.EVALUATED and not self.has_fitness:
            raise InputError("fitness must be finite for a candidate that is evaluated but got inf")

    @classmethod
    def measured(
        cls,
        fitness: float,
        sentence: str,
        *,
        weights: tuple[float, ...] = (),
        fingerprint: str | None = None,
        seconds: Mapping[str, float] | None = None,
    ) -> "Outcome":
        """Evaluated with this fitness, or diverged where it is not finite."""
        if math.isfinite(fitness):
            return cls(State.EVALUATED, float(fitness), sentence, weights, fingerprint, seconds or {})
        sentence = f"the fitness was {fitness}, which counts as divergence"
        return cls(State.DIVERGED, math.inf, sentence, weights, fingerprint, seconds or {})

    @property
    def has_fitness(self) -> bool:
        """Whether there is a fitness to compare."""
        return math.isfinite(self.fitness)

    def seen_again(self) -> "Outcome":
        """The outcome of the same tree, proposed once more (symbolic equivalence)."""
        if self.state is State.CACHED:
            return replace(self, seconds={})
        return replace(self, state=State.CACHED, sentence=f"seen before: {self.sentence}", seconds={})

    def of_twin(self, weights: tuple[float, ...] = ()) -> "Outcome":
        """The outcome of another tree with the same gradients, whose own weights are these (gradient equivalence)."""
        return replace(
            self,
            state=State.EQUIVALENT,
            sentence=f"same gradients as an earlier candidate: {self.sentence}",
            weights=weights,
            seconds={},
        )
