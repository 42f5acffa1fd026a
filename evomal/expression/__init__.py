"""Symbolic loss functions as trees; nothing here needs torch."""

from evomal.expression.crossover import crossover
from evomal.expression.generate import full, grow, half_and_half, ramped_half_and_half
from evomal.expression.mutation import mutate
from evomal.expression.operators import EPSILON, OPERATORS, TERMINALS, Operator
from evomal.expression.repair import repair
from evomal.expression.tree import Expression

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
