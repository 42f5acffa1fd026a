"""Hand-made classification losses (EvoMAL, appendix A), label smoothing and focal loss."""

import math
from typing import Any

import sympy
import torch.nn.functional as F
from torch import Tensor

from evomal.checks import finite_number
from evomal.errors import InputError
from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL
from evomal.losses.coefficients import Coefficients
from evomal.losses.contract import Loss, compute_dtype, to_compute_dtype
from evomal.losses.elementwise import by_blocks
from evomal.losses.target_losses import CLASSES_SYMBOL, PROBABILITY_SYMBOL, TargetLoss


class AbsoluteCrossEntropyLoss(TargetLoss):
    """Cross-entropy at φ1 = 1; with 1 < φ1 < 2 it pushes p back down once φ1·p exceeds 1, as label smoothing does.

    φ0 scales the loss, like a learning rate.
    """

    option_names = ("phi0", "phi1")

    def __init__(self, phi0: float = 1.0, phi1: float = 1.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.phi0 = finite_number("phi0", phi0, above=0)
        self.phi1 = finite_number("phi1", phi1, above=0)

    def coefficients(self, classes: int) -> Coefficients:
        return Coefficients(scale=self.phi0, shift=math.log(self.phi1))

    def sympy(self) -> Any:
        return sympy.Float(self.phi0) * sympy.Abs(sympy.log(sympy.Float(self.phi1) * PROBABILITY_SYMBOL))


class FocalLoss(TargetLoss):
    """−(1 − p)^γ · log p; γ = 0 is cross-entropy."""

    option_names = ("gamma",)

    def __init__(self, gamma: float = 2.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.gamma = finite_number("gamma", gamma, at_least=0)

    def coefficients(self, classes: int) -> Coefficients:
        return Coefficients(focus=self.gamma)

    def sympy(self) -> Any:
        return -((1 - PROBABILITY_SYMBOL) ** sympy.nsimplify(self.gamma)) * sympy.log(PROBABILITY_SYMBOL)


class SparseLabelSmoothingLoss(TargetLoss):
    """−[(1 − ξ + ξ/C)·log p + (ξ(C − 1)/C)·log((1 − p)/(C − 1))], least at p = 1 − ξ + ξ/C.

    Both terms are subtracted; the public code adds the second. `simplified` takes the form of the paper's footnote,
    −[log p + ξ·log(1 − p)], which does not depend on C.
    """

    option_names = ("smoothing", "simplified")

    def __init__(self, smoothing: float = 0.1, *, simplified: bool = False, **contract: Any) -> None:
        super().__init__(**contract)
        self.smoothing = finite_number("smoothing", smoothing, at_least=0, below=1)
        if not isinstance(simplified, bool):
            raise InputError(f"simplified must be true or false but got {simplified!r}")
        self.simplified = simplified

    def coefficients(self, classes: int) -> Coefficients:
        if self.simplified:
            return Coefficients(opposite=self.smoothing)
        share = 1 - self.smoothing + self.smoothing / classes
        return Coefficients(scale=share, opposite=1 - share, offset=math.log(classes - 1))

    def sympy(self) -> Any:
        p, c, smoothing = PROBABILITY_SYMBOL, CLASSES_SYMBOL, sympy.Float(self.smoothing)
        if self.simplified:
            return -(sympy.log(p) + smoothing * sympy.log(1 - p))
        target_term = (1 - smoothing + smoothing / c) * sympy.log(p)
        return -(target_term + smoothing * (c - 1) / c * sympy.log((1 - p) / (c - 1)))


class FocalSparseLabelSmoothingLoss(TargetLoss):
    """−[(1 − p)^γ (1 − ξ + ξ/C)·log p + p^γ (ξ(C − 1)/C)·log((1 − p)/(C − 1))]."""

    option_names = ("gamma", "smoothing")

    def __init__(self, gamma: float = 2.0, smoothing: float = 0.1, **contract: Any) -> None:
        super().__init__(**contract)
        self.gamma = finite_number("gamma", gamma, at_least=0)
        self.smoothing = finite_number("smoothing", smoothing, at_least=0, below=1)

    def coefficients(self, classes: int) -> Coefficients:
        share = 1 - self.smoothing + self.smoothing / classes
        return Coefficients(scale=share, focus=self.gamma, opposite=1 - share, offset=math.log(classes - 1))

    def sympy(self) -> Any:
        p, c = PROBABILITY_SYMBOL, CLASSES_SYMBOL
        gamma, smoothing = sympy.nsimplify(self.gamma), sympy.Float(self.smoothing)
        target_term = (1 - p) ** gamma * (1 - smoothing + smoothing / c) * sympy.log(p)
        return -(target_term + p**gamma * smoothing * (c - 1) / c * sympy.log((1 - p) / (c - 1)))


class LabelSmoothingLoss(Loss):
    """−Σ_i (y_i(1 − ξ) + ξ/C)·log p_i, equal to `torch.nn.CrossEntropyLoss(label_smoothing=ξ)` in less memory."""

    kinds = ("classification", "multilabel")
    option_names = ("smoothing",)

    def __init__(self, smoothing: float = 0.1, **contract: Any) -> None:
        super().__init__(**contract)
        self.smoothing = finite_number("smoothing", smoothing, at_least=0, below=1)

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
