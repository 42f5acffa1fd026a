"""Symbolic loss functions as expression trees. Nothing here needs torch."""

from evomal.expression.generate import crossover, full, grow, half_and_half, mutate, ramped_half_and_half, repair
from evomal.expression.operators import EPSILON, EXTENDED, OPERATORS, PAPER, TERMINALS, Operator, Space
from evomal.expression.tree import Expression

__all__ = [
    "EPSILON",
    "EXTENDED",
    "OPERATORS",
    "PAPER",
    "TERMINALS",
    "Expression",
    "Operator",
    "Space",
    "crossover",
    "full",
    "grow",
    "half_and_half",
    "mutate",
    "ramped_half_and_half",
    "repair",
]
