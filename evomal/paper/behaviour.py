"""How a classification loss pushes one output at the beginning of training and at its end.

δ = −∂L/∂f is the push on an output f (EvoMAL, appendix A.2, after Gonzalez and Miikkulainen, 2020): a positive push
raises f. As in the paper, every output is a free variable: the softmax that ties outputs together comes later. δ is
found at two points, for the target's output and for any other output. Null epoch: every output is 1/C. Zero error: the
target's output tends to 1 from below and the others to 0 from above.

Learned losses protect log and sqrt by ε = 1e-7: log(|a| + ε), sqrt(|a| + ε). `formula` and `value` describe the ideal
form: first ε tends to 0, then f to its limit. `exact` keeps ε and is taken at the end of the way, nearer to the limit
than ε. The two differ where ε matters, for example in |log(y·f)| at f → 1: the ideal push is 1, but log(1 + ε) is
positive, so within ε of 1 the exact push is −1. Hand-made losses have no ε.
"""

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import sympy

from evomal.checks import whole_number
from evomal.errors import InputError
from evomal.expression.symbolic import CLASSES_SYMBOL, PREDICTION_SYMBOL, rounded
from evomal.figures import style
from evomal.figures.data import table, with_gradient
from evomal.figures.style import BLUE, GREY, VERMILLION, Axes, Figure
from evomal.losses.loss import Loss
from evomal.paper.smooth_forms import (
    EPSILON_SYMBOL,
    Output,
    limit_of_values,
    number_of,
    option_values,
    output_form,
    sign_of,
)

Regime = Literal["null epoch", "zero error"]
How = Literal["substitution", "limit", "numeric"]
_MOST_CLASSES = 1_000_000_000

REGIMES: tuple[Regime, ...] = ("null epoch", "zero error")
OUTPUTS: tuple[Output, ...] = ("other", "target")
_POINTS = tuple(itertools.product(REGIMES, OUTPUTS))

_EXPONENTS = (-20, -40, -80)
"""Distances to a limit, as powers of ten; each is the square of the one before, as `limit_of_values` needs."""
_EPSILON_POWER = 10  # ε is this power of the distance: it vanishes long before the distance does
_NEAR = {"other": 1e-20, "target": 1 - 1e-13}  # zero error in double precision
_AGREEING = 1e-9
_SMALLEST = 1e-2  # below this, pushes are compared by their difference alone
_LONGEST_REWRITTEN = 80  # operations


@dataclass(frozen=True)
class Delta:
    """The push on one kind of output at one point."""

    regime: Regime
    output: Output
    formula: Any
    """In SymPy's symbols C, phi0, phi1, xi, gamma; None where no formula was found. Signs within it are those at this
    loss's options and number of classes; an option of 0 or 1 is put in as a number."""
    value: float
    """The formula as a number, at the loss's options and number of classes."""
    exact: float
    """The push with ε = 1e-7."""
    how: How
    """How the formula was found: by putting in the point, as the limit at a pole, or not at all."""

    @property
    def text(self) -> str:
        """The formula, rounded, or the number."""
        is_plain = self.formula is None or self.formula.is_Float
        return f"{self.value:.4g}" if is_plain else str(rounded(self.formula))

    @property
    def latex(self) -> str:
        """The same as LaTeX."""
        shown = sympy.Float(self.value, 4) if self.formula is None else rounded(self.formula)
        return str(sympy.latex(shown))

    @property
    def differs_by_epsilon(self) -> bool:
        """Whether ε makes more than a small difference."""
        return not _agree(self.value, self.exact, 1e-3)


@dataclass(frozen=True)
class Behaviour:
    """The pushes of one loss at both points."""

    name: str
    deltas: tuple[Delta, ...]

    def at(self, regime: Regime, output: Output) -> Delta:
        """Returns the push on that kind of output at that point."""
        return next(delta for delta in self.deltas if (delta.regime, delta.output) == (regime, output))

    @property
    def pushes_back(self) -> bool | None:
        """Whether the target's probability is pushed down near zero training error; None where no push is left.

        Through the softmax, −∂L/∂z of the target's logit z is p(1 − p)·(δ target − δ other) if the others are alike.
        """
        target, other = self._last_pushes()
        return None if _agree(target, other, _AGREEING) else target < other

    @property
    def sentence(self) -> str:
        """What the loss does near zero training error."""
        target, other = self._last_pushes()
        if math.isnan(target) or math.isnan(other):
            return "near zero training error its push could not be determined"
        if self.pushes_back is None:
            return "near zero training error it lets go of the target's probability"
        if not self.pushes_back:
            return "near zero training error it still pushes the target's probability up"
        if target < 0:
            return "near zero training error it pushes the target's probability back"
        return "near zero training error it raises the others more and pushes the target back"

    def _last_pushes(self) -> tuple[float, float]:
        target, other = self.at("zero error", "target"), self.at("zero error", "other")
        # Of two infinities only ε tells which is larger.
        return (target.exact, other.exact) if target.value == other.value else (target.value, other.value)


@dataclass(frozen=True)
class Behaviours:
    """The behaviour of several losses at one number of classes."""

    classes: int
    losses: tuple[Behaviour, ...]

    def columns(self) -> dict[str, list[Any]]:
        """Returns a table with one row per loss, point and kind of output."""
        return table(
            ("loss", "classes", "point", "output", "formula", "latex", "value", "exact", "how"),
            (
                (loss.name, self.classes, at.regime, at.output, at.text, at.latex, at.value, at.exact, at.how)
                for loss in self.losses
                for at in loss.deltas
            ),
        )


def behaviours(losses: Mapping[str, Loss], *, classes: int = 10) -> Behaviours:
    """Find how classification losses push outputs at the null epoch and near zero training error.

    Args:
        losses: The losses by the names that the figure shows.
        classes: The number of classes C.

    Returns:
        The pushes, as formulas where SymPy finds them and as numbers. A formula must agree with numbers that SymPy
        evaluates on the way to the point; otherwise these are the answer, labelled "numeric".

    Raises:
        InputError: If a loss is not for classification, or `classes` is not between 2 and 10⁹.

    Example:
        >>> from evomal.losses import named_loss
        >>> found = behaviours({"smoothed": named_loss("label-smoothing")}, classes=10)
        >>> found.losses[0].at("null epoch", "target").text
        '-C*xi + C + xi'
    """
    classes = whole_number("classes", classes, at_least=2, at_most=_MOST_CLASSES)
    for name, loss in losses.items():
        if loss.kind != "classification":
            raise InputError(f"{name} is for {loss.kind}, but δ at f = 1/C is about classification")
    found = (Behaviour(name, tuple(_delta(loss, classes, *at) for at in _POINTS)) for name, loss in losses.items())
    return Behaviours(classes, tuple(found))


def _delta(loss: Loss, classes: int, regime: Regime, output: Output) -> Delta:
    numbers = {**option_values(loss), CLASSES_SYMBOL: classes}
    ways = [_way(regime, output, classes, exponent) | numbers for exponent in _EXPONENTS]
    form = output_form(loss, output, lambda a: sign_of(a, ways[-1]))
    exact = _push_by_autograd(loss, classes, regime, output) if loss.is_learned else None
    if form is None:
        if exact is None:
            raise InputError(f"{type(loss).__name__} has no value for a single output")
        return Delta(regime, output, None, exact, exact, "numeric")
    push = -sympy.diff(form, PREDICTION_SYMBOL)
    # Adding zero turns a negative zero into zero.
    value = float(limit_of_values([number_of(push, way) for way in ways])) + 0.0
    formula, how = _formula(push, regime, output, numbers, value)
    if formula is None and loss.tree() is None:
        formula, how = _by_limit(push.subs(numbers), output, value)
    return Delta(regime, output, formula, value, value if exact is None else exact, how)


def _way(regime: Regime, output: Output, classes: int, exponent: int) -> dict[Any, Any]:
    """f and ε at one distance from the point."""
    distance = sympy.Integer(10) ** exponent
    place = sympy.Rational(1, classes)
    if regime == "zero error":
        place = 1 - distance if output == "target" else distance
    return {PREDICTION_SYMBOL: place, EPSILON_SYMBOL: distance**_EPSILON_POWER}


def _formula(push: Any, regime: Regime, output: Output, numbers: Mapping[Any, float], value: float) -> tuple[Any, How]:
    """The push at the point as a formula that agrees with the value, and how it was found."""
    place = 1 / CLASSES_SYMBOL if regime == "null epoch" else sympy.Integer(int(output == "target"))
    options = {symbol: number for symbol, number in numbers.items() if symbol != CLASSES_SYMBOL}
    # With symbols first, then with the values of the options if SymPy cannot decide without them.
    for values in ({}, options) if options else ({},):
        found = push.subs(values).subs(EPSILON_SYMBOL, 0).subs(PREDICTION_SYMBOL, place)
        if found.has(sympy.oo, -sympy.oo, sympy.zoo) and math.isinf(value):
            # At a pole SymPy does not always know the sign; the numbers do.
            return sympy.oo * int(math.copysign(1, value)), "limit"
        if _agree(float(number_of(found, numbers)), value, _AGREEING):
            return _shortest(found), "substitution"
    return None, "numeric"


def _by_limit(push: Any, output: Output, value: float) -> tuple[Any, How]:
    """The limit near zero error. SymPy's limits have no bound on time, so they are for hand-made losses only."""
    place, side = (1, "-") if output == "target" else (0, "+")
    found = sympy.limit(push, PREDICTION_SYMBOL, place, side)
    return (found, "limit") if _agree(float(found), value, _AGREEING) else (None, "numeric")


def _shortest(form: Any) -> Any:
    """The shortest of a few equal forms; a number is shown rounded, so it is not rewritten."""
    if not form.free_symbols or sympy.count_ops(form) > _LONGEST_REWRITTEN:
        return form
    # sympy.simplify takes most of a second and shortens little.
    rewrites = (sympy.expand, sympy.cancel, sympy.factor_terms, sympy.expand_log, sympy.together)
    return min([form, *(rewrite(form) for rewrite in rewrites)], key=sympy.count_ops)


def _push_by_autograd(loss: Loss, classes: int, regime: Regime, output: Output) -> float:
    place = np.array([1 / classes if regime == "null epoch" else _NEAR[output]])
    _, gradients = with_gradient(lambda f: loss.output_cost(f, int(output == "target"), classes), place)
    return -float(gradients[0]) + 0.0


def _agree(a: float, b: float, tolerance: float) -> bool:
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= tolerance * max(abs(a), abs(b), _SMALLEST)


_ROW_HEIGHT, _HEAD = 0.42, 0.66
_NAME_WIDTH, _CELL_WIDTH = 1.5, 1.0  # relative
_LONGEST_NAME, _LONGEST_FORMULA = 28, 24
_TINT, _PALE_INK = 0.16, "#555555"
_HEADINGS = {"other": "non-target", "target": "target"}
_REGIME_NAMES = {"null epoch": "null epoch, $f = 1/C$", "zero error": "near zero training error"}


@style.figure_style()
def draw_behaviour(data: Behaviours) -> Figure:
    """Draw a table with one row per loss: blue cells push an output up, vermillion ones down."""
    if not data.losses:
        return style.sentence_figure("there is no loss to draw", "page")
    figure = style.new_figure("page", _HEAD + _ROW_HEIGHT * len(data.losses))
    axes = figure.subplots()
    axes.set_xlim(0, _NAME_WIDTH + _CELL_WIDTH * len(_POINTS))
    axes.set_ylim(len(data.losses), -_HEAD / _ROW_HEIGHT)
    axes.set_axis_off()
    _draw_headings(axes, data.classes)
    for place, loss in enumerate(data.losses):
        axes.axhline(place, color=GREY, linewidth=0.4)
        axes.text(0.02, place + 0.5, style.figure_text(loss.name, _LONGEST_NAME), va="center", fontsize=7.5)
        for column, point in enumerate(_POINTS):
            _draw_cell(axes, _NAME_WIDTH + column * _CELL_WIDTH, place, loss.at(*point))
    axes.axhline(len(data.losses), color=GREY, linewidth=0.4)
    return figure


def _draw_headings(axes: Axes, classes: int) -> None:
    axes.text(0.02, -0.3, rf"push $\delta = -\partial L / \partial f$ at $C$ = {classes}", va="bottom")
    for half, regime in enumerate(REGIMES):
        left = _NAME_WIDTH + 2 * half * _CELL_WIDTH
        axes.text(left + _CELL_WIDTH, -1.0, _REGIME_NAMES[regime], ha="center", va="bottom", fontweight="bold")
        axes.plot([left + 0.05, left + 2 * _CELL_WIDTH - 0.05], [-0.9, -0.9], color=GREY, linewidth=0.4)
        for column, output in enumerate(OUTPUTS):
            axes.text(left + (column + 0.5) * _CELL_WIDTH, -0.3, _HEADINGS[output], ha="center", va="bottom")


def _draw_cell(axes: Axes, left: float, top: float, delta: Delta) -> None:
    from matplotlib.patches import Rectangle

    value = delta.value
    if value and not math.isnan(value):
        colour = BLUE if value > 0 else VERMILLION
        axes.add_patch(Rectangle((left, top), _CELL_WIDTH, 1, facecolor=colour, alpha=_TINT, linewidth=0))
    middle = left + _CELL_WIDTH / 2
    remark = f"with ε: {readable_number(delta.exact)}" if delta.differs_by_epsilon else readable_formula(delta)
    axes.text(middle, top + (0.34 if remark else 0.5), readable_number(value), ha="center", va="center")
    if remark:
        axes.text(middle, top + 0.76, remark, ha="center", va="center", fontsize=6, color=_PALE_INK)


def readable_number(value: float) -> str:
    """Return the number in four digits, with an arrow for the direction of the push."""
    if math.isnan(value):
        return "not determined"
    size = "∞" if math.isinf(value) else f"{abs(value):.4g}"
    arrow = "↑ +" if value > 0 else "↓ −" if value < 0 else ""
    return f"{arrow}{size}"


def readable_formula(delta: Delta) -> str:
    """Return the formula in ordinary letters, empty if it is long or a number; "numeric" if there is none."""
    if delta.formula is None:
        return "numeric"
    text = delta.text
    for word, letter in (("phi", "φ"), ("xi", "ξ"), ("gamma", "γ"), ("**", "^"), ("*", "·"), ("-", "−")):
        text = text.replace(word, letter)
    is_number = re.fullmatch(r"−?(oo|[\d.]+(e−?\d+)?)", text)
    return "" if is_number or len(text) > _LONGEST_FORMULA else text
