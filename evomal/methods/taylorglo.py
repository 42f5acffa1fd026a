"""CMA-ES over the parameters of a Taylor polynomial (Hansen, The CMA Evolution Strategy: A Tutorial, 2016)."""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from evomal.checks import finite_number
from evomal.expression import Expression
from evomal.losses.taylor import PARAMETERS, as_tree
from evomal.methods.judging import Case, Executor, Judge, Learned, Stage, concluded
from evomal.methods.method import Method, SearchContext, Workload
from evomal.methods.outcomes import Outcome
from evomal.methods.proposals import Proposal
from evomal.methods.strategy import GenerationalStrategy
from evomal.progress import StageStepsDone
from evomal.randomness import generator

# With fewer there is one parent alone, and the learning rate of the covariance, by which cmaes divides, is zero.
_LEAST_POPULATION = 4


class CmaSearch(GenerationalStrategy):
    """Vectors from a normal distribution that moves and stretches towards the better half of each generation."""

    def __init__(self, *, seed: int, population: int = 25, generations: int = 50, sigma: float = 1.2) -> None:
        super().__init__(population=population, generations=generations, least_population=_LEAST_POPULATION)
        from cmaes import CMA  # takes most of a second, which the other strategies need not pay

        self._optimiser = CMA(
            mean=np.zeros(PARAMETERS),
            sigma=finite_number("sigma", sigma, above=0),
            population_size=population,
            seed=int(generator(seed, "cma").integers(2**32)),
        )

    def _propose(self) -> list[Proposal]:
        return [Proposal(tuple(self._optimiser.ask().tolist()), "sampled") for _ in range(self.population)]

    def _learn(self, proposals: list[Proposal], outcomes: list[Outcome]) -> None:
        values = finite_values([outcome.fitness for outcome in outcomes])
        vectors = [np.array(proposal.numbers) for proposal in proposals]
        self._optimiser.tell(list(zip(vectors, values, strict=True)))


def finite_values(fitnesses: Sequence[float]) -> list[float]:
    """Fitness as CMA-ES may be told it: what has none comes one behind the worst that has, or all are equal.

    Only ranks move the distribution, so the distance says nothing; but cmaes keeps the values and subtracts them from
    each other, where an infinite one would become NaN.
    """
    finite = [fitness for fitness in fitnesses if math.isfinite(fitness)]
    worst = max(finite, default=0.0)
    # One more is no more for a huge number, and the failed would then share a rank with the worst.
    behind = max(worst + 1, math.nextafter(worst, math.inf))
    return [fitness if math.isfinite(fitness) else behind for fitness in fitnesses]


class _PolynomialJudge(Judge):
    """Trains with every polynomial that is proposed."""

    def __init__(self, _: SearchContext, executor: Executor) -> None:
        super().__init__(executor)

    def _judged(self, proposals: Sequence[Proposal], generation: int, report: StageStepsDone | None) -> list[Outcome]:
        cases = [Case(proposal, []) for proposal in proposals]
        self._trained(cases, report)
        return concluded(cases)

    def _training(self, losses: Sequence[Learned]) -> tuple[Stage, list[Sequence[Any]]]:
        # A polynomial is an expression with weights, and those the engine trains with together.
        trees, weights = zip(*(as_tree(cast(tuple[float, ...], theta)) for theta, _ in losses), strict=True)
        return "evaluate", [trees, weights]


def _covariance_adapted(context: SearchContext, _: Sequence[Expression]) -> CmaSearch:
    settings = context.settings
    return CmaSearch(seed=context.seed, population=settings.population, generations=settings.generations)


TAYLORGLO = Method(
    "taylorglo", "evolves the parameters of a polynomial", _covariance_adapted, _PolynomialJudge,
    Workload({"evaluate": 1.0}), of_expressions=False,
)  # fmt: skip
