"""Learned losses: a function of prediction and target, applied to every output alone (EvoMAL, section 3.3)."""

from abc import abstractmethod

import torch
from torch import Tensor

from evomal.losses.contract import Loss, compute_dtype, to_compute_dtype


class ElementwiseLoss(Loss):
    """A loss M(f, y) of one output f and its target y, summed over the classes of a sample.

    For classification f = softmax(logits) and y is one-hot or the class probabilities; with one logit, and for each
    label of a multilabel problem, f = sigmoid(logit) and y is 0 or 1. Regression takes output and target as they are.
    """

    @abstractmethod
    def value(self, prediction: Tensor, target: Tensor) -> Tensor:
        """M(f, y) elementwise, for tensors of one shape."""

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        prediction = logits.to(compute_dtype(logits)).softmax(1)
        one_hot = torch.zeros_like(prediction).scatter(1, target.unsqueeze(1), 1)
        losses = self.value(prediction, one_hot).sum(1)
        return losses if weight is None else losses * weight[target]

    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        logits, target = to_compute_dtype(logits, target)
        losses = self.value(logits.softmax(1), target).sum(1)
        return losses if weight is None else losses * (target @ weight)

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        logits, target = to_compute_dtype(logits, target)
        return self.value(logits.sigmoid(), target)

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return self.value(output, target)
