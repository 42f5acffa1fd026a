"""What the benchmarks measure with: evomal's own."""

from evomal.paper.smoothing_cost import differentiated, in_turns, seconds, synchronise
from evomal.threads import hardware

__all__ = ["differentiated", "hardware", "in_turns", "seconds", "synchronise"]
