"""The standard losses of torch under the same contract: what a learned loss is measured against."""

from typing import Any

import sympy
import torch.nn.functional as F
from torch import Tensor

from evomal.checks import finite_number
from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL
from evomal.losses.contract import Loss, compute_dtype, to_compute_dtype
from evomal.losses.target_losses import PROBABILITY_SYMBOL


class CrossEntropyLoss(Loss):
    """−log p, by torch's own kernels; binary cross-entropy for one logit and for multilabel."""

    kinds = ("classification", "multilabel")

    def fused(self, logits: Tensor, target: Tensor) -> Tensor | None:
        dtype = compute_dtype(logits)
        weight = None if self.weight is None else self.weight.to(dtype)
        return F.cross_entropy(
            logits.to(dtype), target, weight=weight, ignore_index=self.ignore_index, reduction=self.reduction
        )

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        return F.cross_entropy(logits.to(compute_dtype(logits)), target, weight=weight, reduction="none")

    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        return F.cross_entropy(*to_compute_dtype(logits, target), weight=weight, reduction="none")

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(*to_compute_dtype(logits, target), reduction="none")

    def sympy(self) -> Any:
        return -sympy.log(PROBABILITY_SYMBOL)


class RegressionLoss(Loss):
    """A function of the difference between output and target."""

    kinds = ("regression",)

    def __init__(self, **contract: Any) -> None:
        super().__init__(**{"kind": "regression", **contract})

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        raise AssertionError("kinds admits regression only")

    of_probabilities = of_classes

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        raise AssertionError("kinds admits regression only")


class SquaredErrorLoss(RegressionLoss):
    """(f − y)²."""

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output, target, reduction="none")

    def sympy(self) -> Any:
        return (PREDICTION_SYMBOL - TARGET_SYMBOL) ** 2


class AbsoluteErrorLoss(RegressionLoss):
    """|f − y|."""

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(output, target, reduction="none")

    def sympy(self) -> Any:
        return sympy.Abs(PREDICTION_SYMBOL - TARGET_SYMBOL)


class HuberLoss(RegressionLoss):
    """Squared error near the target and absolute error from a distance of delta on (Huber, 1964)."""

    option_names = ("delta",)

    def __init__(self, delta: float = 1.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.delta = finite_number("delta", delta, above=0)

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(output, target, reduction="none", delta=self.delta)

    def sympy(self) -> Any:
        error, delta = sympy.Abs(PREDICTION_SYMBOL - TARGET_SYMBOL), sympy.Float(self.delta)
        return sympy.Piecewise((error**2 / 2, error <= delta), (delta * (error - delta / 2), True))
