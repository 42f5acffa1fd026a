"""A loss whose gradient is zero on every sample, with its starting weights and at the untrained outputs.

An addition: the paper spends all meta steps on such trees. A quarter of initial regression trees and a third of
classification trees are dead at φ = 1, and about one in twenty of those is revived by the starting weights' noise.

The filter is not exact, as meta steps can revive a tree, too: with the filter switched off, 2 of 113 and 1 of 197 dead
trees passed the rejection filter after 250 meta steps. `filters=symbolic,rejection,gradient` switches it off.
"""

from collections.abc import Sequence


def is_dead(norms: Sequence[float]) -> bool:
    """Whether every sample's gradient norm is exactly zero; one that is not a number is another matter."""
    return all(norm == 0 for norm in norms)
