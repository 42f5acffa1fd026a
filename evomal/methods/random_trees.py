"""The control every search must beat: trees drawn anew, under the same filters and with tuned weights."""

from collections.abc import Sequence

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.methods.method import Method
from evomal.settings import SearchSettings
from evomal.strategies import RandomSearch


def _random(settings: SearchSettings, seed: int, seeds: Sequence[Expression]) -> RandomSearch:
    if seeds:
        raise InputError("random search draws every tree anew, so it cannot be seeded with losses")
    return RandomSearch(
        seed=seed,
        population=settings.population,
        generations=settings.generations,
        max_height=settings.max_height,
        initial_height=settings.initial_height,
    )


RANDOM = Method("random", "draws formulas at random and tunes their weights", _random, optimised=True)
