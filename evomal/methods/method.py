"""What makes a method: a strategy that proposes candidates, and an evaluator that gives them their fitness."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.methods.evaluation import Evaluator, Executor, SearchContext, Stage
from evomal.methods.strategy import Strategy


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
