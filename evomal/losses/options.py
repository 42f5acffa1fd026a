"""Checks of the numbers a loss is built with."""

import math

from evomal.errors import InputError


def checked(
    name: str, value: float, *, at_least: float = -math.inf, above: float = -math.inf, below: float = math.inf
) -> float:
    """The option's value as a float, or an error naming the bound it breaks."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} must be a number but got {value!r}")
    if isinstance(value, int) and abs(value) > 2**63:
        raise InputError(f"{name} must be a number of ordinary size but has more than 18 digits")
    bounds = {"at least": at_least, "more than": above, "less than": below}
    kept = " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if math.isfinite(bound))
    if not (math.isfinite(value) and at_least <= value and above < value < below):
        raise InputError(f"{name} must be a finite number{' of ' * bool(kept)}{kept} but got {value}")
    return float(value)
