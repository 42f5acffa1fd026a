"""Losses as LaTeX."""

import sympy

from evomal.losses.contract import Loss
from evomal.losses.expression_loss import ExpressionLoss


def to_latex(loss: Loss) -> str:
    """The formula of one output, or of one target's probability p, with the weights as factors."""
    if isinstance(loss, ExpressionLoss):
        formula = loss.expression.latex(None if loss.weights is None else loss.weights.tolist())
        return rf"\log\left(1 + e^{{{formula}}}\right)" if loss.activation == "softplus" else formula
    return str(sympy.latex(loss.sympy()))
