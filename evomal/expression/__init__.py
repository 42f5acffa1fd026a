"""Symbolic loss functions as trees; nothing here needs torch."""

from evomal.expression.generate import full, grow, half_and_half, ramped_half_and_half, repair
from evomal.expression.operators import EPSILON, OPERATORS, TERMINALS, Operator
from evomal.expression.tree import Expression
from evomal.expression.variation import crossover, mutate

__all__ = [
    "EPSILON",
    "OPERATORS",
    "TERMINALS",
    "Expression",
    "Operator",
    "crossover",
    "full",
    "grow",
    "half_and_half",
    "mutate",
    "ramped_half_and_half",
    "repair",
]
