"""A method is a strategy, whose `ask` proposes candidates and whose `tell` takes their results, and an evaluator."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from evomal.errors import EvomalError, InputError
from evomal.expression import Expression
from evomal.methods.candidates import Candidate, proposed
from evomal.methods.evaluation import Evaluator, Executor, SearchContext, Stage


class Strategy(ABC):
    """Proposes a fixed number of generations; `population` candidates of each are meant to be trained.

    The proposals depend only on the arguments of the strategy and on the results given to `tell`: a new strategy that
    gets the candidates of a record continues where the record ends.
    """

    def __init__(self, *, population: int, generations: int) -> None:
        self.population, self.generations = population, generations
        self.generation = 0
        """The number of generations whose results are known."""
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
            raise EvomalError(f"the search is finished: all {self.generations} generations are done")
        if self._asked is not None:
            raise EvomalError(f"`ask` was called twice for generation {self.generation}: `tell` must be called first")
        self._asked = [
            replace(candidate, generation=self.generation, index=index)
            for index, candidate in enumerate(self._propose())
        ]
        return list(self._asked)

    def tell(self, candidates: Sequence[Candidate]) -> None:
        """Take in the candidates that `ask` returned last, in order, each with its state."""
        if self._asked is None:
            raise EvomalError(f"`tell` was called before `ask` for generation {self.generation}")
        if len(candidates) != len(self._asked):
            raise InputError(
                f"`tell` must get the {len(self._asked)} candidates that `ask` returned but got {len(candidates)}"
            )
        self._learn(list(candidates))
        self._asked = None
        self.generation += 1

    @abstractmethod
    def _propose(self) -> list[Candidate]:
        """The candidates of generation `self.generation`."""

    def _learn(self, candidates: list[Candidate]) -> None:  # noqa: B027
        """Take in what became of them, if that changes what is proposed."""


class FixedForm(Strategy):
    """Proposes the same form in every generation, from the weights that the generation before ended with."""

    def __init__(self, form: str, *, generations: int = 1) -> None:
        super().__init__(population=1, generations=generations)
        self._form = form
        self._weights: tuple[float, ...] = ()
        self._has_failed = False

    @property
    def finished(self) -> bool:
        """Whether all generations are done, or one of them failed: the next would fail in the same way."""
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


@dataclass(frozen=True)
class Method:
    """A way to search for a loss, under the name that people give it."""

    name: str
    purpose: str
    make_strategy: Callable[[SearchContext, Sequence[Expression]], Strategy]
    """From the context and the expressions to begin with."""
    evaluator: Callable[[SearchContext, Executor], Evaluator]
    workload: Mapping[Stage, float | None]
    """The share of a generation that is expected to reach each stage, for an estimate of the time. The shares of
    methods that search for expressions were measured over whole searches (docs/results.md). None means one candidate,
    whatever the population."""
    searches_expressions: bool = True
    """Whether its losses are expressions, which can have an output activation and can be given to begin with."""

    def strategy(self, context: SearchContext, seeds: Sequence[Expression] = ()) -> Strategy:
        """The strategy, which begins with the given expressions."""
        if seeds and not self.searches_expressions:
            raise InputError(f"{self.name} does not search for expressions, so it cannot begin with losses")
        return self.make_strategy(context, seeds)

    def expected_candidates(self, population: int) -> dict[Stage, int]:
        """How many candidates of a generation are expected to reach each stage."""
        return {
            stage: 1 if share is None else max(1, round(share * population)) for stage, share in self.workload.items()
        }
