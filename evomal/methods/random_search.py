"""Random search: freshly drawn trees in every generation, the control that a search must beat."""

from dataclasses import dataclass

import numpy as np

from evomal.checks import whole_number
from evomal.errors import InputError
from evomal.expression import Expression, ramped_half_and_half
from evomal.expression.generate import Heights
from evomal.expression.prefix import MAX_HEIGHT, MAX_SIZE
from evomal.methods.outcomes import Outcome
from evomal.methods.proposals import Proposal
from evomal.methods.strategy import GenerationalStrategy
from evomal.randomness import generator

# A crossover can make a tree twice as high before the cap is applied to it.
_HIGHEST_CAP = MAX_HEIGHT // 2
# A full tree of binary operators, the largest that can be drawn, must still be one that any tree may be.
_HIGHEST_START = (MAX_SIZE + 1).bit_length() - 2


@dataclass(frozen=True)
class RampedTrees:
    """The distribution a search starts from: ramped half-and-half trees that are valid losses under a height cap."""

    initial_height: Heights = (2, 4)
    max_height: int = 10

    def __post_init__(self) -> None:
        whole_number("max_height", self.max_height, at_least=1)
        if self.max_height > _HIGHEST_CAP:
            raise InputError(f"max_height must be at most {_HIGHEST_CAP} but got {self.max_height}")
        try:
            low, high = self.initial_height
        except (TypeError, ValueError):
            raise InputError(
                f"initial_height must be a lowest and a highest height but got {self.initial_height!r}"
            ) from None
        for height in (low, high):
            whole_number("initial_height", height, at_least=0)
        if low > high:
            raise InputError(f"initial_height must go from the lower height to the higher but got {low} to {high}")
        highest = min(self.max_height, _HIGHEST_START)
        if high > highest:
            raise InputError(
                f"initial_height must be at most {highest} with max_height = {self.max_height} but got {high}"
            )
        object.__setattr__(self, "initial_height", (low, high))

    def draw(self, generator: np.random.Generator) -> Expression:
        """One tree."""
        heights, cap = self.initial_height, self.max_height
        return ramped_half_and_half(1, heights=heights, max_height=cap, generator=generator)[0]


class RandomSearch(GenerationalStrategy):
    """As many trees as a genetic search proposes, each drawn without regard to any outcome."""

    def __init__(
        self,
        *,
        seed: int,
        population: int = 25,
        generations: int = 50,
        initial_height: Heights = (2, 4),
        max_height: int = 10,
    ) -> None:
        super().__init__(population=population, generations=generations)
        self._seed = seed
        self._trees = RampedTrees(initial_height, max_height)

    def _propose(self) -> list[Proposal]:
        return [Proposal(self._trees.draw(self._randomness(index)), "sampled") for index in range(self.population)]

    def _learn(self, proposals: list[Proposal], outcomes: list[Outcome]) -> None:
        """Outcomes change nothing here."""

    def _randomness(self, index: int) -> np.random.Generator:
        return generator(self._seed, "random search", self.generation, index)
