"""Formulas of losses as people write them: text, and MathML for browsers."""

from typing import Any

import sympy

from evomal.expression import symbolic
from evomal.expression.symbolic import rounded
from evomal.losses import ExpressionLoss, Loss, NeuralLoss, TaylorLoss
from evomal.losses.catalogue import name_of
from evomal.methods import readable
from evomal.methods.ml3 import NETWORK

LONGEST_ON_A_LINE = 90
"""Characters of the text, up to which a typeset formula fits on a line: browsers do not break mathematics."""

_SYMBOLS = {
    "classification": "f: probability of a class, y: 1 for the target and 0 for the others, summed over the classes",
    "multilabel": "f: probability of a label, y: 1 where it applies and 0 where not",
    "regression": "f: output, y: target",
}
_SYMBOLS_OF_NAMED = {**_SYMBOLS, "classification": "p: probability of the target, C: number of classes"}


def symbols_of(loss: Loss) -> str:
    """What the letters of its formula are, and in which units."""
    symbols = (_SYMBOLS if name_of(loss) is None else _SYMBOLS_OF_NAMED)[loss.kind]
    return symbols if loss.units is None else f"{symbols}, learned in standardised units: {loss.units}"


def formula_text(loss: Loss) -> str:
    """Simplified, with rounded numbers."""
    if isinstance(loss, ExpressionLoss):
        weights = None if loss.weights is None else loss.weights.tolist()
        formula = loss.expression.formula(weights)
        return f"softplus({formula})" if loss.activation == "softplus" else formula
    if isinstance(loss, TaylorLoss):
        return readable(tuple(loss.theta.tolist()), ())
    return readable(NETWORK if isinstance(loss, NeuralLoss) else str(name_of(loss)), ())


def mathml(loss: Loss, formula: str, *, longest: int = LONGEST_ON_A_LINE) -> str | None:
    """The formula as browsers typeset it by themselves; None where it is longer, or has no such form."""
    form = _form(loss, formula, longest)
    if form is None:
        return None
    try:
        content = str(sympy.mathml(form, printer="presentation")).replace("<mo>-</mo>", "<mo>−</mo>")
        return f'<math display="block">{content}</math>'
    except Exception:  # SymPy fails in many ways, and the text is there in any case.
        return None


def _form(loss: Loss, formula: str, longest: int) -> Any:
    """The SymPy form that reads as the formula does, or None."""
    if len(formula) > longest or isinstance(loss, NeuralLoss):
        return None
    try:
        if not isinstance(loss, ExpressionLoss):
            return rounded(sympy.expand(loss.sympy()) if isinstance(loss, TaylorLoss) else loss.sympy())
        weights = None if loss.weights is None else loss.weights.tolist()
        form = symbolic.shown_form(loss.expression.tokens, weights)
        return symbolic.softplus(form) if form is not None and loss.activation == "softplus" else form
    except Exception:  # As above.
        return None
