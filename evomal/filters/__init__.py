"""What need not be computed: rules that look at a candidate before it costs anything (EvoMAL, section 3.5)."""

from evomal.filters.dead_gradient import is_dead
from evomal.filters.gradient_equivalence import fingerprint
from evomal.filters.rejection import is_rejected

__all__ = ["fingerprint", "is_dead", "is_rejected"]
