"""Losses with the same gradients train alike: equal to two digits on every sample (EvoMAL, section 3.5.3)."""

import hashlib
import math
from collections.abc import Sequence

_DIGITS = 2


def fingerprint(norms: Sequence[float]) -> str | None:
    """Text that losses share when their rounded gradient norms do; None where a norm is not finite."""
    if not all(map(math.isfinite, norms)):
        return None
    rounded = " ".join(f"{abs(norm):.{_DIGITS - 1}e}" for norm in norms)
    return hashlib.sha256(rounded.encode()).hexdigest()
