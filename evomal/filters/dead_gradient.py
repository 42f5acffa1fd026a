"""A loss whose gradient is zero on every sample teaches nothing, whatever its weights will be.

Not in the paper, which spends all meta steps on such trees: a quarter of initial regression trees and a third of
classification trees are dead at φ = 1, and about one in twenty of those is revived by the starting weights' noise.
"""

from collections.abc import Sequence


def is_dead(norms: Sequence[float]) -> bool:
    """Whether every sample's gradient norm is exactly zero; one that is not a number is another matter."""
    return all(norm == 0 for norm in norms)
