"""Tournament selection: the best of a few drawn at random (EvoMAL, section 3.2.2)."""

import math
from collections.abc import Sequence

import numpy as np

from evomal.errors import InputError


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
