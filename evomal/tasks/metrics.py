"""Metrics: what a trained model is judged by, with the direction that is better."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evomal.checks import finite_number, options_in, whole_number
from evomal.errors import InputError
from evomal.tasks.combined_metrics import Combined, WeightedSum, WorstGroup, groups_by_part, place_of
from evomal.tasks.foreign_metrics import Torchmetrics, is_of_torchmetrics, measured_by, name_of
from evomal.tasks.named_metrics import (
    METRICS,
    SAMPLE_WEIGHTED,
    WORST_CLASS,
    WORST_GROUP,
    NamedFunction,
    NamedMetric,
    Needs,
    metric_names,
    missing_class,
    rows_of,
    terms_in,
)
from evomal.text import short_repr, with_article
from evomal.users_code import place_of_function, users_code

Measure = Callable[..., Any] | Combined


@dataclass(frozen=True)
class Metric:
    """A function of a model's outputs and the targets of a whole split, and whether higher values are better.

    Args:
        function: Called as `function(outputs, targets)`; returns one number. Outputs are the model's, such as logits of
            shape (samples, classes); regression and multilabel targets have the shape of the outputs. Where there are
            targets for positions of a sample, every position is a row, and those that are ignored are left out. A
            torchmetrics metric is copied, and is reset, updated and computed anew for every call.
        name: What tables and figures call it; the function's own name if empty.
        higher_is_better: True where a search should look for the highest value, False for the lowest.
        needs_every_class: Whether validation and test must hold samples of every class, and for multilabel of every
            label present and absent.
        takes_weights: Whether it is called as `function(outputs, targets, weights)`, with the sample weight of each
            row; the task must then have sample weights.

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
    takes_weights: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"a metric must be a function of outputs and targets but got {short_repr(self.function)}")
        for name in ("higher_is_better", "takes_weights"):
            if not isinstance(value := getattr(self, name), bool):
                raise InputError(f"{name} must be True or False but got {short_repr(value)}")
        if not isinstance(self.name, str):
            raise InputError(f"a metric's name must be a string but got {short_repr(self.name)}")
        if not self.name:
            object.__setattr__(self, "name", name_of(self.function))
        if is_of_torchmetrics(self.function):
            if self.takes_weights:
                raise InputError(f"takes_weights must be False for {self.name}: torchmetrics metrics take no weights")
            object.__setattr__(self, "function", Torchmetrics(self.function))

    def __call__(
        self, outputs: Tensor, targets: Tensor, *, weights: Tensor | None = None, part: str | None = None
    ) -> float:
        """Measure a trained model.

        Args:
            outputs: One row per sample, or per position of every sample.
            targets: The targets of the rows.
            weights: The weights of the rows; those of weight 0 are left out, the others count alike unless the metric
                takes weights. None: all are 1.
            part: "validation" or "test", for a metric that knows groups of rows.
        """
        with users_code(f"the metric {self.name}"):
            if isinstance(self.function, Combined):
                value = self.function(outputs, targets, weights=weights, part=part)
            else:
                given = counted(outputs, targets, weights)
                value = self.function(*given) if self.takes_weights else self.function(*given[:2])
        try:
            if isinstance(value, (str, bytes)):  # float would accept "0.5"
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

    def check(self, targets: Tensor, part: str, *, samples: int, needs: Needs) -> None:
        """Raise unless a part of a task holds what the metric needs.

        Args:
            targets: The targets of the part: one row per sample, or per position of every sample.
            part: "validation" or "test".
            samples: The number of samples of the part.
            needs: What is known about the task.
        """
        if isinstance(self.function, Combined):
            self.function.check(targets, part, samples=samples, needs=needs)
        else:
            needs.check(self, targets, place_of(part))

    @property
    def is_named(self) -> bool:
        """Whether it is one of evomal's own, which take tensors of any device."""
        return isinstance(self.function, NamedFunction)

    @property
    def is_known(self) -> bool:
        """Whether its name and its record say what it computes, as of those of evomal and torchmetrics."""
        return isinstance(self.function, NamedFunction | Torchmetrics)

    @property
    def members(self) -> tuple["Metric", ...]:
        """The metrics that it is made of; empty if it is not a sum or a worst value of others."""
        return self.function.members if isinstance(self.function, Combined) else ()

    @property
    def is_by_part(self) -> bool:
        """Whether it knows the rows of each part, so that the parts cannot be drawn anew."""
        return isinstance(self.function, Combined) and self.function.is_by_part

    def of_rows(self, rows: Mapping[str, Tensor], total: int) -> "Metric":
        """The metric of a task whose validation and test part consist of these rows of the `total` ones given."""
        if not isinstance(self.function, Combined):
            return self
        return dataclasses.replace(self, function=self.function.of_rows(rows, total))

    def record(self) -> dict[str, Any]:
        """What decides the values besides the name: groups of rows, options of a torchmetrics metric."""
        found = self.function.record() if isinstance(self.function, Combined | Torchmetrics) else {}
        return dict(found)


def counted(outputs: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, targets and weights without the rows of weight 0."""
    if weights is None:
        weights = torch.ones(len(targets), device=targets.device)
    if bool((weights > 0).all()):
        return outputs, targets, weights
    return outputs[weights > 0], targets[weights > 0], weights[weights > 0]


def usual_metrics(kind: str, outputs: Tensor, targets: Tensor, *, weights: Tensor | None = None) -> dict[str, float]:
    """The metrics that every training reports; without those for which classes are missing among the targets."""
    outputs, targets, _ = counted(outputs, targets, weights)
    found: dict[str, float] = {}
    for row in METRICS.values():
        if kind in row.kinds and row.usual:
            metric = _made(row, row.name, kind)
            if not (metric.needs_every_class and missing_class(targets, outputs.shape[1], kind)):
                found[row.name] = metric(outputs, targets)
    return found


def chosen_metric(metric: Any, kind: str) -> Metric:
    """The metric that a user asks for.

    Args:
        metric: None for the kind's default; a name such as "auroc" or "pinball:quantile=0.9", a sum of several
            ("0.7*error_rate+0.3*ece"), or a name after "worst_class:" or "sample_weighted:"; a `Metric`; or an object
            that is called as `metric(outputs, targets)` and has `higher_is_better`, as torchmetrics' classes have.
        kind: The kind of task.

    Raises:
        InputError: If there is no such metric for this kind, or a function comes without its direction.
    """
    if metric is None:
        row = next(row for row in METRICS.values() if kind in row.kinds)
        return _made(row, row.name, kind)
    if isinstance(metric, Metric):
        if isinstance(metric.function, _Named):
            return _named(metric.function.name, kind)
        if not isinstance(metric.function, Combined):
            return metric
        return dataclasses.replace(metric, function=metric.function.of_kind(lambda one: chosen_metric(one, kind)))
    if isinstance(metric, str):
        return _named(metric, kind)
    if not callable(metric):
        raise InputError(f"metric must be a name or an evomal.Metric but got {short_repr(metric)}")
    return chosen_metric(_with_direction(metric), kind)


def weighted(metrics: Mapping[Any, float]) -> Metric:
    """A weighted sum of metrics, as one metric.

    If higher is better for all of them, it is for the sum; if lower is, lower is. If they differ, they are added as
    costs: those for which higher is better are subtracted, and lower is better for the sum.

    Args:
        metrics: The weight of each metric, more than 0; metrics are given by name or as `Task` takes them.

    Returns:
        A metric for `Task(metric=…)` or `task.judged_by`. A sum of named metrics can also be written as a text:
        `0.7*error_rate+0.3*ece`.

    Raises:
        InputError: If there is no such metric, or a weight is not a number of more than 0.

    Example:
        >>> metric = weighted({"error_rate": 0.7, "ece": 0.3})
        >>> metric.name, metric.higher_is_better
        ('0.7*error_rate+0.3*ece', False)
    """
    given: Any = metrics
    if not isinstance(given, Mapping) or not given:
        raise InputError(f"metrics must map metrics to their weights but got {short_repr(metrics)}")
    terms = []
    for metric, weight in given.items():
        one = _unresolved(metric)
        terms.append((finite_number(f"the weight of {one.name}", weight, above=0), one))
    directions = {one.higher_is_better for _, one in terms}
    name = "+".join(f"{weight:g}*{one.name}" for weight, one in terms)
    function = WeightedSum(terms, is_of_costs=len(directions) > 1)
    return Metric(function, name, higher_is_better=directions == {True})


def worst_group(metric: Any, *, groups: Any) -> Metric:
    """The worst value of a metric over groups of rows, as one metric: a model is as good as in its worst group.

    Args:
        metric: The metric, by name or as `Task` takes it.
        groups: The group of each row, as numbers or texts: one per row of the arrays for `Task.from_arrays`, or
            `{"validation": …, "test": …}` with one per row of each part; `"class"`: the classes of the targets.

    Returns:
        A metric for `Task(metric=…)` or `task.judged_by`. Over classes it can also be written as a text:
        `worst_class:error_rate`. A search does not draw the parts of a task with groups of rows anew.

    Raises:
        InputError: If there is no such metric, or the groups are not one per row.

    Example:
        >>> metric = worst_group("error_rate", groups={"validation": [0, 0, 1], "test": [0, 1, 1]})
        >>> outputs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> chosen_metric(metric, "classification")(outputs, torch.tensor([0, 1, 1]), part="validation")
        1.0
    """
    one = _unresolved(metric)
    if isinstance(one.function, Combined):
        raise InputError(f"worst_group takes a metric that is not made of others but got {one.name}")
    found = groups_by_part(groups)
    prefix = WORST_CLASS if found is None else WORST_GROUP
    return Metric(WorstGroup(one, found), prefix + one.name, higher_is_better=one.higher_is_better)


def _unresolved(metric: Any) -> Metric:
    """The metric before the kind of task is known: a name has a direction, but is resolved later."""
    if not isinstance(metric, str):
        return metric if isinstance(metric, Metric) else _with_direction(metric)
    if metric.startswith(WORST_CLASS):
        return worst_group(metric.removeprefix(WORST_CLASS), groups="class")
    if len(terms_in(metric)) > 1 or "*" in metric:
        return _sum_in(metric)
    rows = rows_of(metric)
    if not rows:
        raise InputError(f"metric must be one of {', '.join(METRICS)} but got {metric!r}")
    return Metric(_Named(metric), metric, higher_is_better=rows[0].higher_is_better)


class _Named:
    """Stands for a named metric in a combination until the kind of task is known."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        raise InputError(f"the metric {self.name} must belong to a task before it is measured")


def _named(text: str, kind: str) -> Metric:
    if text.startswith(WORST_CLASS) or "*" in text or "+" in text:
        return chosen_metric(_unresolved(text), kind)
    if text.startswith(SAMPLE_WEIGHTED):
        plain = _named(text.removeprefix(SAMPLE_WEIGHTED), kind)
        if plain.takes_weights or isinstance(plain.function, Combined):
            raise InputError(f"{SAMPLE_WEIGHTED} must directly precede the name of a metric but got {text!r}")
        return dataclasses.replace(plain, name=SAMPLE_WEIGHTED + plain.name, takes_weights=True)
    name = text.partition(":")[0]
    row = METRICS.get(name)
    if row is None or kind not in row.kinds:
        raise InputError(f"metric must be one of {', '.join(metric_names(kind))} for {kind} but got {text!r}")
    options = options_in(text, {row.option: row.example} if row.option else {})
    if not row.option:
        return _made(row, name, kind)
    if not options:
        raise InputError(f"the metric {name} needs its {row.option}, as in {row.written}, but got {text!r}")
    place, number = f"{name}: {row.option}", options[row.option]
    if isinstance(row.example, int):
        whole_number(place, number, at_least=0)
    else:
        finite_number(place, number, above=0, below=1)
    return _made(row, f"{name}:{row.option}={number:g}", kind, **options)


def _sum_in(text: str) -> Metric:
    """The weighted sum that a text such as `0.7*error_rate+0.3*ece` stands for."""
    found: dict[str, float] = {}
    for factor, name in terms_in(text):
        if name in found:
            raise InputError(f"the metric {name} is given twice in {text!r}")
        try:
            found[name] = float(factor)
        except ValueError:
            raise InputError(f"the weight of {name} must be a number but got {factor!r}") from None
    return weighted(found)


def _with_direction(metric: Any) -> Metric:
    if not callable(metric):
        raise InputError(f"metric must be a name or an evomal.Metric but got {short_repr(metric)}")
    name, direction = name_of(metric), getattr(metric, "higher_is_better", None)
    if not isinstance(direction, bool):
        raise InputError(
            f"the metric {name} must come with its direction: "
            f"evomal.Metric({name}, higher_is_better=True) or higher_is_better=False"
        )
    function = metric if is_of_torchmetrics(metric) else functools.partial(measured_by, metric)
    return Metric(function, name, higher_is_better=direction)


def _made(row: NamedMetric, name: str, kind: str, **options: float) -> Metric:
    return Metric(
        NamedFunction(row, kind, options), name,
        higher_is_better=row.higher_is_better, needs_every_class=row.needs_every_class,
    )  # fmt: skip


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "None" if value is None else with_article(type(value).__name__)
