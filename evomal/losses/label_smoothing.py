"""Label smoothing regularisation (Szegedy et al., 2016), the dense loss that sparse label smoothing stands in for."""

from typing import Any

import sympy
import torch.nn.functional as F
from torch import Tensor

from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL
from evomal.losses.contract import Loss, compute_dtype, to_compute_dtype
from evomal.losses.options import checked
from evomal.losses.row_blocks import by_blocks
from evomal.losses.target_losses import CLASSES_SYMBOL


class LabelSmoothingLoss(Loss):
    """−Σ_i (y_i(1 − ξ) + ξ/C)·log p_i, equal to `torch.nn.CrossEntropyLoss(label_smoothing=ξ)` in less memory."""

    kinds = ("classification", "multilabel")
    option_names = ("smoothing",)

    def __init__(self, smoothing: float = 0.1, **contract: Any) -> None:
        super().__init__(**contract)
        self.smoothing = checked("smoothing", smoothing, at_least=0, below=1)

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        def of_rows(rows: Tensor, indices: Tensor) -> Tensor:
            costs = -rows.to(compute_dtype(rows)).log_softmax(1)
            if weight is not None:
                costs = costs * weight
            of_target = costs.gather(1, indices.unsqueeze(1)).squeeze(1)
            if self.smoothing == 0:  # not even an excluded class, of infinite cost, takes part
                return of_target
            return (1 - self.smoothing) * of_target + self.smoothing * costs.mean(1)

        return by_blocks(of_rows, logits, target)

    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        def of_rows(rows: Tensor, shares: Tensor) -> Tensor:
            rows, shares = to_compute_dtype(rows, shares)
            smoothed = shares * (1 - self.smoothing) + self.smoothing / rows.shape[1]
            costs = -rows.log_softmax(1) * smoothed
            return costs.sum(1) if weight is None else costs @ weight

        return by_blocks(of_rows, logits, target)

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        def of_rows(rows: Tensor, shares: Tensor) -> Tensor:
            rows, shares = to_compute_dtype(rows, shares)
            smoothed = shares * (1 - self.smoothing) + self.smoothing / 2
            return F.binary_cross_entropy_with_logits(rows, smoothed, reduction="none")

        return by_blocks(of_rows, logits.reshape(-1, 1), target.reshape(-1, 1)).reshape(logits.shape)

    def sympy(self) -> Any:
        """The loss of one output as a SymPy expression in y, f and the number of classes C."""
        smoothing = sympy.Float(self.smoothing)
        return -(TARGET_SYMBOL * (1 - smoothing) + smoothing / CLASSES_SYMBOL) * sympy.log(PREDICTION_SYMBOL)
