"""What a trained model is judged by, computed from its outputs on a whole split."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.errors import InputError
from evomal.users_code import place_of_function

Measure = Callable[[Tensor, Tensor], float]

_CALIBRATION_BINS = 15


@dataclass(frozen=True)
class Metric:
    """A measure of outputs against targets, and whether less of it is better."""

    name: str
    measure: Measure
    lower_is_better: bool = True

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        value: object = self.measure(outputs, targets)
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, RuntimeError):
            place = place_of_function(self.measure)
            raise InputError(
                f"the metric {self.name}{f' ({place})' if place else ''} must return a number but returned "
                f"{type(value).__name__ if value is not None else None}"
            ) from None

    def cost(self, value: float) -> float:
        """The value as something to be minimised, which is what a search does."""
        return value if self.lower_is_better else -value


def predicted_classes(outputs: Tensor) -> Tensor:
    """The most probable class of each sample; one logit is binary, class 1 from 0 on."""
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def class_probabilities(outputs: Tensor) -> Tensor:
    """(samples, classes) probabilities, of two classes where there is one logit."""
    if outputs.shape[1] == 1:
        positive = outputs.double().sigmoid()
        return torch.cat((1 - positive, positive), dim=1)
    return outputs.double().softmax(1)


def error_rate(outputs: Tensor, targets: Tensor) -> float:
    """Share of samples whose most probable class is wrong."""
    return (predicted_classes(outputs) != targets).double().mean().item()


def negative_log_likelihood(outputs: Tensor, targets: Tensor) -> float:
    """Mean −log p of the target, in nats."""
    if outputs.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(outputs[:, 0].double(), targets.double()).item()
    return F.cross_entropy(outputs.double(), targets).item()


def expected_calibration_error(outputs: Tensor, targets: Tensor) -> float:
    """Mean gap between confidence and accuracy over fifteen bins of confidence (Guo et al., 2017)."""
    confidence, predicted = class_probabilities(outputs).max(1)
    right = (predicted == targets).double()
    # Bins are open below and closed above, so that a confidence of exactly 1 falls into the last one.
    bins = (confidence * _CALIBRATION_BINS).ceil().long().clamp(1, _CALIBRATION_BINS) - 1
    gaps = torch.zeros(_CALIBRATION_BINS, dtype=torch.float64, device=outputs.device)
    gaps.index_add_(0, bins, confidence - right)
    return (gaps.abs().sum() / len(targets)).item()


def macro_f1(outputs: Tensor, targets: Tensor) -> float:
    """F1 of each class that occurs among targets or predictions, averaged with equal weight."""
    predicted = predicted_classes(outputs)
    classes = max(2, outputs.shape[1])
    counts = torch.zeros(classes, classes, dtype=torch.float64, device=outputs.device)
    counts.index_put_((targets, predicted), torch.ones_like(targets, dtype=torch.float64), accumulate=True)
    hits, occurrences = counts.diagonal(), counts.sum(0) + counts.sum(1)
    return (2 * hits / occurrences)[occurrences > 0].mean().item()


def wrong_labels(outputs: Tensor, targets: Tensor) -> float:
    """Share of all labels whose presence is told wrongly."""
    return ((outputs > 0) != (targets > 0.5)).double().mean().item()


def negative_log_likelihood_of_labels(outputs: Tensor, targets: Tensor) -> float:
    """Mean −log p of each label's presence or absence, in nats."""
    return F.binary_cross_entropy_with_logits(outputs.double(), targets.double()).item()


def macro_f1_of_labels(outputs: Tensor, targets: Tensor) -> float:
    """F1 of each label that occurs among targets or predictions, averaged with equal weight; 0 where none does."""
    predicted, present = (outputs > 0).double(), (targets > 0.5).double()
    hits, occurrences = (predicted * present).sum(0), predicted.sum(0) + present.sum(0)
    scores = (2 * hits / occurrences)[occurrences > 0]
    return scores.mean().item() if len(scores) else 0.0


def mean_squared_error(outputs: Tensor, targets: Tensor) -> float:
    """Mean (f − y)² over all outputs."""
    return (outputs.double() - targets.double()).square().mean().item()


def mean_absolute_error(outputs: Tensor, targets: Tensor) -> float:
    """Mean |f − y| over all outputs."""
    return (outputs.double() - targets.double()).abs().mean().item()


def r_squared(outputs: Tensor, targets: Tensor) -> float:
    """Share of the targets' variance that is explained, averaged over outputs; 0 where a target does not vary."""
    outputs, targets = (tensor.double().reshape(len(tensor), -1) for tensor in (outputs, targets))
    residual = (outputs - targets).square().sum(0)
    total = (targets - targets.mean(0)).square().sum(0)
    return torch.where(total > 0, 1 - residual / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0).mean().item()


def _by_name(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


CLASSIFICATION_METRICS = _by_name(
    Metric("error_rate", error_rate),
    Metric("nll", negative_log_likelihood),
    Metric("ece", expected_calibration_error),
    Metric("macro_f1", macro_f1, lower_is_better=False),
)
REGRESSION_METRICS = _by_name(
    Metric("mse", mean_squared_error),
    Metric("mae", mean_absolute_error),
    Metric("r2", r_squared, lower_is_better=False),
)


MULTILABEL_METRICS = _by_name(
    Metric("error_rate", wrong_labels),
    Metric("nll", negative_log_likelihood_of_labels),
    Metric("macro_f1", macro_f1_of_labels, lower_is_better=False),
)
_METRICS = {
    "classification": CLASSIFICATION_METRICS,
    "regression": REGRESSION_METRICS,
    "multilabel": MULTILABEL_METRICS,
}


def metrics_for(kind: str) -> dict[str, Metric]:
    """The metrics of a kind of task; the first is the one it is judged by unless told otherwise."""
    return _METRICS[kind]


def chosen_metric(metric: str | Metric | Measure | None, kind: str) -> Metric:
    """The metric of that name, the default of the kind, or a user's own function of outputs and targets."""
    known = metrics_for(kind)
    if metric is None:
        return next(iter(known.values()))
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        if metric not in known:
            raise InputError(f"metric must be one of {', '.join(known)} for {kind} but got {metric!r}")
        return known[metric]
    if callable(metric):
        return Metric(getattr(metric, "__name__", "metric"), metric)
    raise InputError(f"metric must be a name or a function of outputs and targets but got {metric!r}")
