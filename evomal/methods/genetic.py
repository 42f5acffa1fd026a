"""EvoMAL and GP-LFL: genetic programming over expression trees.

Raymond, Chen, Xue and Zhang, Learning Symbolic Model-Agnostic Loss Functions via Meta-Learning, TPAMI 2023. The search
is that of section 3.2: ramped half-and-half trees at first, then elites and children of tournament winners. EvoMAL also
optimises the weights of each tree through training steps (section 3.4); GP-LFL (section 4.1) leaves them all at one.
With several islands, which the paper does not have, the search is that of `islands.py`.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evomal.errors import InputError
from evomal.expression import Expression, crossover, mutate
from evomal.methods.candidates import Candidate, comparable, proposed
from evomal.methods.evaluation import SearchContext
from evomal.methods.filters import FilteringEvaluator
from evomal.methods.islands import IslandSearch
from evomal.methods.random_search import draw_tree, fitting
from evomal.methods.strategy import Method, Strategy
from evomal.randomness import generator


class GeneticSearch(Strategy):
    """Proposes ramped trees at first, then elites and the children of tournament winners.

    A child is made by one operator: crossover, mutation or copy. The candidate at an index of a generation depends on
    (seed, generation, index) and the generation before, so it can be drawn again.
    """

    def __init__(self, context: SearchContext, seeds: Sequence[Expression] = ()) -> None:
        self._settings = settings = context.settings
        super().__init__(population=settings.population, generations=settings.generations)
        self._seed = context.seed
        self._elites = max(1, math.floor(settings.elitism * settings.population + 0.5))
        self._space = context.space
        self._seeds = [fitting(tree, settings.max_height, self._space) for tree in seeds][: settings.population]
        self._parents: list[Candidate] = []
        self._trees: list[Expression] = []
        self._scores: list[float] = []

    def _propose(self) -> list[Candidate]:
        if self.generation == 0:
            seeded = [proposed(tree, "seeded") for tree in self._seeds]
            places = range(len(seeded), self.population)
            drawn = [draw_tree(self._settings, self._randomness(place), self._space) for place in places]
            return seeded + [proposed(tree, "initial") for tree in drawn]
        # By fitness alone, whatever parsimony prefers: elitism is there so that the best is not lost.
        best = sorted(range(self.population), key=lambda index: self._parents[index].rank)[: self._elites]
        # With the state that it has already: nothing is computed for it.
        elites = [replace(self._parents[index], origin="elite", parents=(index,)) for index in best]
        return elites + [self._child(self._randomness(index)) for index in range(len(elites), self.population)]

    def _learn(self, candidates: list[Candidate]) -> None:
        self._parents = candidates
        self._trees = [candidate.tree for candidate in candidates]
        self._scores = penalised(
            comparable(candidates), [tree.size for tree in self._trees], parsimony=self._settings.parsimony
        )

    def _child(self, randomness: np.random.Generator) -> Candidate:
        settings = self._settings
        operator = randomness.random()
        first = self._winner(randomness)
        if operator < settings.crossover:
            second = self._winner(randomness)
            # The other child is left out: if both were used, an index would depend on the draws of its neighbour.
            child, _ = crossover(
                self._trees[first], self._trees[second], max_height=settings.max_height, space=self._space,
                generator=randomness,
            )  # fmt: skip
            return proposed(child, "crossover", (first, second))
        if operator < settings.crossover + settings.mutation:
            child = mutate(self._trees[first], max_height=settings.max_height, space=self._space, generator=randomness)
            return proposed(child, "mutation", (first,))
        return proposed(self._trees[first], "copy", (first,))

    def _winner(self, randomness: np.random.Generator) -> int:
        return tournament(self._scores, size=self._settings.tournament, generator=randomness)

    def _randomness(self, index: int) -> np.random.Generator:
        return generator(self._seed, "variation", self.generation, index)


def tournament(scores: Sequence[float], *, size: int = 4, generator: np.random.Generator) -> int:
    """The index of the smallest of `size` scores, drawn evenly with replacement; of equal ones, the first drawn.

    Tournament selection, section 3.2.2.
    """
    if not scores:
        raise InputError("a tournament needs at least 1 score but got 0")
    entrants = generator.integers(len(scores), size=size).tolist()
    # By Python's comparison nothing is smaller than NaN, so a NaN that is drawn first would win.
    winner: int = min(entrants, key=lambda index: math.inf if math.isnan(scores[index]) else scores[index])
    return winner


def penalised(fitnesses: Sequence[float], sizes: Sequence[int], *, parsimony: float) -> list[float]:
    """Fitness plus `parsimony` for every node of the tree."""
    return [fitness + parsimony * size for fitness, size in zip(fitnesses, sizes, strict=True)]


def _strategy(context: SearchContext, seeds: Sequence[Expression] = ()) -> Strategy:
    """One population as in the paper, or several islands, as the settings say."""
    return (GeneticSearch if context.settings.islands == 1 else IslandSearch)(context, seeds)


EVOMAL = Method(
    "evomal",
    "evolves formulas and tunes their weights through training steps",
    _strategy,
    FilteringEvaluator,
    {"gradient_norms": 1.0, "optimise": 0.7, "gains": 0.7, "evaluate": 0.5},
)
GP_LFL = Method(
    "gp-lfl",
    "evolves formulas as they are written, all weights one",
    _strategy,
    functools.partial(FilteringEvaluator, optimise=False),
    {"gradient_norms": 1.0, "gains": 0.65, "evaluate": 0.25},
)
