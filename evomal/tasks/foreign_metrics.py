"""Metrics that are not evomal's own: those of torchmetrics, which need not be installed, and similar objects."""

import copy
import functools
import sys
from typing import Any

from torch import Tensor


def measured_by(metric: Any, outputs: Tensor, targets: Tensor) -> Any:
    """The value of an object such as torchmetrics' for this call alone."""
    # One logit is binary, for which torchmetrics wants outputs of the targets' shape.
    is_one_logit = outputs.dim() == targets.dim() + 1 and outputs.shape[-1] == 1
    value = metric(outputs.squeeze(-1) if is_one_logit else outputs, targets)
    if callable(reset := getattr(metric, "reset", None)):
        reset()  # such objects add up what they are called with
    return value


class Torchmetrics:
    """A torchmetrics metric, or one of its functions, called as any other function."""

    def __init__(self, metric: Any) -> None:
        self._metric = copy.deepcopy(metric)  # the caller's may be in use elsewhere
        self._is_object = _is_metric_object(metric)
        origin = type(metric).__mro__ if self._is_object else [_unwrapped(metric)]
        self._wants_integers = any(
            "torchmetrics" in one.__module__ and "classification" in one.__module__ for one in origin
        )

    def __call__(self, outputs: Tensor, targets: Tensor) -> Any:
        # torchmetrics takes vectors, not a single column.
        if outputs.dim() > 1 and outputs.shape[-1] == 1:
            targets = targets.squeeze(-1) if targets.dim() == outputs.dim() else targets
            outputs = outputs.squeeze(-1)
        targets = targets.long() if self._wants_integers else targets
        if not self._is_object:
            return self._metric(outputs, targets)
        metric = self._metric.to(outputs.device)
        metric.reset()
        metric.update(outputs, targets)
        value = metric.compute()
        metric.reset()  # which frees what it has collected
        return value

    def record(self) -> dict[str, Any]:
        """The options that it was made with."""
        if not self._is_object:
            return {}
        return {
            name: value
            for name, value in vars(self._metric).items()
            if not name.startswith("_") and isinstance(value, str | int | float)
        }


def is_of_torchmetrics(metric: Any) -> bool:
    """Whether it is one of torchmetrics' metrics or functions; without torchmetrics nothing is."""
    return _is_metric_object(metric) or str(getattr(_unwrapped(metric), "__module__", "")).startswith("torchmetrics.")


def _is_metric_object(metric: Any) -> bool:
    torchmetrics = sys.modules.get("torchmetrics")  # a metric of it exists only once it is imported
    return torchmetrics is not None and isinstance(metric, torchmetrics.Metric)


def _unwrapped(metric: Any) -> Any:
    return _unwrapped(metric.func) if isinstance(metric, functools.partial) else metric


def name_of(metric: Any) -> str:
    """What a function or an object is called."""
    metric = _unwrapped(metric)
    return getattr(metric, "__name__", None) or type(metric).__name__
