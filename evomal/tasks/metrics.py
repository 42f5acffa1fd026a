"""Metrics: what a trained model is judged by, with the direction that is better."""

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evomal.checks import finite_number, options_in
from evomal.errors import InputError
from evomal.tasks import metric_functions as functions
from evomal.text import short_repr, shorten
from evomal.users_code import place_of_function, users_code

Measure = Callable[[Tensor, Tensor], Any]
POINTS = "points"
"""The unit of differences of shares, such as error rates: percentage points."""


@dataclass(frozen=True)
class Metric:
    """A function of a model's outputs and the targets of a whole split, and whether more of it is better.

    Args:
        function: Called as `function(outputs, targets)`; returns one number. Outputs are the model's, such as logits of
            shape (samples, classes); regression and multilabel targets have the shape of the outputs.
        name: What tables and figures call it; the function's own name if empty.
        higher_is_better: True where a search should look for the highest value, False for the lowest.
        needs_every_class: Whether validation and test must hold samples of every class, and for multilabel of every
            label present and absent.

    Raises:
        InputError: If `function` cannot be called or `higher_is_better` is not True or False.

    Example:
        >>> def hits(outputs, targets):
        ...     return (outputs.argmax(1) == targets).double().mean()
        >>> accuracy = Metric(hits, "accuracy", higher_is_better=True)
        >>> accuracy(torch.tensor([[0.0, 1.0], [2.0, 0.0]]), torch.tensor([1, 1]))
        0.5
    """

    function: Measure
    name: str = ""
    higher_is_better: bool = dataclasses.field(kw_only=True)
    needs_every_class: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"a metric must be a function of outputs and targets but got {short_repr(self.function)}")
        if not isinstance(self.higher_is_better, bool):
            raise InputError(f"higher_is_better must be True or False but got {short_repr(self.higher_is_better)}")
        if not isinstance(self.name, str):
            raise InputError(f"a metric's name must be a text but got {short_repr(self.name)}")
        if not self.name:
            object.__setattr__(self, "name", _name_of(self.function))

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        with users_code(f"the metric {self.name}"):
            value = self.function(outputs, targets)
        try:
            if isinstance(value, (str, bytes)):  # which Python would read as a number
                raise TypeError
            return float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            place = place_of_function(self.function)
            raise InputError(
                f"the metric {self.name}{f' ({place})' if place else ''} must return one number but returned "
                f"{_described(value)}"
            ) from None

    def cost(self, value: float) -> float:
        """The value as something to be minimised, which is what a search does."""
        return -value if self.higher_is_better else value


@dataclass(frozen=True)
class NamedMetric:
    """A row of the registry."""

    name: str
    purpose: str
    function: Callable[..., float]
    kinds: tuple[str, ...] = ("classification", "multilabel")
    """The kinds of task that it is defined for."""
    higher_is_better: bool = False
    percent: bool = False
    """Whether it is a share that is shown in percent."""
    needs_every_class: bool = False
    option: str = ""
    """The name of a number between 0 and 1 that must be given, as in `pinball:quantile=0.9`."""
    usual: bool = True
    """Whether every training reports it beside the metric asked for."""

    @property
    def written(self) -> str:
        """How it is asked for."""
        return f"{self.name}:{self.option}=0.9" if self.option else self.name


_CLASSES, _VALUES = ("classification",), ("regression",)
_ROWS = (
    NamedMetric(
        "error_rate", "share of samples, or of labels, predicted wrongly", functions.error_rate, percent=True
    ),
    NamedMetric(
        "balanced_error", "error rate of each class, averaged over classes", functions.balanced_error, percent=True
    ),
    NamedMetric("nll", "mean negative log-likelihood of the target", functions.negative_log_likelihood),
    NamedMetric("log_loss", "another name of nll", functions.negative_log_likelihood, usual=False),
    NamedMetric("brier", "mean squared error of the probabilities", functions.brier_score),
    NamedMetric(
        "ece", "expected calibration error: gap between confidence and accuracy",
        functions.expected_calibration_error, _CLASSES, percent=True,
    ),
    NamedMetric("macro_f1", "F1 of each class or label, averaged", functions.macro_f1, higher_is_better=True),
    NamedMetric(
        "auroc", "area under the ROC curve; the mean of one class against the rest for several",
        functions.auroc, higher_is_better=True, needs_every_class=True,
    ),
    NamedMetric(
        "average_precision", "area under precision against recall; the mean of one class against the rest for several",
        functions.average_precision, higher_is_better=True, needs_every_class=True,
    ),
    NamedMetric("mse", "mean squared error", functions.mean_squared_error, _VALUES),
    NamedMetric("mae", "mean absolute error", functions.mean_absolute_error, _VALUES),
    NamedMetric("r2", "share of the targets' variance explained", functions.r_squared, _VALUES, higher_is_better=True),
    NamedMetric("pinball", "quantile loss", functions.pinball, _VALUES, option="quantile", usual=False),
)  # fmt: skip

METRICS: dict[str, NamedMetric] = {row.name: row for row in _ROWS}
"""All metrics that have a name; the first of a kind is the one a task is judged by unless another is asked for."""


def metric_names(kind: str) -> list[str]:
    """How the metrics of a kind of task are asked for."""
    return [row.written for row in METRICS.values() if kind in row.kinds]


def is_metric_of(name: str, kind: str) -> bool:
    """Whether a recorded name is that of a metric for this kind of task."""
    row = _row_of(name)
    return row is not None and kind in row.kinds


def recorded_direction(name: str) -> bool | None:
    """Whether more is better for the metric that a record names; None for a user's own."""
    row = _row_of(name)
    return None if row is None else row.higher_is_better


def shown_in_percent(name: str) -> bool:
    """Whether values of the metric that bears this name are shares that are shown in percent."""
    row = _row_of(name)
    return row is not None and row.percent


def metric_scale(name: str) -> float:
    """Returns what values of the metric are multiplied by when they are shown: 100 for shares, which are in percent."""
    return 100.0 if shown_in_percent(name) else 1.0


def metric_label(name: str, longest: int = 60) -> str:
    """Returns the metric's name for a heading or an axis, with the unit if there is one: `error rate (%)`."""
    shown = shorten(name.replace("_", " "), longest)
    return f"{shown} (%)" if shown_in_percent(name) else shown


def metric_number(value: float, name: str, *, digits: int = 4) -> str:
    """Returns a value without its unit: shares in percent with two decimals, others with significant digits."""
    return f"{100 * value:.2f}" if shown_in_percent(name) else f"{value:.{digits}g}"


def difference_unit(name: str) -> str:
    """Returns the unit of differences in the metric: points for shares, none for others."""
    return POINTS if shown_in_percent(name) else ""


def metric_text(value: float, name: str, deviation: float | None = None) -> str:
    """Returns a value with its unit, and with its standard deviation if there is one: `1.23 ± 0.05 %`."""
    spread = "" if deviation is None else f" ± {metric_number(deviation, name, digits=2)}"
    return f"{metric_number(value, name)}{spread}{' %' if shown_in_percent(name) else ''}"


def named_value(value: float, name: str, longest: int = 60) -> str:
    """Returns the metric's name, the value and its unit, for a sentence: `error rate 1.23 %`."""
    return f"{shorten(name.replace('_', ' '), longest)} {metric_text(value, name)}"


@dataclass(frozen=True)
class ShownMetric:
    """How costs, which a search minimises, are shown to people: as values of the metric, with its unit."""

    name: str = ""
    higher_is_better: bool = False

    def value(self, cost: float) -> float:
        """Returns the value of the metric for a cost."""
        return -cost if self.higher_is_better else cost

    def text(self, cost: float, deviation: float | None = None) -> str:
        """Returns the value for a cost, with its deviation if that is finite, or "diverged"."""
        if not math.isfinite(cost):
            return "diverged"
        spread = deviation if deviation is not None and math.isfinite(deviation) else None
        return metric_text(self.value(cost), self.name, spread)


def usual_metrics(kind: str, outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """The metrics that every training reports; without those for which classes are missing among the targets."""
    found: dict[str, float] = {}
    for row in METRICS.values():
        if kind in row.kinds and row.usual:
            metric = _made(row, row.name, kind)
            if not (metric.needs_every_class and missing_class(targets, outputs.shape[1], kind)):
                found[row.name] = metric(outputs, targets)
    return found


def missing_class(targets: Tensor, outputs: int, kind: str) -> str:
    """Which class has no sample, or which label is always or never there; empty where nothing is missing."""
    if kind == "multilabel":
        present = targets > 0.5
        for label in range(targets.shape[1]):
            if not bool(present[:, label].any()) or bool(present[:, label].all()):
                return f"label {label} is {'always' if bool(present[:, label].any()) else 'never'} present there"
        return ""
    counts = torch.bincount(targets, minlength=max(2, outputs))
    missing = (counts == 0).nonzero().flatten().tolist()
    return f"class {missing[0]} has no sample there" if missing else ""


def chosen_metric(metric: Any, kind: str) -> Metric:
    """The metric that a user asks for.

    Args:
        metric: None for the kind's default, a name such as "auroc" or "pinball:quantile=0.9", a `Metric`, or an object
            that is called as `metric(outputs, targets)` and has `higher_is_better`, as torchmetrics' classes have.
        kind: The kind of task.

    Raises:
        InputError: If there is no such metric for this kind, or a function comes without its direction.
    """
    if metric is None:
        row = next(row for row in METRICS.values() if kind in row.kinds)
        return _made(row, row.name, kind)
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        return _named(metric, kind)
    if not callable(metric):
        raise InputError(f"metric must be a name or an evomal.Metric but got {short_repr(metric)}")
    name, direction = _name_of(metric), getattr(metric, "higher_is_better", None)
    if not isinstance(direction, bool):
        raise InputError(
            f"the metric {name} must come with its direction: "
            f"evomal.Metric({name}, higher_is_better=True) or higher_is_better=False"
        )
    return Metric(functools.partial(_measured_by, metric), name, higher_is_better=direction)


def _named(text: str, kind: str) -> Metric:
    name = text.partition(":")[0]
    row = METRICS.get(name)
    if row is None or kind not in row.kinds:
        raise InputError(f"metric must be one of {', '.join(metric_names(kind))} for {kind} but got {text!r}")
    options = options_in(text, {row.option: 0.9} if row.option else {})
    if not row.option:
        return _made(row, name, kind)
    if not options:
        raise InputError(f"the metric {name} needs its {row.option}, as in {row.written}, but got {text!r}")
    number = finite_number(f"{name}: {row.option}", options[row.option], above=0, below=1)
    return _made(row, f"{name}:{row.option}={number:g}", kind, **options)


def _made(row: NamedMetric, name: str, kind: str, **options: float) -> Metric:
    function = functools.partial(row.function, **options) if options else row.function
    return Metric(
        functools.partial(functions.measured, function, kind), name,
        higher_is_better=row.higher_is_better, needs_every_class=row.needs_every_class,
    )  # fmt: skip


def _row_of(name: str) -> NamedMetric | None:
    return METRICS.get(name.partition(":")[0])


def _measured_by(metric: Any, outputs: Tensor, targets: Tensor) -> Any:
    """The value of an object such as torchmetrics' for this call alone."""
    # One logit is binary, for which torchmetrics wants outputs of the targets' shape.
    is_one_logit = outputs.dim() == targets.dim() + 1 and outputs.shape[-1] == 1
    value = metric(outputs.squeeze(-1) if is_one_logit else outputs, targets)
    if callable(reset := getattr(metric, "reset", None)):
        reset()  # such objects add up what they are called with
    return value


def _name_of(metric: Any) -> str:
    return getattr(metric, "__name__", None) or type(metric).__name__


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"
