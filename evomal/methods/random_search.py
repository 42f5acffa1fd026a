"""Random search: freshly drawn trees in every generation, the control that a search must beat.

The trees are ramped half-and-half (Koza, Genetic Programming, 1992), as in EvoMAL's first generation (section 3.2.1).
"""

from collections.abc import Sequence

import numpy as np

from evomal.errors import InputError
from evomal.expression import PAPER, Expression, Space, ramped_half_and_half
from evomal.methods.candidates import Candidate, proposed
from evomal.methods.evaluation import SearchContext
from evomal.methods.filters import FilteringEvaluator
from evomal.methods.strategy import Method, Strategy
from evomal.randomness import generator
from evomal.settings import SearchSettings


class RandomSearch(Strategy):
    """Proposes as many trees as a genetic search, each drawn without regard to any fitness."""

    def __init__(self, context: SearchContext, seeds: Sequence[Expression] = ()) -> None:
        if seeds:
            raise InputError("random search draws every tree, so it cannot begin with losses")
        super().__init__(population=context.settings.population, generations=context.settings.generations)
        self._settings, self._space, self._seed = context.settings, context.space, context.seed

    def _propose(self) -> list[Candidate]:
        generators = [generator(self._seed, "random search", self.generation, i) for i in range(self.population)]
        return [proposed(draw_tree(self._settings, randomness, self._space), "sampled") for randomness in generators]


def draw_tree(settings: SearchSettings, randomness: np.random.Generator, space: Space = PAPER) -> Expression:
    """One ramped tree that is a valid loss within the heights of the settings."""
    heights, cap = settings.initial_height, settings.max_height
    return ramped_half_and_half(1, heights=heights, max_height=cap, space=space, generator=randomness)[0]


def fitting(tree: Expression, max_height: int, space: Space) -> Expression:
    """The given tree; raises InputError if a search cannot begin with it: no loss, too high, or with other tokens."""
    for token in tree.tokens:
        if token not in space.tokens:
            raise InputError(
                f"a seed must be made of the tokens of the space, but {token} is not among them: add it to space"
            )
    if tree.height > max_height:
        raise InputError(f"a seed's height must be at most max_height = {max_height} but got {tree.height}")
    return tree.require_loss()


RANDOM = Method(
    "random",
    "draws formulas at random and tunes their weights",
    RandomSearch,
    FilteringEvaluator,
    {"gradient_norms": 1.0, "optimise": 0.7, "gains": 0.7, "evaluate": 0.2},
)
