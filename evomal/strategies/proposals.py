"""What a strategy asks to have evaluated: a genome and where it came from."""

from dataclasses import dataclass
from typing import Literal

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.strategies.outcomes import Outcome

Genome = Expression | tuple[float, ...]
Origin = Literal["initial", "elite", "crossover", "mutation", "copy", "seeded", "sampled"]


@dataclass(frozen=True)
class Proposal:
    """A candidate of the next generation; `parents` are places in the one before.

    An elite comes with the outcome it already has, which need only be told again: nothing is computed for it, and it
    is no hit of a filter.
    """

    genome: Genome
    origin: Origin
    parents: tuple[int, ...] = ()
    known: Outcome | None = None

    @property
    def expression(self) -> Expression:
        """The genome as a tree."""
        if not isinstance(self.genome, Expression):
            raise InputError(f"a proposal of {len(self.genome)} numbers has no expression")
        return self.genome

    @property
    def numbers(self) -> tuple[float, ...]:
        """The genome as a vector."""
        if isinstance(self.genome, Expression):
            raise InputError("a proposal of an expression has no numbers")
        return self.genome


def key_of(genome: Genome) -> str:
    """Text that two genomes share exactly when they are the same."""
    return genome.key if isinstance(genome, Expression) else repr(genome)


def size_of(genome: Genome) -> int:
    """Nodes of a tree, or how many numbers there are."""
    return genome.size if isinstance(genome, Expression) else len(genome)
