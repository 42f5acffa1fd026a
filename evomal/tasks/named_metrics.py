"""The metrics that have a name: a table, how names are written and read, and what metrics need in a task's data."""

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.tasks import metric_functions as functions
from evomal.tasks.labels import Classes, class_name

WORST_CLASS, WORST_GROUP = "worst_class:", "worst_group:"
"""What precedes the name of a metric whose worst value over classes, or over groups of rows, counts."""
SAMPLE_WEIGHTED = "sample_weighted:"
"""What precedes the name of a metric in which samples count by their weights."""


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
    bounds: tuple[float, float] = (0.0, 1.0)
    """The least and the largest value that it can have."""
    needs_every_class: bool = False
    option: str = ""
    """The name of a number that must be given, as in `pinball:quantile=0.9`."""
    example: float = 0.9
    """A value of the option: a share, which lies between 0 and 1, or a whole number of at least 0."""
    usual: bool = True
    """Whether every training reports it beside the metric asked for."""

    @property
    def written(self) -> str:
        """How it is asked for."""
        return f"{self.name}:{self.option}={self.example}" if self.option else self.name


@dataclass(frozen=True)
class NamedFunction:
    """What a named metric computes for a kind of task, with its options."""

    row: NamedMetric
    kind: str
    options: Mapping[str, float]

    def __call__(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
        function = functools.partial(self.row.function, **self.options)
        return functions.measured(function, self.kind, outputs, targets, weights)


_CLASSES, _VALUES = ("classification",), ("regression",)
_NOT_NEGATIVE = (0.0, math.inf)
_ROWS = (
    NamedMetric(
        "error_rate", "share of samples, or of labels, predicted incorrectly", functions.error_rate, percent=True
    ),
    NamedMetric(
        "balanced_error", "error rate of each class, averaged over classes", functions.balanced_error, percent=True
    ),
    NamedMetric(
        "nll", "mean negative log-likelihood of the target", functions.negative_log_likelihood, bounds=_NOT_NEGATIVE
    ),
    NamedMetric(
        "log_loss", "another name of nll", functions.negative_log_likelihood, usual=False, bounds=_NOT_NEGATIVE
    ),
    NamedMetric("brier", "mean squared error of the probabilities", functions.brier_score, bounds=(0.0, 2.0)),
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
        "average_precision", "area under the precision-recall curve; the mean over classes if there are several",
        functions.average_precision, higher_is_better=True, needs_every_class=True,
    ),
    NamedMetric(
        "accuracy", "share of samples, or of labels, predicted correctly", functions.accuracy,
        higher_is_better=True, percent=True, usual=False,
    ),
    NamedMetric(
        "mean_iou", "intersection over union of each class or label, averaged", functions.mean_iou,
        higher_is_better=True, usual=False,
    ),
    NamedMetric(
        "f1", "F1 of one class or label", functions.f1_score, higher_is_better=True, usual=False, option="label",
        example=1,
    ),
    NamedMetric(
        "precision", "share of the samples predicted to have a class or label that have it", functions.precision,
        higher_is_better=True, usual=False, option="label", example=1,
    ),
    NamedMetric(
        "recall", "share of the samples with a class or label that are predicted to have it", functions.recall,
        higher_is_better=True, usual=False, option="label", example=1,
    ),
    NamedMetric("mse", "mean squared error", functions.mean_squared_error, _VALUES, bounds=_NOT_NEGATIVE),
    NamedMetric("mae", "mean absolute error", functions.mean_absolute_error, _VALUES, bounds=_NOT_NEGATIVE),
    NamedMetric(
        "r2", "share of the targets' variance explained", functions.r_squared, _VALUES, higher_is_better=True,
        bounds=(-math.inf, 1.0),
    ),
    NamedMetric(
        "pinball", "quantile loss", functions.pinball, _VALUES, option="quantile", usual=False, bounds=_NOT_NEGATIVE
    ),
)  # fmt: skip

METRICS: dict[str, NamedMetric] = {row.name: row for row in _ROWS}
"""All metrics that have a name; the first of a kind is the one a task is judged by unless another is asked for."""


def metric_names(kind: str) -> list[str]:
    """How the metrics of a kind of task are asked for."""
    return [row.written for row in METRICS.values() if kind in row.kinds]


def rows_of(name: str) -> list[NamedMetric]:
    """The rows that a metric's name is made of, as in `0.7*error_rate+0.3*ece`; none if one of them is a user's own."""
    found = []
    for _, member in terms_in(name):
        for prefix in (WORST_CLASS, WORST_GROUP, SAMPLE_WEIGHTED):
            member = member.removeprefix(prefix)
        row = METRICS.get(member.partition(":")[0])
        if row is None:
            return []
        found.append(row)
    return found


def largest_difference(name: str) -> float:
    """The largest difference that two values of a metric can have; infinite if it has no bounds, or is a user's own.

    Example:
        >>> largest_difference("error_rate"), largest_difference("mse"), largest_difference("my_metric")
        (1.0, inf, inf)
    """
    rows = rows_of(name)
    try:
        factors = [float(factor) for factor, _ in terms_in(name)]
    except ValueError:  # a sum within a sum
        return math.inf
    if not rows:
        return math.inf
    return sum(factor * (row.bounds[1] - row.bounds[0]) for factor, row in zip(factors, rows, strict=True))


def terms_in(text: str) -> list[tuple[str, str]]:
    """The factors, as texts, and names of a sum such as `0.7*error_rate+0.3*ece`; a name alone has the factor 1."""
    terms = [term.strip().rpartition("*") for term in re.split(r"(?<![0-9]e)\+", text)]
    return [(factor.strip() if star else "1", name.strip()) for factor, star, name in terms]


if TYPE_CHECKING:  # it imports this module
    from evomal.tasks.metrics import Metric


@dataclass(frozen=True)
class Needs:
    """What is known about one part of a task, to check that metrics can be measured on it.

    Args:
        kind: The kind of task.
        outputs: The number of classes, labels or regression targets.
        classes: What classes and labels are called; None: by their numbers.
        has_weights: Whether the samples have weights.
    """

    kind: str
    outputs: int
    classes: Classes | None
    has_weights: bool

    def check(self, metric: "Metric", targets: Tensor, place: str) -> None:
        """Raise unless the metric can be measured on these targets; `place` says where they are."""
        function, count = metric.function, max(2, self.outputs) if self.kind == "classification" else self.outputs
        label = function.options.get("label") if isinstance(function, NamedFunction) else None
        if label is not None and label >= count:
            what = "classes" if self.kind == "classification" else "labels"
            raise InputError(
                f"the label of the metric {metric.name} must be less than the number of {what}, {count}, but is {label}"
            )
        if metric.needs_every_class and (missing := missing_class(targets, self.outputs, self.kind, self.classes)):
            raise InputError(f"the metric {metric.name} needs every class in {place}, but {missing}")
        if metric.takes_weights and not self.has_weights:
            raise InputError(
                f"the metric {metric.name} needs sample weights, but {place} has none: give sample_weight, or weights "
                "beside inputs and targets"
            )


def missing_class(targets: Tensor, outputs: int, kind: str, classes: Classes | None = None) -> str:
    """Which class has no sample, or which label is always or never there; empty where nothing is missing."""
    if kind == "multilabel":
        present = targets.reshape(-1, targets.shape[-1]) > 0.5
        for label in range(present.shape[1]):
            if not bool(present[:, label].any()) or bool(present[:, label].all()):
                how_often = "always" if bool(present[:, label].any()) else "never"
                return f"label {class_name(label, classes)} is {how_often} present there"
        return ""
    # Negative numbers mark positions that are ignored.
    counts = torch.bincount(targets[targets >= 0], minlength=max(2, outputs))
    missing = (counts == 0).nonzero().flatten().tolist()
    return f"class {class_name(missing[0], classes)} has no sample there" if missing else ""
