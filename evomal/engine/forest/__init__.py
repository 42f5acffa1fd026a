"""Many expressions as one piece of work."""

from evomal.engine.forest.forest import Forest
from evomal.engine.forest.programs import FILLER, Link, Programs

__all__ = ["FILLER", "Forest", "Link", "Programs"]
