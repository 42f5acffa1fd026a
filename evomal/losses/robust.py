"""Classification losses made for wrong labels, and poly-1: what a learned loss is measured against."""

import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from evomal.checks import finite_number
from evomal.losses.classification_base import DistributionLoss, TargetLoss

_LARGEST_SUM = -1e-30  # stands for the sum of log p over the classes where that is 0: a single class is possible


class GeneralizedCrossEntropyLoss(TargetLoss):
    """Generalised cross-entropy (1 − p^q)/q (Zhang and Sabuncu, 2018).

    It tends to cross-entropy as q tends to 0. With q = 1 it is 1 − p, half of the absolute error, which is robust to
    wrong labels but learns slowly.

    Args:
        q: The exponent; more than 0 and at most 1.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(GeneralizedCrossEntropyLoss(q=1.0)(torch.zeros(1, 2), torch.tensor([0])))  # 1 - p
        0.5
    """

    name, definition = "gce", "(1 - p^q)/q"
    purpose = "generalised cross-entropy, robust to wrong labels"
    option_names = ("q",)
    code = "return -{xp}.expm1({q} * logsigmoid(d)) / {q}"

    def __init__(self, q: float = 0.7, **contract: Any) -> None:
        super().__init__(**contract)
        self.q = finite_number("q", q, above=0, at_most=1)

    def of_log_odds(self, log_odds: Tensor, classes: int) -> Tensor:
        return -(self.q * F.logsigmoid(log_odds)).expm1() / self.q

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        o = options or self
        return y * (1 - p**o.q) / o.q


class SymmetricCrossEntropyLoss(TargetLoss):
    """Symmetric cross-entropy −α·log p − β·A·(1 − p) (Wang et al., 2019).

    The second term is reverse cross-entropy: cross-entropy with prediction and target swapped, in which the number A
    stands for the logarithm of 0. The defaults are the paper's for CIFAR-10; it has α = 6 and β = 0.1 for CIFAR-100.

    Args:
        alpha: The factor of cross-entropy; at least 0.
        beta: The factor of reverse cross-entropy; at least 0.
        log_zero: The number A; less than 0.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(SymmetricCrossEntropyLoss(alpha=0.0)(torch.zeros(1, 2), torch.tensor([0])))  # 4 (1 - p)
        2.0
    """

    name, definition = "sce", "-a log p - b A (1-p)"
    purpose = "symmetric cross-entropy, robust to wrong labels"
    option_names = ("alpha", "beta", "log_zero")
    code = "return -{alpha} * logsigmoid(d) - {beta} * {log_zero} * {xp}.exp(logsigmoid(-d))"

    def __init__(self, alpha: float = 0.1, beta: float = 1.0, log_zero: float = -4.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.alpha, self.beta, self.log_zero = _checked_factors(alpha, beta, log_zero)

    def of_log_odds(self, log_odds: Tensor, classes: int) -> Tensor:
        return -self.alpha * F.logsigmoid(log_odds) - self.beta * self.log_zero * (-log_odds).sigmoid()

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        o = options or self
        return -y * (o.alpha * xp.log(p) + o.beta * o.log_zero * (1 - p))


class NormalizedCrossEntropyLoss(DistributionLoss):
    """Normalised plus reverse cross-entropy, α·log p / Σ_i log p_i − β·A·(1 − p) (Ma et al., 2020: NCE+RCE).

    The first term divides cross-entropy by its sum over all classes as the target, which makes it robust to wrong
    labels; the second one, in which A stands for the logarithm of 0, makes up for its slow learning. The defaults are
    the paper's for CIFAR-10; with many classes it has a larger α and a smaller β (10 and 0.1 for CIFAR-100).

    Args:
        alpha: The factor of normalised cross-entropy; at least 0.
        beta: The factor of reverse cross-entropy; at least 0.
        log_zero: The number A; less than 0.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(NormalizedCrossEntropyLoss(beta=0.0)(torch.zeros(1, 4), torch.tensor([0])))  # one of four classes
        0.25
    """

    name, definition = "nce-rce", "a log p / sum_i log p_i - b A (1-p)"
    purpose = "normalised plus reverse cross-entropy, robust to wrong labels"
    option_names = ("alpha", "beta", "log_zero")
    code = (
        "masked = log_p == -math.inf\n"
        "possible = {xp}.where(masked, 0, log_p)\n"
        f"total = possible.sum(-1)[..., None].clip(max={_LARGEST_SUM})\n"
        "normalised = {xp}.where(masked, 1, possible / total)\n"
        "return {alpha} * normalised + {beta} * {log_zero} * {xp}.expm1(log_p)"
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, log_zero: float = math.log(1e-4), **contract: Any
    ) -> None:
        super().__init__(**contract)
        self.alpha, self.beta, self.log_zero = _checked_factors(alpha, beta, log_zero)

    def of_targets(self, log_p: Tensor, of_all: Tensor) -> Tensor:
        # A class with a logit of −∞ is masked out: it has no part in the sum, and as the target it costs the limit 1.
        total = of_all.masked_fill(of_all == -math.inf, 0).sum(1, keepdim=True).clamp(max=_LARGEST_SUM)
        masked = log_p == -math.inf
        normalised = (log_p.masked_fill(masked, 0) / total).masked_fill(masked, 1)
        return self.alpha * normalised + self.beta * self.log_zero * log_p.expm1()

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        return None  # what one output costs depends on the others

    def sympy(self) -> Any:
        """Returns the loss as a SymPy expression in the target's probability p and the sum S of all log p_i."""
        import sympy

        from evomal.expression.symbolic import PROBABILITY_SYMBOL, exact_number

        alpha, beta, log_zero = map(exact_number, (self.alpha, self.beta, self.log_zero))
        normalised = sympy.log(PROBABILITY_SYMBOL) / sympy.Symbol("S", negative=True)
        return alpha * normalised - beta * log_zero * (1 - PROBABILITY_SYMBOL)

    def _symbols(self) -> str:
        return "p: probability of the target, p_i: of the class i, S: sum of log p_i"


class PolyLoss(TargetLoss):
    """Poly-1, −log p + ε·(1 − p) (Leng et al., 2022): the first term of cross-entropy's expansion in 1 − p changed.

    Args:
        epsilon: What is added to the coefficient of 1 − p; at least −1. With 0 it is cross-entropy.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(PolyLoss(epsilon=2.0)(torch.zeros(1, 2), torch.tensor([0])))  # log 2 + 1
        1.6931471824645996
    """

    name, definition, purpose = "poly-1", "-log p + e (1-p)", "cross-entropy with a changed first-order term"
    option_names = ("epsilon",)
    code = "return -logsigmoid(d) + {epsilon} * {xp}.exp(logsigmoid(-d))"

    def __init__(self, epsilon: float = 1.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.epsilon = finite_number("epsilon", epsilon, at_least=-1)

    def of_log_odds(self, log_odds: Tensor, classes: int) -> Tensor:
        return -F.logsigmoid(log_odds) + self.epsilon * (-log_odds).sigmoid()

    def cost(self, xp: Any, p: Any, y: Any, classes: Any, options: Any = None) -> Any:
        o = options or self
        return y * (-xp.log(p) + o.epsilon * (1 - p))


def _checked_factors(alpha: float, beta: float, log_zero: float) -> tuple[float, float, float]:
    """The factors of a loss with reverse cross-entropy, and its logarithm of 0."""
    return (
        finite_number("alpha", alpha, at_least=0),
        finite_number("beta", beta, at_least=0),
        finite_number("log_zero", log_zero, below=0),
    )
