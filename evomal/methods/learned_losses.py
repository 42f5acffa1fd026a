"""A loss to use, from the genome and the weights a search ended with."""

from collections.abc import Sequence

import sympy

from evomal.expression import Expression
from evomal.expression.symbolic import rounded
from evomal.losses.catalogue import CATALOGUE, named_loss
from evomal.losses.contract import Kind, Loss
from evomal.losses.expression_loss import ExpressionLoss
from evomal.losses.taylor import TaylorLoss
from evomal.methods.ml3 import NETWORK, network_loss
from evomal.methods.proposals import Genome


def learned_loss(genome: Genome, weights: Sequence[float], *, kind: Kind, activation: str = "identity") -> Loss:
    """The module: an expression with its weights, a polynomial, a network, or the loss of that name."""
    if isinstance(genome, Expression):
        return ExpressionLoss(genome, weights=weights, kind=kind, activation=activation)
    if isinstance(genome, tuple):
        return TaylorLoss(genome, kind=kind)
    if genome == NETWORK:
        return network_loss(weights, kind)
    return named_loss(genome, kind=kind)


def readable(genome: Genome, weights: Sequence[float]) -> str:
    """A formula for people."""
    if isinstance(genome, Expression):
        return genome.formula(weights)
    if isinstance(genome, tuple):
        return str(rounded(sympy.expand(TaylorLoss(genome).sympy())))
    return "softplus(W3·relu(W2·relu(W1·(f, y))))" if genome == NETWORK else CATALOGUE[genome].formula
