"""EvoMAL and GP-LFL: genetic programming over trees, with tuned weights and without (EvoMAL, sections 3.2 and 4.1)."""

from collections.abc import Sequence

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.methods.filters import FilteringJudge
from evomal.methods.genetic import GeneticSearch
from evomal.methods.judging import Executor
from evomal.methods.method import Method, SearchContext, Workload
from evomal.methods.random_search import RandomSearch


def _genetic(context: SearchContext, seeds: Sequence[Expression]) -> GeneticSearch:
    settings = context.settings
    return GeneticSearch(
        seed=context.seed,
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


def tuning(context: SearchContext, executor: Executor) -> FilteringJudge:
    """Expressions through all stages."""
    return FilteringJudge(executor, seed=context.seed, filters=context.settings.filters)


def as_written(context: SearchContext, executor: Executor) -> FilteringJudge:
    """Expressions through all stages but the optimisation of their weights."""
    return FilteringJudge(executor, seed=context.seed, optimised=False, filters=context.settings.filters)


EVOMAL = Method(
    "evomal", "evolves formulas and tunes their weights through training steps", _genetic, tuning,
    Workload({"gradient_norms": 1.0, "optimise": 0.7, "gains": 0.7, "evaluate": 0.5}),
)  # fmt: skip
GP_LFL = Method(
    "gp-lfl", "evolves formulas as they are written, all weights one", _genetic, as_written,
    Workload({"gradient_norms": 1.0, "gains": 0.65, "evaluate": 0.25}),
)  # fmt: skip


def _drawn(context: SearchContext, seeds: Sequence[Expression]) -> RandomSearch:
    if seeds:
        raise InputError("random search draws every tree anew, so it cannot be seeded with losses")
    settings = context.settings
    return RandomSearch(
        seed=context.seed,
        population=settings.population,
        generations=settings.generations,
        max_height=settings.max_height,
        initial_height=settings.initial_height,
    )


RANDOM = Method(
    "random", "draws formulas at random and tunes their weights", _drawn, tuning,
    Workload({"gradient_norms": 1.0, "optimise": 0.7, "gains": 0.7, "evaluate": 0.2}),
)  # fmt: skip
