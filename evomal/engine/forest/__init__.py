"""Many expressions as one piece of work."""

from evomal.engine.forest.forest import Forest
from evomal.engine.forest.links import Link
from evomal.engine.forest.programs import FILLER, Programs

__all__ = ["FILLER", "Forest", "Link", "Programs"]
