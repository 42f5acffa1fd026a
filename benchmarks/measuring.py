"""What the benchmarks measure with: evomal's own."""

from evomal.paper.smoothing_cost import differentiated, hardware, in_turns, seconds, synchronise

__all__ = ["differentiated", "hardware", "in_turns", "seconds", "synchronise"]
