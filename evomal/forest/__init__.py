"""Many expressions that are evaluated and differentiated together."""

from evomal.forest.forest import Forest
from evomal.forest.programs import FILLER, Link, Programs

__all__ = ["FILLER", "Forest", "Link", "Programs"]
