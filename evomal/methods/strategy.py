"""What a strategy does: it is asked for the candidates of a generation, then told what became of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import Candidate, proposed


class Strategy(ABC):
    """Proposes a fixed number of generations of equal size.

    The proposals depend only on the arguments of the strategy and on what it was told: a new strategy that is told the
    candidates of a record continues where the record ends.
    """

    def __init__(self, *, population: int, generations: int) -> None:
        self.population, self.generations = population, generations
        self.generation = 0
        """The number of generations that were told."""
        self._asked: list[Candidate] | None = None

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to ask."""
        return self.generation >= self.generations

    @property
    def ending(self) -> str:
        """Why there is nothing left to ask."""
        return f"all {self.generations} generations are done" if self.generations > 1 else "the one generation is done"

    def ask(self) -> list[Candidate]:
        """The next generation; `tell` must follow before the next call."""
        if self.finished:
            raise EvomalError(f"the search is finished: all {self.generations} generations have been told")
        if self._asked is not None:
            raise EvomalError(f"generation {self.generation} has been asked already and must be told first")
        self._asked = [
            replace(candidate, generation=self.generation, index=index)
            for index, candidate in enumerate(self._propose())
        ]
        return list(self._asked)

    def tell(self, candidates: Sequence[Candidate]) -> None:
        """Take in the candidates that were asked last, in order, each with its state."""
        if self._asked is None:
            raise EvomalError(f"generation {self.generation} must be asked before it is told")
        if len(candidates) != len(self._asked):
            raise InputError(f"told candidates must be {len(self._asked)}, as many as asked, but got {len(candidates)}")
        self._learn(list(candidates))
        self._asked = None
        self.generation += 1

    @abstractmethod
    def _propose(self) -> list[Candidate]:
        """The candidates of generation `self.generation`."""

    @abstractmethod
    def _learn(self, candidates: list[Candidate]) -> None:
        """Take in what became of them."""


class FixedForm(Strategy):
    """Proposes the same form in every generation, from the weights that the generation before ended with."""

    def __init__(self, form: str, *, generations: int = 1) -> None:
        super().__init__(population=1, generations=generations)
        self._form = form
        self._weights: tuple[float, ...] = ()
        self._has_failed = False

    @property
    def finished(self) -> bool:
        """Whether all generations have been told, or one of them failed: the next would fail in the same way."""
        return self._has_failed or super().finished

    @property
    def ending(self) -> str:
        """That all generations are done, or which one failed."""
        if self._has_failed and self.generation < self.generations:
            return f"generation {self.generation} has no fitness, and any after it would have none"
        return super().ending

    def _propose(self) -> list[Candidate]:
        return [proposed(self._form, "continued" if self._weights else "given", weights=self._weights)]

    def _learn(self, candidates: list[Candidate]) -> None:
        (candidate,) = candidates
        self._weights, self._has_failed = candidate.weights, not candidate.has_fitness
