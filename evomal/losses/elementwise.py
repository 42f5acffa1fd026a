"""Learned losses: a function of prediction and target, applied to every output alone (EvoMAL, section 3.3)."""

from abc import abstractmethod

import torch
from torch import Tensor

from evomal.losses.contract import Loss, compute_dtype, to_compute_dtype


class ElementwiseLoss(Loss):
    """A loss M(f, y) of one output f and its target y, summed over the classes of a sample.

    For classification f = softmax(logits) and y is one-hot; with one logit, and for each label of a multilabel problem,
    f = sigmoid(logit) and y is 0 or 1. Regression takes output and target as they are.

    Probabilities as targets are never put in for y, where the formula need not have its minimum at f = y. The loss is
    the expectation over the classes instead, linear in the target as cross-entropy is.
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
        shares = target if weight is None else target * weight
        # Σ_c share_c · (M(f_c, 1) + Σ_{j≠c} M(f_j, 0)), with the terms of each output collected.
        return self._expected(logits.softmax(1), shares, shares.sum(1, keepdim=True) - shares).sum(1)

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        is_soft = target.is_floating_point()
        logits, target = to_compute_dtype(logits, target)
        prediction = logits.sigmoid()
        return self._expected(prediction, target, 1 - target) if is_soft else self.value(prediction, target)

    def _expected(self, prediction: Tensor, ones: Tensor, zeros: Tensor) -> Tensor:
        """ones · M(f, 1) + zeros · M(f, 0): equal bit by bit to M(f, y) where the shares are 0 and 1."""
        as_one = self.value(prediction, torch.ones_like(prediction))
        as_zero = self.value(prediction, torch.zeros_like(prediction))
        return ones * as_one + zeros * as_zero

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return self.value(output, target)
