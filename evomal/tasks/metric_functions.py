"""What the named metrics compute from a model's outputs and the targets of a whole split.

Classification takes logits of shape (samples, classes), one logit being binary, and class numbers of shape (samples,).
Regression and multilabel take outputs of the same shape as the targets, (samples, targets) or (samples, labels). Most
functions for classes also take labels, which they tell by the dimensions of the targets. Weights are how much each row
counts, as with `sample_weight` of scikit-learn; None: all rows count alike.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.errors import InputError

_CALIBRATION_BINS = 15


def measured(
    function: Callable[..., float], kind: str, outputs: Tensor, targets: Tensor, weights: Tensor | None = None
) -> float:
    """The value of a function of this module, after a check of the shapes that it relies on."""
    if kind != "classification":
        # Tensors of different shapes would be broadcast: (n, 1) beside (n,) to n × n numbers.
        if outputs.shape != targets.shape:
            raise InputError(
                f"outputs must have the targets' shape {tuple(targets.shape)} but have shape {tuple(outputs.shape)}"
            )
    elif outputs.dim() != 2 or targets.dim() != 1 or len(outputs) != len(targets):
        raise InputError(
            "a metric of classes needs outputs of shape (samples, classes) and targets of shape (samples,) "
            f"but got {tuple(outputs.shape)} and {tuple(targets.shape)}"
        )
    return function(outputs, targets, None if weights is None else weights.double())


def error_rate(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Share of samples whose most probable class is wrong, or of labels whose presence is predicted incorrectly."""
    if _are_labels(targets):
        return _mean(((outputs > 0) != (targets > 0.5)).double(), weights)
    return _mean((_predicted_classes(outputs) != targets).double(), weights)


def accuracy(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Share of samples whose most probable class is right, or of labels whose presence is predicted correctly."""
    return 1 - error_rate(outputs, targets, weights)


def balanced_error(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Share of each class's samples that are classified wrongly, averaged over the classes that have samples.

    Of labels: that of each label, present or absent, averaged over labels.
    """
    if _are_labels(targets):
        pairs = zip(outputs.unbind(1), targets.unbind(1), strict=True)
        errors = [balanced_error(output[:, None], (target > 0.5).long(), weights) for output, target in pairs]
        return sum(errors) / len(errors)
    counts = _confusion(outputs, targets, weights)
    samples = counts.sum(1)
    return 1 - (counts.diagonal() / samples)[samples > 0].mean().item()


def negative_log_likelihood(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Mean −log p of the target, or of each label's presence or absence, in nats."""
    reduction = "mean" if weights is None else "none"
    if _are_labels(targets) or outputs.shape[1] == 1:
        logits = outputs.double().reshape(targets.shape)
        costs = F.binary_cross_entropy_with_logits(logits, targets.double(), reduction=reduction)
    else:
        costs = F.cross_entropy(outputs.double(), targets, reduction=reduction)
    return _mean(costs, weights)


def brier_score(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Mean squared error of the probabilities: of labels, of class 1 for two classes, else summed over classes."""
    if _are_labels(targets):
        return _mean((outputs.double().sigmoid() - targets.double()).square(), weights)
    p = _class_probabilities(outputs)
    errors = (p - F.one_hot(targets, p.shape[1])).square()
    return _mean(errors[:, 1] if p.shape[1] == 2 else errors.sum(1), weights)


def expected_calibration_error(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Mean gap between confidence and accuracy over fifteen bins of confidence (Guo et al., 2017)."""
    confidence, predicted = _class_probabilities(outputs).max(1)
    right = (predicted == targets).double()
    # Bins are open below and closed above, so that a confidence of exactly 1 falls into the last one.
    bins = (confidence * _CALIBRATION_BINS).ceil().long().clamp(1, _CALIBRATION_BINS) - 1
    gaps = torch.zeros(_CALIBRATION_BINS, dtype=torch.float64, device=outputs.device)
    gaps.index_add_(0, bins, confidence - right if weights is None else (confidence - right) * weights)
    return (gaps.abs().sum() / (len(targets) if weights is None else weights.sum())).item()


def macro_f1(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """F1 of each class or label that occurs among targets or predictions, averaged; 0 where none does."""
    hits, predicted, present = _hits(outputs, targets, weights)
    return _mean_of_occurring(2 * hits, predicted + present)


def mean_iou(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Intersection over union of each class or label that occurs among targets or predictions, averaged."""
    hits, predicted, present = _hits(outputs, targets, weights)
    return _mean_of_occurring(hits, predicted + present - hits)


def f1_score(outputs: Tensor, targets: Tensor, weights: Tensor | None = None, *, label: int) -> float:
    """F1 of one class or label; 0 where it occurs neither among targets nor among predictions."""
    hits, predicted, present = _hits_of(label, outputs, targets, weights)
    return _share(2 * hits, predicted + present)


def precision(outputs: Tensor, targets: Tensor, weights: Tensor | None = None, *, label: int) -> float:
    """Share of the samples predicted to be of a class, or to have a label, that are; 0 where none is predicted."""
    hits, predicted, _ = _hits_of(label, outputs, targets, weights)
    return _share(hits, predicted)


def recall(outputs: Tensor, targets: Tensor, weights: Tensor | None = None, *, label: int) -> float:
    """Share of the samples of a class, or with a label, that are predicted to be; 0 where there are none."""
    hits, _, present = _hits_of(label, outputs, targets, weights)
    return _share(hits, present)


def auroc(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Area under the ROC curve: of class 1 for two classes, else the mean over classes or labels."""
    return _macro(_area_under_roc, *_scores_and_members(outputs, targets), weights, "auroc")


def average_precision(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Area under the curve of precision against recall, as a sum of steps; over classes as for auroc."""
    return _macro(_average_precision, *_scores_and_members(outputs, targets), weights, "average_precision")


def mean_squared_error(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Mean (f − y)² over all outputs."""
    return _mean((outputs.double() - targets.double()).square(), weights)


def mean_absolute_error(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Mean |f − y| over all outputs."""
    return _mean((outputs.double() - targets.double()).abs(), weights)


def r_squared(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Share of the targets' variance that is explained, averaged over outputs; 0 where a target does not vary."""
    outputs, targets = (tensor.double().reshape(len(tensor), -1) for tensor in (outputs, targets))
    if weights is None:
        residual = (outputs - targets).square().sum(0)
        total = (targets - targets.mean(0)).square().sum(0)
    else:
        each = weights[:, None]
        residual = (each * (outputs - targets).square()).sum(0)
        total = (each * (targets - (each * targets).sum(0) / each.sum()).square()).sum(0)
    return torch.where(total > 0, 1 - residual / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0).mean().item()


def pinball(outputs: Tensor, targets: Tensor, weights: Tensor | None = None, *, quantile: float) -> float:
    """Mean of q·(y − f) where the output is too low, (1 − q)·(f − y) where it is too high: least for the q-quantile."""
    missing = targets.double() - outputs.double()
    return _mean(torch.maximum(quantile * missing, (quantile - 1) * missing), weights)


def _mean(values: Tensor, weights: Tensor | None) -> float:
    """The mean over rows and columns; with weights, the weighted mean over rows."""
    if weights is None:
        return values.mean().item()
    rows = values.reshape(len(weights), -1).mean(1)
    return ((rows * weights).sum() / weights.sum()).item()


def _are_labels(targets: Tensor) -> bool:
    return targets.dim() == 2


def _predicted_classes(outputs: Tensor) -> Tensor:
    """The most probable class of each sample; one logit is binary, class 1 above 0."""
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def _class_probabilities(outputs: Tensor) -> Tensor:
    """(samples, classes) probabilities, of two classes where there is one logit."""
    if outputs.shape[1] == 1:
        positive = outputs.double().sigmoid()
        return torch.cat((1 - positive, positive), dim=1)
    return outputs.double().softmax(1)


def _confusion(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """How often each class (row) was predicted as each class (column)."""
    classes = max(2, outputs.shape[1])
    counts = torch.zeros(classes, classes, dtype=torch.float64, device=outputs.device)
    ones = torch.ones_like(targets, dtype=torch.float64) if weights is None else weights
    return counts.index_put_((targets, _predicted_classes(outputs)), ones, accumulate=True)


def _hits(outputs: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """For each class or label: how often it was predicted correctly, predicted, and present."""
    if _are_labels(targets):
        predicted, present = (outputs > 0).double(), (targets > 0.5).double()
        each = torch.ones_like(predicted[:, :1]) if weights is None else weights[:, None]
        return (each * predicted * present).sum(0), (each * predicted).sum(0), (each * present).sum(0)
    counts = _confusion(outputs, targets, weights)
    return counts.diagonal(), counts.sum(0), counts.sum(1)


def _hits_of(
    label: int, outputs: Tensor, targets: Tensor, weights: Tensor | None
) -> tuple[float, float, float]:  # fmt: skip
    hits, predicted, present = _hits(outputs, targets, weights)
    if label >= len(hits):
        raise InputError(f"label must be less than the number of classes or labels, {len(hits)}, but got {label}")
    return hits[label].item(), predicted[label].item(), present[label].item()


def _mean_of_occurring(part: Tensor, whole: Tensor) -> float:
    shares = (part / whole)[whole > 0]
    return shares.mean().item() if len(shares) else 0.0


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _scores_and_members(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and membership, a column for each label or class; class 1 alone where there are two."""
    scores = outputs.double()
    if _are_labels(targets):
        return scores, targets > 0.5
    if scores.shape[1] <= 2:
        # A difference of logits orders samples as the probability does, and never saturates.
        return (scores if scores.shape[1] == 1 else scores[:, 1:] - scores[:, :1]), (targets == 1)[:, None]
    return scores.log_softmax(1), F.one_hot(targets, scores.shape[1]).bool()


def _macro(
    measure: Callable[[Tensor, Tensor, Tensor | None], float], scores: Tensor, is_member: Tensor,
    weights: Tensor | None, name: str,
) -> float:  # fmt: skip
    """The mean over columns that hold both members and others; for the rest, the measure is not defined."""
    columns = [
        measure(score, member, weights)
        for score, member in zip(scores.unbind(1), is_member.unbind(1), strict=True)
        if bool(member.any()) and not bool(member.all())
    ]
    if not columns:
        raise InputError(f"{name} needs targets of at least two classes but all {len(scores)} are of one")
    return sum(columns) / len(columns)


def _area_under_roc(scores: Tensor, is_member: Tensor, weights: Tensor | None) -> float:
    """Share of pairs of a member and another sample in which the member's score is higher, ties counting half."""
    if weights is not None:
        members, others = (_sums_by_score(scores, weights * chosen) for chosen in (is_member, ~is_member))
        return float((members * (others.cumsum(0) - others / 2)).sum() / (members.sum() * others.sum()))
    _, places, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0).double() - (counts - 1).double() / 2)[places]
    members = is_member.sum().double()
    pairs = members * (len(scores) - members)
    return float((ranks[is_member].sum() - members * (members + 1) / 2) / pairs)


def _average_precision(scores: Tensor, is_member: Tensor, weights: Tensor | None) -> float:
    """Precision at each threshold, weighted by the recall that it adds."""
    if weights is not None:
        found, all_of_them = (_sums_by_score(scores, own).flip(0) for own in (weights * is_member, weights))
        return float((found.cumsum(0) / all_of_them.cumsum(0) * found).sum() / found.sum())
    _, places, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    members = torch.zeros_like(counts).index_add_(0, places, is_member.to(counts.dtype))
    counts, members = counts.flip(0), members.flip(0)
    precision = members.cumsum(0).double() / counts.cumsum(0).double()
    return float((precision * members).sum() / members.sum())


def _sums_by_score(scores: Tensor, weights: Tensor) -> Tensor:
    """The sum of the weights for each score, from the lowest to the highest."""
    different, places = torch.unique(scores, return_inverse=True)
    return torch.zeros_like(different).index_add_(0, places, weights)
