"""How a classification loss acts on one output at the beginning of training, then at its end.

δ = −∂L/∂f is the push on an output f (EvoMAL, appendix A.2, after Gonzalez and Miikkulainen, 2020): positive raises it.
Every output is taken as free, as there: the softmax that ties them together comes after. It is found at two points, for
the target's output and for any other. Null epoch: every output is 1/C. Zero error: the target's output tends to 1 from
below and the others to 0 from above.

Learned losses protect log and sqrt by ε = 1e-7: log(|a| + ε), sqrt(|a| + ε); their division a / sqrt(1 + b²) needs
none. `formula` and `value` are of the ideal form: ε tends to 0 first, f to its limit then. `exact` is with ε as it is,
at the end of the way: nearer to the limit than ε. The two differ where ε matters there, for example in |log(y·f)| at
f → 1: the ideal push is 1, but log(1 + ε) is positive, so within ε of 1 the exact push is −1. Hand-made losses have
no ε.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import sympy
import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.operators import EPSILON
from evomal.expression.symbolic import PREDICTION_SYMBOL, is_readable, rounded
from evomal.figures.loss_families import OUTPUT_LOSSES, SYMBOLS, output_loss
from evomal.figures.style import BLUE, GREY, VERMILLION, figure_style, in_figure, new_figure, sentence_figure
from evomal.losses.catalogue import name_of
from evomal.losses.contract import Loss
from evomal.losses.elementwise import ElementwiseLoss
from evomal.losses.expression_loss import ExpressionLoss
from evomal.losses.target_losses import CLASSES_SYMBOL
from evomal.losses.taylor import TaylorLoss, as_tree
from evomal.paper.limits import (
    Germ,
    constant,
    functions,
    is_infinite,
    limit,
    limit_of_numbers,
    numbers,
    put_in,
    tree_germ,
    within_time,
)
from evomal.text import shorten

Regime = Literal["null epoch", "zero error"]
Output = Literal["target", "other"]
How = Literal["substitution", "limit", "numeric"]

REGIMES: tuple[Regime, ...] = ("null epoch", "zero error")
OUTPUTS: tuple[Output, ...] = ("other", "target")

_EPSILON_SYMBOL = sympy.Symbol("epsilon", positive=True)
_DISTANCES = tuple(numbers.mpf(10) ** -power for power in (20, 40, 80))
_EPSILONS = (numbers.mpf(EPSILON),) * len(_DISTANCES)
# Far below every distance, as ε goes first.
_IDEAL_EPSILONS = tuple(numbers.mpf(10) ** -power for power in (10_000, 20_000, 40_000))
_AGREEING = 1e-9
_SMALLEST = 1e-2  # of a push that is told from zero by its size
_NEUTRAL = (0, 1)  # values of options at which a term or a factor drops out of the formula
_REWRITE_SECONDS = 0.3
_NEAR = 1e-12  # for what only autograd can differentiate


@dataclass(frozen=True)
class Delta:
    """The push on one kind of output at one point."""

    regime: Regime
    output: Output
    formula: Any
    """In SymPy's symbols C, phi0, phi1, xi, gamma, where one was found. The signs within it are those at this loss's
    options and number of classes; an option of 0 or 1 is put in as it is."""
    value: float
    """The same as a number, at the loss's options and number of classes."""
    exact: float
    """With ε as it is."""
    how: How

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
    """A loss at both points."""

    name: str
    classes: int
    deltas: tuple[Delta, ...]

    def at(self, regime: Regime, output: Output) -> Delta:
        """The push there."""
        return next(delta for delta in self.deltas if (delta.regime, delta.output) == (regime, output))

    @property
    def pushes_back(self) -> bool | None:
        """Whether the target's probability is pushed down near zero training error; None where no push is left.

        Through the softmax, −∂L/∂z of the target's logit z is p(1 − p)·(δ target − δ other) where the others are alike.
        """
        target, other = self._last_pushes()
        return None if _agree(target, other, _AGREEING) else target < other

    @property
    def sentence(self) -> str:
        """What that means."""
        target, other = self._last_pushes()
        if math.isnan(target) or math.isnan(other):
            return "near zero training error its push could not be found"
        if self.pushes_back is None:
            return "near zero training error it lets go of the target's probability"
        if not self.pushes_back:
            return "near zero training error it still pushes the target's probability up"
        if target < 0:
            return "near zero training error it pushes the target's probability back"
        return "near zero training error it lifts the others more, so pushes the target back"

    def _last_pushes(self) -> tuple[float, float]:
        target, other = self.at("zero error", "target"), self.at("zero error", "other")
        # Of two infinities only ε tells which is larger.
        return (target.exact, other.exact) if target.value == other.value else (target.value, other.value)


@dataclass(frozen=True)
class Behaviours:
    """Several losses at one number of classes."""

    classes: int
    losses: tuple[Behaviour, ...]

    def columns(self) -> dict[str, list[Any]]:
        """A row for each loss, point and kind of output."""
        rows = [(loss.name, delta) for loss in self.losses for delta in loss.deltas]
        return {
            "loss": [name for name, _ in rows],
            "classes": [self.classes] * len(rows),
            "point": [delta.regime for _, delta in rows],
            "output": [delta.output for _, delta in rows],
            "formula": [delta.text for _, delta in rows],
            "latex": [delta.latex for _, delta in rows],
            "value": [delta.value for _, delta in rows],
            "exact": [delta.exact for _, delta in rows],
            "how": [delta.how for _, delta in rows],
        }


def behaviours(losses: Mapping[str, Loss], *, classes: int = 10) -> Behaviours:
    """The behaviour of losses by name."""
    return Behaviours(classes, tuple(behaviour(loss, classes=classes, name=name) for name, loss in losses.items()))


def behaviour(loss: Loss, *, classes: int = 10, name: str = "loss") -> Behaviour:
    """δ of a loss at the null epoch and near zero training error, as formulas and as numbers.

    A formula comes by substitution, else by SymPy's limit, and is compared with values in 800 digits on the way there.
    Where SymPy finds nothing in a second, or a tree is too large for it, those values are the answer, labelled
    "numeric".
    """
    if classes < 2:
        raise InputError(f"classes must be at least 2 but got {classes}")
    if loss.kind != "classification":
        raise InputError(f"{name} is for {loss.kind}, but δ at f = 1/C is about classification")
    cases = [(regime, output) for regime in REGIMES for output in OUTPUTS]
    return Behaviour(name, classes, tuple(_delta(loss, classes, regime, output) for regime, output in cases))


def symbolic_delta(loss: Loss, output: Output, *, classes: int = 10) -> Any:
    """δ as a SymPy function of f between the two points, with ε = 1e-7 and the signs of the null epoch."""
    germ = _germ_of(loss, classes, "null epoch", output, epsilon=_EPSILONS, epsilon_symbol=None)
    if germ is None or germ.form is None:
        raise InputError(f"{type(loss).__name__} has no formula that SymPy can differentiate")
    return -sympy.diff(germ.form, PREDICTION_SYMBOL)


def _delta(loss: Loss, classes: int, regime: Regime, output: Output) -> Delta:
    exact = _germ_of(loss, classes, regime, output, epsilon=_EPSILONS, epsilon_symbol=None)
    if exact is None:
        slope = _slope_by_autograd(loss, classes, regime, output)
        return Delta(regime, output, None, slope, slope, "numeric")
    ideal = _germ_of(loss, classes, regime, output, epsilon=_IDEAL_EPSILONS, epsilon_symbol=_EPSILON_SYMBOL)
    assert ideal is not None, "what has one germ has the other"
    tends_to, exactly = (_limit_of_push(germ) for germ in (ideal, exact))
    formula, how = _formula(ideal, classes, regime, output, _option_values(loss), tends_to)
    return Delta(regime, output, formula, tends_to, exactly, how)


def _limit_of_push(germ: Germ) -> float:
    return float(limit_of_numbers([-slope for slope in germ.slopes])) + 0.0  # which makes zero of minus zero


def _germ_of(
    loss: Loss, classes: int, regime: Regime, output: Output, *, epsilon: Sequence[Any], epsilon_symbol: Any
) -> Germ | None:
    """What one output costs near a point; None for a loss that is neither a tree nor hand-made."""
    germ: Germ
    tree = _tree(loss)
    written = tree is None or is_readable(tree[0].tokens)
    places = _places(classes, regime, output)
    prediction = Germ(PREDICTION_SYMBOL if written else None, places, (numbers.mpf(1),) * len(places))
    y = int(output == "target")
    if tree is not None:
        form = (sympy.Float(EPSILON) if epsilon_symbol is None else epsilon_symbol) if written else None
        protection = Germ(form, tuple(epsilon), (numbers.mpf(0),) * len(epsilon))
        germ = tree_germ(*tree, prediction, y, protection)
        if isinstance(loss, ExpressionLoss) and loss.activation == "softplus":
            germ = functions.softplus(germ)
        return germ
    name = name_of(loss)
    if name not in OUTPUT_LOSSES:
        return None
    count = constant(classes, len(places), symbol=CLASSES_SYMBOL)
    named = {symbol: constant(value, len(places), symbol=symbol) for symbol, value in _option_values(loss).items()}
    options = {option: named.get(SYMBOLS.get(option), value) for option, value in _options(loss).items()}
    germ = output_loss(name, functions, prediction, y, count, options)
    return germ


def _places(classes: int, regime: Regime, output: Output) -> tuple[Any, ...]:
    if regime == "null epoch":
        return (numbers.mpf(1) / classes,) * len(_DISTANCES)
    return tuple(1 - distance if output == "target" else distance for distance in _DISTANCES)


def _tree(loss: Loss) -> tuple[Expression, Sequence[float] | None] | None:
    if isinstance(loss, ExpressionLoss):
        return loss.expression, None if loss.weights is None else loss.weights.tolist()
    return as_tree(loss.theta.tolist()) if isinstance(loss, TaylorLoss) else None


def _options(loss: Loss) -> dict[str, Any]:
    return {option: getattr(loss, option) for option in loss.option_names}


def _option_values(loss: Loss) -> dict[Any, float]:
    """The symbols with what they stand for."""
    options = _options(loss).items()
    return {SYMBOLS[option]: value for option, value in options if option in SYMBOLS and value not in _NEUTRAL}


def _formula(
    germ: Germ, classes: int, regime: Regime, output: Output, options: Mapping[Any, float], tends_to: float
) -> tuple[Any, How]:
    """The limit as a formula that agrees with the numbers, and how it was found."""
    if germ.form is None:
        return None, "numeric"
    slope = within_time(lambda: -sympy.diff(germ.form, PREDICTION_SYMBOL))
    numbers_for = {**options, CLASSES_SYMBOL: classes}
    place, side = _goal(regime, output)
    # Symbols first, and where SymPy cannot tell what they do, the options' own values; limits take long, so come last.
    ways = [(by_limits, values) for by_limits in (False, True) for values in (({}, options) if options else ({},))]
    for by_limits, values in ways:
        found, how = _at_place(slope and slope.subs(values), place, side, by_limits=by_limits)
        if found is None:
            continue
        if is_infinite(found) and math.isinf(tends_to):
            # Where there is a pole SymPy does not always know the sign; the numbers do.
            return sympy.oo * int(math.copysign(1, tends_to)), how
        if _agree(_number(found, numbers_for), tends_to, _AGREEING):
            return _shortest(found), how
    return None, "numeric"


def _goal(regime: Regime, output: Output) -> tuple[Any, str]:
    """Where f goes, and from which side."""
    if regime == "null epoch":
        return 1 / CLASSES_SYMBOL, "+"
    return (sympy.Integer(1), "-") if output == "target" else (sympy.Integer(0), "+")


def _at_place(form: Any, place: Any, side: str, *, by_limits: bool) -> tuple[Any, How]:
    """The form without ε at the place, infinite where it has a pole; None where substitution does not say."""
    how: How = "substitution"
    for symbol, goal, direction in ((_EPSILON_SYMBOL, 0, "+"), (PREDICTION_SYMBOL, place, side)):
        if form is None or is_infinite(form):
            break
        found = put_in(form, symbol, goal)
        if found is None and by_limits:
            found, how = limit(form, symbol, goal, direction), "limit"
        form = found
    return form, "limit" if form is not None and is_infinite(form) else how


def _number(form: Any, values: Mapping[Any, float]) -> float:
    number = within_time(lambda: float(form.subs(values).evalf(30)))
    return float("nan") if number is None else number


def _shortest(form: Any) -> Any:
    """The shortest of a few equal forms; a number is shown rounded, so stays as it is."""
    if not form.free_symbols:
        return form
    # Not SymPy's own simplification, which takes most of a second for little.
    rewrites: tuple[Callable[[Any], Any], ...] = (
        sympy.expand, sympy.cancel, sympy.factor_terms, sympy.expand_log, sympy.together,
    )  # fmt: skip
    forms = [form, *(within_time(functools.partial(rewrite, form), _REWRITE_SECONDS) for rewrite in rewrites)]
    return min((found for found in forms if found is not None), key=sympy.count_ops)


def _slope_by_autograd(loss: Loss, classes: int, regime: Regime, output: Output) -> float:
    if not isinstance(loss, ElementwiseLoss):
        raise InputError(f"{type(loss).__name__} does not say what a single output costs")
    y = float(output == "target")
    place = 1 / classes if regime == "null epoch" else abs(y - _NEAR)
    with torch.enable_grad():
        prediction = torch.tensor([place], dtype=torch.float64, requires_grad=True)
        value: Tensor = loss.value(prediction, torch.full_like(prediction, y))
        (gradient,) = torch.autograd.grad(value.sum(), prediction)
    return -float(gradient)


def _agree(a: float, b: float, tolerance: float) -> bool:
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= tolerance * max(abs(a), abs(b), _SMALLEST)


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW_HEIGHT, _HEAD = 0.42, 0.66
_NAME_WIDTH, _CELL_WIDTH = 1.5, 1.0  # relative
_LONGEST_NAME, _LONGEST_FORMULA = 28, 24
_TINT, _PALE_INK = 0.16, "#555555"
_HEADINGS = {"other": "non-target", "target": "target"}
_POINTS = {"null epoch": "null epoch, $f = 1/C$", "zero error": "near zero training error"}


def draw_behaviour(data: Behaviours) -> "Figure":
    """A page-wide table: a row for each loss, blue where an output is pushed up, vermillion where down."""
    if not data.losses:
        return sentence_figure("there is no loss to draw", "page")
    figure = new_figure("page", _HEAD + _ROW_HEIGHT * len(data.losses))
    cases = [(regime, output) for regime in REGIMES for output in OUTPUTS]
    with figure_style():
        axes = figure.subplots()
        axes.set_xlim(0, _NAME_WIDTH + _CELL_WIDTH * len(cases))
        axes.set_ylim(len(data.losses), -_HEAD / _ROW_HEIGHT)
        axes.set_axis_off()
        _draw_headings(axes, data.classes)
        for place, loss in enumerate(data.losses):
            axes.axhline(place, color=GREY, linewidth=0.4)
            axes.text(0.02, place + 0.5, in_figure(shorten(loss.name, _LONGEST_NAME)), va="center", fontsize=7.5)
            for column, (regime, output) in enumerate(cases):
                _draw_cell(axes, _NAME_WIDTH + column * _CELL_WIDTH, place, loss.at(regime, output))
        axes.axhline(len(data.losses), color=GREY, linewidth=0.4)
    return figure


def _draw_headings(axes: "Axes", classes: int) -> None:
    axes.text(0.02, -0.3, rf"push $\delta = -\partial L / \partial f$ at $C$ = {classes}", va="bottom")
    for half, regime in enumerate(REGIMES):
        left = _NAME_WIDTH + 2 * half * _CELL_WIDTH
        axes.text(left + _CELL_WIDTH, -1.0, _POINTS[regime], ha="center", va="bottom", fontweight="bold")
        axes.plot([left + 0.05, left + 2 * _CELL_WIDTH - 0.05], [-0.9, -0.9], color=GREY, linewidth=0.4)
        for column, output in enumerate(OUTPUTS):
            axes.text(left + (column + 0.5) * _CELL_WIDTH, -0.3, _HEADINGS[output], ha="center", va="bottom")


def _draw_cell(axes: "Axes", left: float, top: float, delta: Delta) -> None:
    from matplotlib.patches import Rectangle

    value = delta.value
    if value and not math.isnan(value):
        colour = BLUE if value > 0 else VERMILLION
        axes.add_patch(Rectangle((left, top), _CELL_WIDTH, 1, facecolor=colour, alpha=_TINT, linewidth=0))
    middle, remark = left + _CELL_WIDTH / 2, _remark(delta)
    axes.text(middle, top + (0.34 if remark else 0.5), readable_number(value), ha="center", va="center")
    if remark:
        axes.text(middle, top + 0.76, remark, ha="center", va="center", fontsize=6, color=_PALE_INK)


def _remark(delta: Delta) -> str:
    return f"with ε: {readable_number(delta.exact)}" if delta.differs_by_epsilon else readable_formula(delta)


def readable_number(value: float) -> str:
    """The number in four digits, with an arrow for the way it pushes."""
    if math.isnan(value):
        return "not found"
    size = "∞" if math.isinf(value) else f"{abs(value):.4g}"
    arrow = "↑ +" if value > 0 else "↓ −" if value < 0 else ""
    return f"{arrow}{size}"


def readable_formula(delta: Delta) -> str:
    """The formula in ordinary letters, where it is short and more than the number; "numeric" where there is none."""
    if delta.formula is None:
        return "numeric"
    text = delta.text
    for word, letter in (("phi", "φ"), ("xi", "ξ"), ("gamma", "γ"), ("**", "^"), ("*", "·"), ("-", "−")):
        text = text.replace(word, letter)
    is_number = re.fullmatch(r"−?(oo|[\d.]+(e−?\d+)?)", text)
    return "" if is_number or len(text) > _LONGEST_FORMULA else text
