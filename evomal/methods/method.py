"""What makes a method: how it proposes candidates, and what becomes of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses.contract import Kind
from evomal.methods.judging import Executor, Judge, Stage
from evomal.methods.strategy import Strategy
from evomal.settings import SearchSettings


@dataclass(frozen=True)
class SearchContext:
    """What a search is about, besides its tasks themselves."""

    settings: SearchSettings
    seed: int
    kind: Kind
    """Of its tasks."""


@dataclass(frozen=True)
class Workload:
    """Which share of a generation is expected to reach each stage, for an estimate before there is a record.

    Of expressions, by what was measured over whole searches (docs/results.md); None: one candidate, whatever the
    population.
    """

    shares: Mapping[Stage, float | None]

    def candidates(self, population: int) -> dict[Stage, int]:
        """How many candidates of a generation each stage is expected to work on."""
        return {
            stage: 1 if share is None else max(1, round(share * population)) for stage, share in self.shares.items()
        }


@dataclass(frozen=True)
class Method:
    """A way to come by a loss, under the name people give it."""

    name: str
    purpose: str
    propose: Callable[[SearchContext, Sequence[Expression]], Strategy]
    """The strategy, which may begin with some expressions."""
    judge: Callable[[SearchContext, Executor], Judge]
    workload: Workload
    of_expressions: bool = True
    """Whether its losses are expressions, which may have an output activation and may be begun with."""

    def strategy(self, context: SearchContext, seeds: Sequence[Expression] = ()) -> Strategy:
        """What it proposes; one that does not work on expressions cannot begin with any."""
        if seeds and not self.of_expressions:
            raise InputError(f"{self.name} does not search for expressions, so it cannot begin with losses")
        return self.propose(context, seeds)
