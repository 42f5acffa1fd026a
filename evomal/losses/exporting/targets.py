"""Losses as LaTeX and as SymPy expressions."""

from collections.abc import Callable
from typing import Any

import sympy

from evomal.errors import InputError
from evomal.expression.notation import PREDICTION_LATEX, latex_number
from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL
from evomal.losses.contract import Loss
from evomal.losses.exporting.onnx_graph import to_onnx
from evomal.losses.exporting.source import to_jax, to_python
from evomal.losses.expression_loss import ExpressionLoss

MEAN_SYMBOL, SCALE_SYMBOL = sympy.Symbol("mu", real=True), sympy.Symbol("sigma", positive=True)
"""Mean and scale of an output's targets, where the outputs have different ones."""


def to_latex(loss: Loss) -> str:
    """The formula of one output, or of one target's probability p, with the weights as factors.

    Where the loss has units, its formula is of standardised values, and what raw ones become stands behind it.
    """
    formula = _latex(loss)
    if loss.units is None:
        return formula
    mean, scale = (_tuple(values) for values in (loss.units.mean, loss.units.scale))
    raw = (r"y", PREDICTION_LATEX if isinstance(loss, ExpressionLoss) else "f")
    steps = r",\; ".join(rf"{name} \leftarrow \frac{{{name} - \mu}}{{\sigma}}" for name in raw)
    return rf"{formula} \quad \text{{with }} {steps},\; \mu = {mean},\; \sigma = {scale}"


def to_sympy(loss: Loss) -> Any:
    """The loss of one output as a SymPy expression; where it has units, of raw values.

    Outputs of different units share the expression, with the symbols mu and sigma for their mean and scale.
    """
    form = loss.sympy()
    if loss.units is None:
        return form
    if loss.units.outputs is None:
        mean, scale = sympy.Float(loss.units.mean), sympy.Float(loss.units.scale)
    else:
        mean, scale = MEAN_SYMBOL, SCALE_SYMBOL
    return form.xreplace({symbol: (symbol - mean) / scale for symbol in (TARGET_SYMBOL, PREDICTION_SYMBOL)})


def _latex(loss: Loss) -> str:
    if isinstance(loss, ExpressionLoss):
        formula = loss.expression.latex(None if loss.weights is None else loss.weights.tolist())
        return rf"\log\left(1 + e^{{{formula}}}\right)" if loss.activation == "softplus" else formula
    return str(sympy.latex(loss.sympy()))


def _tuple(values: float | tuple[float, ...]) -> str:
    if isinstance(values, tuple):
        return rf"\left({', '.join(map(_tuple, values))}\right)"
    return latex_number(values, 6)


FORMATS: dict[str, Callable[[Loss], Any]] = {
    "python": to_python,
    "latex": to_latex,
    "sympy": to_sympy,
    "onnx": to_onnx,
    "jax": to_jax,
}


def export(loss: Loss, to: str = "python", **options: Any) -> Any:
    """The loss in another form.

    `python` and `jax`: the text of a file that needs only torch or JAX; `latex`: text; `sympy`: an expression;
    `onnx`: the bytes of a graph, for which `classes` gives the number of classes (10), and `probabilities=True` makes
    the targets class probabilities instead of class indices.
    """
    if to not in FORMATS:
        raise InputError(f"a loss is exported to one of {', '.join(FORMATS)} but got {to!r}")
    if not isinstance(loss, Loss):
        raise InputError(f"only evomal's own losses can be exported but got {type(loss).__name__}")
    if options and to != "onnx":
        raise InputError(f"{to} has no option {next(iter(options))!r}")
    return FORMATS[to](loss, **options)
