"""Hand-made classification losses: cross-entropy, label smoothing, focal loss, and those of EvoMAL's appendix A."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.checks import finite_number
from evomal.errors import InputError
from evomal.losses.classification_base import ClassificationLoss, FusedTargetLoss
from evomal.losses.contract import compute_dtype, is_eager, to_compute_dtype
from evomal.losses.fused import Coefficients, by_blocks, is_smoothed_fast_in_torch, log_of
from evomal.losses.loss import SourceCode


class CrossEntropyLoss(ClassificationLoss):
    """Cross-entropy −log p by torch's own kernels; binary cross-entropy for one logit and for multilabel tasks.

    Args:
        contract: The arguments of `Loss`.

    Example:
        >>> import torch
        >>> float(CrossEntropyLoss()(torch.zeros(1, 2), torch.tensor([0])))
        0.6931471824645996
    """

    name, definition, purpose = "ce", "-log p", "cross-entropy, the standard for classification"
    applies_to, code = "log_odds", "return -logsigmoid(d)"

    def fused(self, logits: Tensor, target: Tensor) -> Tensor | None:
        return self.by_torch(logits, target)

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        return F.cross_entropy(logits.to(compute_dtype(logits)), target, weight=weight, reduction="none")

    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        logits, target = to_compute_dtype(logits, target)
        if torch.compiler.is_exporting():  # torch's exporter to ONNX takes every target for class indices
            shares = target if weight is None else target * weight
            return -(logits.log_softmax(1) * shares).sum(1)
        return F.cross_entropy(logits, target, weight=weight, reduction="none")

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(*to_compute_dtype(logits, target), reduction="none")

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        return -y * xp.log(p)


class AbsoluteCrossEntropyLoss(FusedTargetLoss):
    """φ0·|log(φ1·p)|, learned by EvoMAL; with φ0 = φ1 = 1 it is cross-entropy.

    With 1 < φ1 < 2 it pushes p back down once φ1·p exceeds 1, as label smoothing does.

    Args:
        phi0: Scales the loss, like a learning rate; more than 0.
        phi1: More than 0.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(AbsoluteCrossEntropyLoss(phi1=2.0)(torch.zeros(1, 2), torch.tensor([0])))  # p = 1/2
        0.0
    """

    name, definition = "absolute-ce", "phi0 |log(phi1 p)|"
    purpose = "learned by EvoMAL; restrains confidence for 1 < phi1 < 2"
    option_names = ("phi0", "phi1")
    code = "return {phi0} * {xp}.abs(math.log({phi1}) + logsigmoid(d))"

    def __init__(self, phi0: float = 1.0, phi1: float = 1.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.phi0 = finite_number("phi0", phi0, above=0)
        self.phi1 = finite_number("phi1", phi1, above=0)

    def coefficients(self, classes: Any) -> Coefficients:
        return Coefficients(scale=self.phi0, shift=math.log(self.phi1))

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        o = options or self
        return y * o.phi0 * xp.abs(xp.log(o.phi1 * p))


class FocalLoss(FusedTargetLoss):
    """Focal loss −(1 − p)^γ · log p (Lin et al., 2017); with γ = 0 it is cross-entropy.

    Args:
        gamma: The exponent γ; at least 0.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(FocalLoss(gamma=1.0)(torch.zeros(1, 2), torch.tensor([0])))  # half of log 2
        0.3465735912322998
    """

    name, definition, purpose = "focal", "-(1-p)^g log p", "gives less weight to what is already right"
    option_names = ("gamma",)
    code = "return -{xp}.exp({gamma} * logsigmoid(-d)) * logsigmoid(d)"

    def __init__(self, gamma: float = 2.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.gamma = finite_number("gamma", gamma, at_least=0)

    def coefficients(self, classes: Any) -> Coefficients:
        return Coefficients(focus=self.gamma)

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        o = options or self
        return -y * (1 - p) ** o.gamma * xp.log(p)


class SparseLabelSmoothingLoss(FusedTargetLoss):
    """−[(1 − ξ + ξ/C)·log p + (ξ(C − 1)/C)·log((1 − p)/(C − 1))], with its minimum at p = 1 − ξ + ξ/C.

    Both terms are subtracted; the public code of the paper adds the second.

    Args:
        smoothing: The strength ξ; at least 0 and less than 1.
        simplified: Whether to use the form of the paper's footnote, −[log p + ξ·log(1 − p)], which does not depend
            on the number of classes.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(SparseLabelSmoothingLoss(smoothing=0.1)(torch.zeros(1, 2), torch.tensor([0])))
        0.6931471824645996
    """

    name, definition = "sparse-label-smoothing", "-[(1-s+s/C) log p + s(C-1)/C log((1-p)/(C-1))]"
    purpose = "label smoothing computed from the target alone"
    option_names = ("smoothing", "simplified")

    def __init__(self, smoothing: float = 0.1, *, simplified: bool = False, **contract: Any) -> None:
        super().__init__(**contract)
        self.smoothing = finite_number("smoothing", smoothing, at_least=0, below=1)
        if not isinstance(simplified, bool):
            raise InputError(f"simplified must be true or false but got {simplified!r}")
        self.simplified = simplified

    def coefficients(self, classes: Any) -> Coefficients:
        if self.simplified:
            return Coefficients(opposite=self.smoothing)
        share = 1 - self.smoothing + self.smoothing / classes
        opposite = 1 - share if self.smoothing else 0.0
        return Coefficients(scale=share, opposite=opposite, offset=log_of(classes - 1))

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        if not y:
            return 0 * p
        o = options or self
        if o.simplified:
            return -(xp.log(p) + o.smoothing * xp.log(1 - p))
        share = 1 - o.smoothing + o.smoothing / classes
        return -(share * xp.log(p) + o.smoothing * (classes - 1) / classes * xp.log((1 - p) / (classes - 1)))

    def source(self, xp: str) -> SourceCode:
        s = self.smoothing
        if self.simplified:
            return SourceCode("log_odds", [f"return -(logsigmoid(d) + {s} * logsigmoid(-d))"])
        value = "-(share * logsigmoid(d) + (1 - share) * (logsigmoid(-d) - math.log(classes - 1)))"
        return SourceCode("log_odds", [f"share = 1 - {s} + {s} / classes", f"return {value}"])


class FocalSparseLabelSmoothingLoss(FusedTargetLoss):
    """−[(1 − p)^γ (1 − ξ + ξ/C)·log p + p^γ (ξ(C − 1)/C)·log((1 − p)/(C − 1))].

    Args:
        gamma: The exponent γ of focal loss; at least 0.
        smoothing: The strength ξ of label smoothing; at least 0 and less than 1.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(FocalSparseLabelSmoothingLoss(gamma=1.0)(torch.zeros(1, 2), torch.tensor([0])))
        0.3465735912322998
    """

    name = "focal-sparse-label-smoothing"
    definition = "-[(1-p)^g (1-s+s/C) log p + p^g s(C-1)/C log((1-p)/(C-1))]"
    purpose = "focal loss that restrains confidence"
    option_names = ("gamma", "smoothing")
    code = (
        "share = 1 - {smoothing} + {smoothing} / classes\n"
        "right = {xp}.exp({gamma} * logsigmoid(-d)) * logsigmoid(d)\n"
        "wrong = {xp}.exp({gamma} * logsigmoid(d)) * (logsigmoid(-d) - math.log(classes - 1))\n"
        "return -(share * right + (1 - share) * wrong)"
    )

    def __init__(self, gamma: float = 2.0, smoothing: float = 0.1, **contract: Any) -> None:
        super().__init__(**contract)
        self.gamma = finite_number("gamma", gamma, at_least=0)
        self.smoothing = finite_number("smoothing", smoothing, at_least=0, below=1)

    def coefficients(self, classes: Any) -> Coefficients:
        share = 1 - self.smoothing + self.smoothing / classes
        opposite = 1 - share if self.smoothing else 0.0
        return Coefficients(scale=share, focus=self.gamma, opposite=opposite, offset=log_of(classes - 1))

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        if not y:
            return 0 * p
        o = options or self
        smoothed = p**o.gamma * o.smoothing * (classes - 1) / classes * xp.log((1 - p) / (classes - 1))
        return -((1 - p) ** o.gamma * (1 - o.smoothing + o.smoothing / classes) * xp.log(p) + smoothed)


class LabelSmoothingLoss(ClassificationLoss):
    """−Σ_i (y_i(1 − ξ) + ξ/C)·log p_i, equal to `torch.nn.CrossEntropyLoss(label_smoothing=ξ)`.

    Many logits (2¹⁹ on a CPU, 2²⁴ on CUDA) take less memory than there.

    Args:
        smoothing: The strength ξ; at least 0 and less than 1.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(LabelSmoothingLoss(smoothing=0.1)(torch.zeros(1, 2), torch.tensor([0])))
        0.6931471824645996
    """

    name, definition = "label-smoothing", "-sum_i (y_i (1-s) + s/C) log p_i"
    purpose = "restrains confidence, over all classes"
    option_names = ("smoothing",)
    applies_to, code = "log_probabilities", "return -(y * (1 - {smoothing}) + {smoothing} / classes) * log_p"

    def __init__(self, smoothing: float = 0.1, **contract: Any) -> None:
        super().__init__(**contract)
        self.smoothing = finite_number("smoothing", smoothing, at_least=0, below=1)

    def fused(self, logits: Tensor, target: Tensor) -> Tensor | None:
        if is_eager(logits) and is_smoothed_fast_in_torch(logits):
            return self.by_torch(logits, target, self.smoothing)
        return None

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        def of_rows(rows: Tensor, indices: Tensor) -> Tensor:
            rows = rows.to(compute_dtype(rows))
            if is_eager(rows):  # one call is faster than six, but ONNX does not have it
                return F.cross_entropy(rows, indices, weight=weight, reduction="none", label_smoothing=self.smoothing)
            gains = rows.log_softmax(1)
            if weight is not None:
                gains = gains * weight
            of_target = -gains.gather(1, indices.unsqueeze(1)).squeeze(1)
            if self.smoothing == 0:  # then an excluded class, whose cost is infinite, must not contribute
                return of_target
            return (1 - self.smoothing) * of_target - self.smoothing * gains.mean(1)

        def gradient(rows: Tensor, indices: Tensor) -> Tensor:
            found = rows.to(compute_dtype(rows)).softmax(1)
            hard = found.new_full((1, 1), self.smoothing - 1).expand(len(rows), 1)
            return found.sub_(self.smoothing / rows.shape[1]).scatter_add_(1, indices.unsqueeze(1), hard)

        return by_blocks(of_rows, logits, target, gradient if weight is None else None)

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

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        o = options or self
        return -(y * (1 - o.smoothing) + o.smoothing / classes) * xp.log(p)

    def sympy(self) -> Any:
        """Returns the loss of one output as a SymPy expression in y, f and the number of classes C."""
        from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL

        return self._sympy(PREDICTION_SYMBOL, TARGET_SYMBOL)
