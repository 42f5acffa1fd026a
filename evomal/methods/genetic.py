"""Tournament selection: the best of a few drawn at random (EvoMAL, section 3.2.2)."""

import math
from collections.abc import Sequence

import numpy as np

from evomal.checks import finite_number, whole_number
from evomal.errors import InputError
from evomal.expression import Expression, crossover, mutate
from evomal.expression.generate import Heights
from evomal.methods.outcomes import Outcome
from evomal.methods.proposals import Proposal
from evomal.methods.random_search import RampedTrees
from evomal.methods.strategy import GenerationalStrategy
from evomal.randomness import generator


def tournament(scores: Sequence[float], *, size: int = 4, generator: np.random.Generator) -> int:
    """The place of the smallest of so many scores, drawn evenly with replacement; of equals, the one drawn first."""
    if not scores:
        raise InputError("a tournament needs at least 1 score but got 0")
    entrants = generator.integers(len(scores), size=size).tolist()
    winner: int = min(entrants, key=lambda entrant: _comparable(scores[entrant]))
    return winner


def penalised(fitnesses: Sequence[float], sizes: Sequence[int], *, parsimony: float) -> list[float]:
    """Fitness plus so much for every node of the tree."""
    return [fitness + parsimony * size for fitness, size in zip(fitnesses, sizes, strict=True)]


def _comparable(score: float) -> float:
    # Nothing is smaller than NaN by Python's comparison, so one that is drawn first would win.
    return math.inf if math.isnan(score) else score


class GeneticSearch(GenerationalStrategy):
    """Ramped trees at first, then elites and the children of tournament winners.

    A child comes from one operator: crossover, mutation or copy. What stands at a place of a generation is drawn from
    (seed, generation, place) and from the outcomes of the generation before, and so can be had again.
    """

    def __init__(
        self,
        *,
        seed: int,
        population: int = 25,
        generations: int = 50,
        tournament: int = 4,
        crossover: float = 0.7,
        mutation: float = 0.25,
        elitism: float = 0.05,
        max_height: int = 10,
        initial_height: Heights = (2, 4),
        parsimony: float = 0.0,
        seeds: Sequence[Expression] = (),
    ) -> None:
        super().__init__(population=population, generations=generations)
        self._seed = seed
        self._tournament = whole_number("tournament", tournament, at_least=1)
        self._crossover = _share("crossover", crossover)
        self._mutation = _share("mutation", mutation)
        if self._crossover + self._mutation > 1:
            together = self._crossover + self._mutation
            raise InputError(f"crossover and mutation must be at most 1 together but got {together:g}")
        self._elites = _elite_count(_share("elitism", elitism), population)
        self._parsimony = finite_number("parsimony", parsimony, at_least=0)
        self._trees = RampedTrees(initial_height, max_height)
        self._seeds = [_fitting(expression, max_height) for expression in seeds][:population]
        self._parents: list[Expression] = []
        self._outcomes: list[Outcome] = []
        self._scores: list[float] = []

    def _propose(self) -> list[Proposal]:
        if self.generation == 0:
            seeded = [Proposal(expression, "seeded") for expression in self._seeds]
            places = range(len(seeded), self.population)
            return seeded + [Proposal(self._trees.draw(self._randomness(place)), "initial") for place in places]
        elites = [self._elite(place) for place in self._best_places()]
        return elites + [self._child(self._randomness(place)) for place in range(len(elites), self.population)]

    def _learn(self, proposals: list[Proposal], outcomes: list[Outcome]) -> None:
        self._parents = [proposal.expression for proposal in proposals]
        self._outcomes = outcomes
        self._scores = penalised(
            [outcome.fitness for outcome in outcomes],
            [parent.size for parent in self._parents],
            parsimony=self._parsimony,
        )

    def _best_places(self) -> list[int]:
        # By fitness alone, whatever parsimony prefers: elitism is there so that the best is not lost.
        def rank(place: int) -> tuple[float, int, int]:
            return (self._outcomes[place].fitness, self._parents[place].size, place)

        return sorted(range(self.population), key=rank)[: self._elites]

    def _elite(self, place: int) -> Proposal:
        return Proposal(self._parents[place], "elite", (place,), known=self._outcomes[place])

    def _child(self, randomness: np.random.Generator) -> Proposal:
        cap = self._trees.max_height
        operator = randomness.random()
        first = self._winner(randomness)
        if operator < self._crossover:
            second = self._winner(randomness)
            # The other child is left: with two to a crossover, a place would depend on its neighbour's draws.
            child, _ = crossover(self._parents[first], self._parents[second], max_height=cap, generator=randomness)
            return Proposal(child, "crossover", (first, second))
        if operator < self._crossover + self._mutation:
            child = mutate(self._parents[first], max_height=cap, generator=randomness)
            return Proposal(child, "mutation", (first,))
        return Proposal(self._parents[first], "copy", (first,))

    def _winner(self, randomness: np.random.Generator) -> int:
        return tournament(self._scores, size=self._tournament, generator=randomness)

    def _randomness(self, place: int) -> np.random.Generator:
        return generator(self._seed, "variation", self.generation, place)


def _share(name: str, value: float) -> float:
    share = finite_number(name, value, at_least=0)
    if share > 1:
        raise InputError(f"{name} must be at most 1 but got {value}")
    return share


def _elite_count(share: float, population: int) -> int:
    rounded = math.floor(share * population + 0.5)
    return min(max(1, rounded), population)


def _fitting(expression: Expression, max_height: int) -> Expression:
    if expression.height > max_height:
        raise InputError(f"a seed's height must be at most max_height = {max_height} but got {expression.height}")
    return expression.require_loss()
