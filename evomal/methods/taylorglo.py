"""TaylorGLO: CMA-ES over the parameters of a Taylor polynomial.

Gonzalez and Miikkulainen, Optimizing Loss Functions Through Multi-Variate Taylor Polynomial Parameterization, GECCO
2021; Hansen, The CMA Evolution Strategy: A Tutorial, 2016.
"""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from evomal.checks import whole_number
from evomal.engine import TrialLoss
from evomal.expression import Expression
from evomal.losses.loss import WeightedTree
from evomal.losses.taylor import PARAMETERS, as_tree
from evomal.methods.candidates import Candidate, comparable, proposed
from evomal.methods.evaluation import Evaluator, SearchContext
from evomal.methods.strategy import Method, Strategy
from evomal.randomness import generator

# With fewer there is only one parent, and the learning rate of the covariance, by which cmaes divides, is zero.
_LEAST_POPULATION = 4
_SIGMA = 1.2


class CmaSearch(Strategy):
    """Proposes vectors from a normal distribution that is adapted to the better half of each generation."""

    def __init__(self, context: SearchContext, _: Sequence[Expression] = ()) -> None:
        settings = context.settings
        super().__init__(population=settings.population, generations=settings.generations)
        whole_number("population", settings.population, at_least=_LEAST_POPULATION)
        from cmaes import CMA  # takes most of a second to import, which the other strategies need not wait for

        self._optimiser = CMA(
            mean=np.zeros(PARAMETERS),
            sigma=_SIGMA,
            population_size=settings.population,
            seed=int(generator(context.seed, "cma").integers(2**32)),
        )

    def _propose(self) -> list[Candidate]:
        return [proposed(tuple(self._optimiser.ask().tolist()), "sampled") for _ in range(self.population)]

    def _learn(self, candidates: list[Candidate]) -> None:
        values = finite_values(comparable(candidates))
        self._optimiser.tell([(np.array(_theta(c)), value) for c, value in zip(candidates, values, strict=True)])


def finite_values(fitnesses: Sequence[float]) -> list[float]:
    """Fitness for CMA-ES: a candidate without fitness ranks behind the worst that has one.

    Only ranks move the distribution, so the distance does not matter; but cmaes keeps the values and subtracts them
    from each other, which would turn infinite ones into NaN.
    """
    finite = [fitness for fitness in fitnesses if math.isfinite(fitness)]
    worst = max(finite, default=0.0)
    # Adding one does not change a huge number, and the failed would then share the rank of the worst.
    behind = max(worst + 1, math.nextafter(worst, math.inf))
    return [fitness if math.isfinite(fitness) else behind for fitness in fitnesses]


class _PolynomialEvaluator(Evaluator):
    """Trains with every polynomial that is proposed."""

    def losses_of(self, candidates: Sequence[Candidate]) -> list[TrialLoss]:
        # A polynomial is an expression with weights, and the engine trains with all of those together.
        return [WeightedTree(*as_tree(_theta(candidate))) for candidate in candidates]


def _theta(candidate: Candidate) -> tuple[float, ...]:
    return cast(tuple[float, ...], candidate.form)


TAYLORGLO = Method(
    "taylorglo",
    "evolves the parameters of a polynomial",
    CmaSearch,
    _PolynomialEvaluator,
    {"evaluate": 1.0},
    searches_expressions=False,
)
