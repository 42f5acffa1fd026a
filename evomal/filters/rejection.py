"""The rejection protocol: a loss must lead its own predictions towards the targets (EvoMAL, section 3.5.2)."""

import math


def is_rejected(gain: float) -> bool:
    """Whether the metric did not improve (g > 0) when the untrained outputs themselves descended the loss."""
    return math.isnan(gain) or gain <= 0
