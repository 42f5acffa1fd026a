"""EvoMAL and GP-LFL: genetic programming over trees, with tuned weights and without (EvoMAL, sections 3.2 and 4.1)."""

from collections.abc import Sequence

from evomal.expression import Expression
from evomal.methods.method import Method
from evomal.settings import SearchSettings
from evomal.strategies import GeneticSearch


def _genetic(settings: SearchSettings, seed: int, seeds: Sequence[Expression]) -> GeneticSearch:
    return GeneticSearch(
        seed=seed,
        population=settings.population,
        generations=settings.generations,
        tournament=settings.tournament,
        crossover=settings.crossover,
        mutation=settings.mutation,
        elitism=settings.elitism,
        max_height=settings.max_height,
        initial_height=settings.initial_height,
        parsimony=settings.parsimony,
        seeds=seeds,
    )


EVOMAL = Method("evomal", "evolves formulas and tunes their weights through training steps", _genetic, optimised=True)
GP_LFL = Method("gp-lfl", "evolves formulas as they are written, all weights one", _genetic, optimised=False)
