"""What makes a method: how it proposes expressions, and whether their weights are tuned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evomal.expression import Expression
from evomal.settings import SearchSettings
from evomal.strategies import Strategy

MakeStrategy = Callable[[SearchSettings, int, Sequence[Expression]], Strategy]


@dataclass(frozen=True)
class Method:
    """A way to search for losses, by the name people give it."""

    name: str
    purpose: str
    strategy: MakeStrategy
    """From the settings, the seed and the expressions to begin with."""
    optimised: bool
    """Whether the weights of an expression are tuned (EvoMAL, section 3.3) or stay at one."""
