"""The heart of an exported file: what one output, or one target's log-odds, costs, as lines of Python."""

from dataclasses import dataclass
from typing import Literal

from evomal.errors import InputError
from evomal.expression.notation import to_code
from evomal.losses.classification import (
    AbsoluteCrossEntropyLoss,
    FocalLoss,
    FocalSparseLabelSmoothingLoss,
    LabelSmoothingLoss,
    SparseLabelSmoothingLoss,
)
from evomal.losses.contract import Loss
from evomal.losses.expression_loss import ExpressionLoss
from evomal.losses.neural import NeuralLoss
from evomal.losses.standard import AbsoluteErrorLoss, CrossEntropyLoss, HuberLoss, SquaredErrorLoss
from evomal.losses.taylor import TaylorLoss

Form = Literal["outputs", "target", "log_probabilities"]


@dataclass(frozen=True)
class Body:
    """The lines of `def value(arguments)`, the helpers they call, and what the function is applied to."""

    form: Form
    lines: list[str]

    @property
    def arguments(self) -> str:
        return {"outputs": "f, y", "target": "d, classes", "log_probabilities": "log_p, y, classes"}[self.form]

    @property
    def meaning(self) -> str:
        return {
            "outputs": "Cost of each output: f is the prediction, y the target.",
            "target": "Cost of a target with log-odds d: log p = logsigmoid(d), log(1 - p) = logsigmoid(-d).",
            "log_probabilities": "Cost of each class: log_p is its log-probability, y its share of the target.",
        }[self.form]


def body(loss: Loss, xp: str) -> Body:
    """The body of a loss over the module called `xp`."""
    form: Form = "outputs"
    if isinstance(loss, ExpressionLoss):
        lines = to_code(loss.expression.tokens, None if loss.weights is None else loss.weights.tolist(), xp)
        if loss.activation == "softplus":
            lines[-1:] = [f"value = {lines[-1].removeprefix('return ')}", "return -logsigmoid(-value)  # softplus"]
    elif isinstance(loss, TaylorLoss):
        lines = _taylor(loss)
    elif isinstance(loss, NeuralLoss):
        lines = _neural(loss, xp)
    elif isinstance(loss, SquaredErrorLoss):
        lines = ["return (f - y) ** 2"]
    elif isinstance(loss, AbsoluteErrorLoss):
        lines = [f"return {xp}.abs(f - y)"]
    elif isinstance(loss, HuberLoss):
        lines = [
            f"error = {xp}.abs(f - y)",
            f"return {xp}.where(error <= {loss.delta}, error**2 / 2, {loss.delta} * (error - {loss.delta} / 2))",
        ]
    elif isinstance(loss, LabelSmoothingLoss):
        form = "log_probabilities"
        lines = [f"return -(y * (1 - {loss.smoothing}) + {loss.smoothing} / classes) * log_p"]
    else:
        form, lines = "target", _target(loss, xp)
    return Body(form, lines)


def _taylor(loss: TaylorLoss) -> list[str]:
    t = [repr(float(number)) for number in loss.theta.tolist()]
    return [
        f"x, p = y - {t[0]}, f - {t[1]}",
        "return -(",
        f"    {t[2]} * p",
        f"    + {t[3]} / 2 * p**2",
        f"    + {t[4]} / 6 * p**3",
        f"    + {t[5]} * x * p",
        f"    + {t[6]} / 2 * x * p**2",
        f"    + {t[7]} / 2 * x**2 * p",
        ")",
    ]


def _neural(loss: NeuralLoss, xp: str) -> list[str]:
    make = "f.new_tensor" if xp == "torch" else "jnp.asarray"
    lines = []
    for name, layer in zip(("first", "second", "last"), loss.layers, strict=True):
        rows = [f"    {row!r}," for row in layer.tolist()]
        lines += [f"{name} = {make}([", *rows, "])"]
    return [
        *lines,
        f"hidden = {xp}.stack([f, y], -1) @ first.T",
        f"hidden = {xp}.maximum(hidden, 0 * hidden) @ second.T",
        f"value = ({xp}.maximum(hidden, 0 * hidden) @ last.T)[..., 0]",
        "return -logsigmoid(-value)  # softplus",
    ]


def _target(loss: Loss, xp: str) -> list[str]:
    if isinstance(loss, CrossEntropyLoss):
        return ["return -logsigmoid(d)"]
    if isinstance(loss, AbsoluteCrossEntropyLoss):
        return [f"return {loss.phi0} * {xp}.abs(math.log({loss.phi1}) + logsigmoid(d))"]
    if isinstance(loss, FocalLoss):
        return [f"return -{xp}.exp({loss.gamma} * logsigmoid(-d)) * logsigmoid(d)"]
    share = f"share = 1 - {loss.smoothing} + {loss.smoothing} / classes" if hasattr(loss, "smoothing") else ""
    if isinstance(loss, SparseLabelSmoothingLoss):
        if loss.simplified:
            return [f"return -(logsigmoid(d) + {loss.smoothing} * logsigmoid(-d))"]
        return [share, "return -(share * logsigmoid(d) + (1 - share) * (logsigmoid(-d) - math.log(classes - 1)))"]
    if isinstance(loss, FocalSparseLabelSmoothingLoss):
        return [
            share,
            f"right = {xp}.exp({loss.gamma} * logsigmoid(-d)) * logsigmoid(d)",
            f"wrong = {xp}.exp({loss.gamma} * logsigmoid(d)) * (logsigmoid(-d) - math.log(classes - 1))",
            "return -(share * right + (1 - share) * wrong)",
        ]
    raise InputError(f"{type(loss).__name__} cannot be exported as source")
