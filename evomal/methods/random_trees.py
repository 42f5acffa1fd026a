"""The control every search must beat: trees drawn anew, under the same filters and with tuned weights."""

from collections.abc import Sequence

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.methods.evolution import tuning
from evomal.methods.method import Brief, Method, Workload
from evomal.strategies import RandomSearch


def _drawn(brief: Brief, seeds: Sequence[Expression]) -> RandomSearch:
    if seeds:
        raise InputError("random search draws every tree anew, so it cannot be seeded with losses")
    settings = brief.settings
    return RandomSearch(
        seed=brief.seed,
        population=settings.population,
        generations=settings.generations,
        max_height=settings.max_height,
        initial_height=settings.initial_height,
    )


RANDOM = Method(
    "random", "draws formulas at random and tunes their weights", _drawn, tuning,
    Workload({"gradient_norms": 1.0, "optimise": 0.7, "gains": 0.7, "evaluate": 0.2}),
)  # fmt: skip
