"""The turns of a search: ask for a generation, tell its outcomes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from evomal.checks import whole_number
from evomal.errors import EvomalError, InputError
from evomal.methods.outcomes import Outcome
from evomal.methods.proposals import Proposal


class Strategy(Protocol):
    """What a search loop needs to know of a strategy.

    Its proposals depend on its arguments and on the outcomes told so far, on nothing else: told a record's outcomes,
    a strategy built anew goes on where that record ends.
    """

    @property
    def population(self) -> int:
        """How many proposals a generation has."""

    @property
    def generations(self) -> int:
        """How many generations there will be, unless something ends it sooner."""

    @property
    def generation(self) -> int:
        """How many generations have been told."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to ask."""

    @property
    def ending(self) -> str:
        """Why there is nothing left to ask, once there is not."""

    def ask(self) -> list[Proposal]:
        """The next generation."""

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """The outcomes of the generation asked last, one for each proposal, in order."""


class GenerationalStrategy(ABC):
    """A strategy of a fixed number of generations, each of the same size; keeps the turns in order."""

    def __init__(self, *, population: int, generations: int, least_population: int = 1) -> None:
        self.population = whole_number("population", population, at_least=least_population)
        self.generations = whole_number("generations", generations, at_least=1)
        self._told = 0
        self._asked: list[Proposal] | None = None

    @property
    def generation(self) -> int:
        """How many generations have been told."""
        return self._told

    @property
    def finished(self) -> bool:
        """Whether all generations have been told."""
        return self._told >= self.generations

    @property
    def ending(self) -> str:
        """That all generations are done."""
        return f"all {self.generations} generations are done" if self.generations > 1 else "the one generation is done"

    def ask(self) -> list[Proposal]:
        """The next generation; it must be told before another is asked."""
        if self.finished:
            raise EvomalError(f"the search is finished: all {self.generations} generations have been told")
        if self._asked is not None:
            raise EvomalError(f"generation {self._told} has been asked already and must be told first")
        self._asked = self._propose()
        return list(self._asked)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """The outcomes of the generation asked last, one for each proposal, in order."""
        if self._asked is None:
            raise EvomalError(f"generation {self._told} must be asked before it is told")
        if len(outcomes) != len(self._asked):
            raise InputError(f"outcomes must be {len(self._asked)}, one for each proposal, but got {len(outcomes)}")
        self._learn(self._asked, list(outcomes))
        self._asked = None
        self._told += 1

    @abstractmethod
    def _propose(self) -> list[Proposal]:
        """The proposals of generation `self.generation`."""

    @abstractmethod
    def _learn(self, proposals: list[Proposal], outcomes: list[Outcome]) -> None:
        """Take in what became of them."""


class FixedForm(GenerationalStrategy):
    """The same form in every generation, from the weights that the one before ended with."""

    def __init__(self, form: str, *, generations: int = 1) -> None:
        super().__init__(population=1, generations=generations)
        self._form = form
        self._weights: tuple[float, ...] = ()
        self._lost = False

    @property
    def finished(self) -> bool:
        """Whether all generations have been told, or one of them failed: what comes after would fail alike."""
        return self._lost or super().finished

    @property
    def ending(self) -> str:
        """That all generations are done, or which one failed."""
        if self._lost and self.generation < self.generations:
            return f"generation {self.generation} has no fitness, and any after it would have none"
        return super().ending

    def _propose(self) -> list[Proposal]:
        return [Proposal(self._form, "continued" if self._weights else "given", weights=self._weights)]

    def _learn(self, proposals: list[Proposal], outcomes: list[Outcome]) -> None:
        (outcome,) = outcomes
        self._weights, self._lost = outcome.weights, not outcome.has_fitness
