"""What a strategy asks to have evaluated: a genome and where it came from."""

from dataclasses import dataclass
from typing import Literal

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.methods.outcomes import Outcome

Genome = Expression | tuple[float, ...] | str
"""A tree, the parameters of a polynomial, or the name of a loss whose form is fixed."""
Origin = Literal["initial", "elite", "crossover", "mutation", "copy", "seeded", "sampled", "given", "continued"]


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
    weights: tuple[float, ...] = ()
    """Those to start from, where the strategy has a say in it."""

    @property
    def expression(self) -> Expression:
        """The genome as a tree."""
        if not isinstance(self.genome, Expression):
            raise InputError(f"a proposal of {_described(self.genome)} has no expression")
        return self.genome

    @property
    def numbers(self) -> tuple[float, ...]:
        """The genome as a vector."""
        if not isinstance(self.genome, tuple):
            raise InputError(f"a proposal of {_described(self.genome)} has no numbers")
        return self.genome


def key_of(genome: Genome) -> str:
    """Text that two genomes share exactly when they are the same."""
    return genome.key if isinstance(genome, Expression) else repr(genome)


def size_of(genome: Genome) -> int:
    """Nodes of a tree, or how many numbers there are; a fixed form is of one piece."""
    if isinstance(genome, Expression):
        return genome.size
    return 1 if isinstance(genome, str) else len(genome)


def _described(genome: Genome) -> str:
    if isinstance(genome, Expression):
        return "an expression"
    return f"the form {genome!r}" if isinstance(genome, str) else f"{len(genome)} numbers"
