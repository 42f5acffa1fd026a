"""Methods by name, and the losses that their candidates stand for."""

from collections.abc import Sequence

from evomal.checks import Kind, named
from evomal.expression import Expression
from evomal.losses.catalogue import CATALOGUE, named_loss
from evomal.losses.expression_loss import ExpressionLoss
from evomal.losses.loss import Loss
from evomal.losses.neural import NETWORK_FORMULA
from evomal.losses.taylor import TaylorLoss
from evomal.methods.baseline import BASELINE
from evomal.methods.candidates import Genome
from evomal.methods.genetic import EVOMAL, GP_LFL
from evomal.methods.ml3 import ML3, ML3_SINGLE, NETWORK, network_loss
from evomal.methods.random_search import RANDOM
from evomal.methods.strategy import Method
from evomal.methods.taylorglo import TAYLORGLO

METHODS: dict[str, Method] = {
    method.name: method for method in (EVOMAL, GP_LFL, TAYLORGLO, ML3, ML3_SINGLE, RANDOM, BASELINE)
}


def method_named(name: str) -> Method:
    """The method of that name, or an error that suggests the nearest one."""
    return named("method", name, METHODS)


def learned_loss(genome: Genome, weights: Sequence[float], *, kind: Kind, activation: str = "identity") -> Loss:
    """The loss module: an expression with its weights, a polynomial, a network, or the loss of that name."""
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
        return TaylorLoss(genome).formula()
    return NETWORK_FORMULA if genome == NETWORK else CATALOGUE[genome].definition
