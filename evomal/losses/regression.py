"""Regression losses under the contract of this package: what a learned loss is measured against."""

import math
import re
from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.checks import finite_number
from evomal.expression import Expression
from evomal.losses.loss import HandMadeLoss, WeightedTree


class RegressionLoss(HandMadeLoss):
    """A function of the difference between output and target."""

    kinds = ("regression",)
    applies_to = "outputs"

    def __init__(self, **contract: Any) -> None:
        super().__init__(**{"kind": "regression", **contract})

    @abstractmethod
    def _form(self, sympy: Any, error: Any) -> Any:
        """The loss as a SymPy expression in f − y."""

    def sympy(self) -> Any:
        """Returns the loss as a SymPy expression in f and y."""
        import sympy

        from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL

        return self._form(sympy, PREDICTION_SYMBOL - TARGET_SYMBOL)

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        raise AssertionError("kinds admits regression only")

    of_bits = of_probabilities = of_classes


class SquaredErrorLoss(RegressionLoss):
    """The squared error (f − y)².

    Args:
        contract: The arguments of `Loss`.

    Example:
        >>> import torch
        >>> float(SquaredErrorLoss()(torch.tensor([3.0]), torch.tensor([1.0])))
        4.0
    """

    name, definition, purpose = "mse", "(f-y)^2", "squared error, the standard for regression"
    code = "return (f - y) ** 2"

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output, target, reduction="none")

    def _form(self, sympy: Any, error: Any) -> Any:
        return error**2

    def tree(self) -> WeightedTree:
        return WeightedTree(Expression.parse("square(sub(f, y))"), None)


class AbsoluteErrorLoss(RegressionLoss):
    """The absolute error |f − y|.

    Args:
        contract: The arguments of `Loss`.

    Example:
        >>> import torch
        >>> float(AbsoluteErrorLoss()(torch.tensor([3.0]), torch.tensor([1.0])))
        2.0
    """

    name, definition, purpose = "mae", "|f-y|", "absolute error, robust to outliers"
    code = "return {xp}.abs(f - y)"

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(output, target, reduction="none")

    def _form(self, sympy: Any, error: Any) -> Any:
        return abs(error)

    def tree(self) -> WeightedTree:
        return WeightedTree(Expression.parse("abs(sub(f, y))"), None)


class HuberLoss(RegressionLoss):
    """Squared error near the target and absolute error from a distance of delta on (Huber, 1964).

    Args:
        delta: Where the loss changes from one to the other; more than 0.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(HuberLoss(delta=1.0)(torch.tensor([3.0]), torch.tensor([1.0])))
        1.5
    """

    name, definition = "huber", "(f-y)^2/2 near y, then d (|f-y| - d/2)"
    purpose = "squared near the target, robust far from it"
    option_names = ("delta",)
    code = (
        "error = {xp}.abs(f - y)\n"
        "return {xp}.where(error <= {delta}, error**2 / 2, {delta} * (error - {delta} / 2))"
    )  # fmt: skip

    def __init__(self, delta: float = 1.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.delta = finite_number("delta", delta, above=0)

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(output, target, reduction="none", delta=self.delta)

    def _form(self, sympy: Any, error: Any) -> Any:
        size, delta = abs(error), sympy.Float(self.delta)
        return sympy.Piecewise((size**2 / 2, size <= delta), (delta * (size - delta / 2), True))


class LogCoshLoss(RegressionLoss):
    """log cosh(f − y): half the squared error near the target, the absolute error far from it (Green, 1990).

    Args:
        contract: The arguments of `Loss`.

    Example:
        >>> import torch
        >>> round(float(LogCoshLoss()(torch.tensor([3.0]), torch.tensor([1.0]))), 4)
        1.325
    """

    name, definition, purpose = "log-cosh", "log cosh(f-y)", "a smooth Huber loss"
    code = "error = f - y\nreturn {xp}.logaddexp(error, -error) - math.log(2)"

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        error = output - target
        return torch.logaddexp(error, -error) - math.log(2)

    def _form(self, sympy: Any, error: Any) -> Any:
        return sympy.log(sympy.cosh(error))

    def tree(self) -> WeightedTree:
        # log cosh e = |e| − log(1 + tanh |e|), which does not overflow.
        return _tree("sub(abs(E), log(add(1, tanh(abs(E)))))", error=1.0)


class _ScaledLoss(RegressionLoss):
    """A loss c²·ρ((f − y)/c) that is half the squared error near the target."""

    option_names = ("c",)

    def __init__(self, c: float = 1.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.c = finite_number("c", c, above=0)


class CauchyLoss(_ScaledLoss):
    """c²/2·log(1 + ((f − y)/c)²), which grows with the logarithm of the error (Holland and Welsch, 1977).

    Also called Lorentzian (Black and Anandan, 1996).

    Args:
        c: The error at which the gradient is largest; more than 0. 2.385 suits errors of standard deviation 1.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(CauchyLoss(c=1.0)(torch.tensor([2.0]), torch.tensor([1.0])))  # log(2) / 2
        0.3465735912322998
    """

    name, definition = "cauchy", "c^2/2 log(1 + ((f-y)/c)^2)"
    purpose = "the farther off the target, the smaller the gradient"
    code = "return {c} ** 2 / 2 * {xp}.log1p(((f - y) / {c}) ** 2)"

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return self.c**2 / 2 * ((output - target) / self.c).square().log1p()

    def _form(self, sympy: Any, error: Any) -> Any:
        c = sympy.Float(self.c)
        return c**2 / 2 * sympy.log(1 + (error / c) ** 2)

    def tree(self) -> WeightedTree:
        return _tree("mul(K, log(add(1, square(E))))", error=1 / self.c, scale=self.c**2 / 2)


class WelschLoss(_ScaledLoss):
    """c²/2·(1 − exp(−((f − y)/c)²)), which is at most c²/2 (Dennis and Welsch, 1978).

    Args:
        c: The scale: beyond 0.7 c the gradient falls, and beyond 3 c it is almost zero; more than 0. 2.985 suits errors
            of standard deviation 1.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(WelschLoss(c=1.0)(torch.tensor([9.0]), torch.tensor([1.0])))
        0.5
    """

    name, definition = "welsch", "c^2/2 (1 - exp(-((f-y)/c)^2))"
    purpose = "ignores what is far off the target, smoothly"
    code = "return -({c} ** 2) / 2 * {xp}.expm1(-(((f - y) / {c}) ** 2))"

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return -(self.c**2) / 2 * (-((output - target) / self.c).square()).expm1()

    def _form(self, sympy: Any, error: Any) -> Any:
        c = sympy.Float(self.c)
        return c**2 / 2 * (1 - sympy.exp(-((error / c) ** 2)))

    def tree(self) -> WeightedTree:
        # 1 − exp(−2v) = 2t/(1 + t) with t = tanh v, and 1 + t = sqrt(1 + b²) with b² = t² + 2t.
        half = "tanh(square(E))"
        text = f"mul(K, aq({half}, sqrt(add(square({half}), add({half}, {half})))))"
        return _tree(text, error=math.sqrt(0.5) / self.c, scale=self.c**2)


class TukeyLoss(_ScaledLoss):
    """Tukey's biweight c²/6·(1 − (1 − ((f − y)/c)²)³), and c²/6 beyond c (Beaton and Tukey, 1974).

    Args:
        c: The error beyond which a sample has no gradient; more than 0. 4.685 suits errors of standard deviation 1.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(TukeyLoss(c=3.0)(torch.tensor([9.0]), torch.tensor([1.0])))  # c² / 6
        1.5
    """

    name, definition = "tukey", "c^2/6 (1 - (1 - ((f-y)/c)^2)^3) near y, then c^2/6"
    purpose = "ignores what is more than c off the target"
    code = (
        "inside = 1 - ((f - y) / {c}) ** 2\n"
        "inside = {xp}.where(inside > 0, inside, 0)\n"
        "return {c} ** 2 / 6 * (1 - inside**3)"
    )

    def __init__(self, c: float = 4.685, **contract: Any) -> None:
        super().__init__(c, **contract)

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        inside = (1 - ((output - target) / self.c).square()).clamp(min=0)
        return self.c**2 / 6 * (1 - inside**3)

    def _form(self, sympy: Any, error: Any) -> Any:
        c = sympy.Float(self.c)
        return sympy.Piecewise((c**2 / 6 * (1 - (1 - (error / c) ** 2) ** 3), abs(error) <= c), (c**2 / 6, True))

    def tree(self) -> WeightedTree:
        inside = "max(sub(1, square(E)), O)"
        text = f"sub(K, mul(K, mul({inside}, square({inside}))))"
        return _tree(text, error=1 / self.c, scale=self.c**2 / 6)


class QuantileLoss(RegressionLoss):
    """max(τ·(y − f), (τ − 1)·(y − f)), whose minimum is the τ-quantile of y (Koenker and Bassett, 1978).

    Also called pinball loss. With τ = 1/2 it is half the absolute error, and its minimum the median.

    Args:
        quantile: The quantile τ; more than 0 and less than 1.
        contract: The arguments of `Loss`.

    Raises:
        InputError: An argument breaks its rule.

    Example:
        >>> import torch
        >>> float(QuantileLoss(quantile=0.75)(torch.tensor([1.0]), torch.tensor([3.0])))
        1.5
    """

    name, definition = "quantile", "max(t (y-f), (t-1) (y-f))"
    purpose = "for a quantile of the target instead of its mean"
    option_names = ("quantile",)
    code = "return {xp}.maximum({quantile} * (y - f), ({quantile} - 1) * (y - f))"

    def __init__(self, quantile: float = 0.5, **contract: Any) -> None:
        super().__init__(**contract)
        self.quantile = finite_number("quantile", quantile, above=0, below=1)

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        short = target - output
        return torch.maximum(self.quantile * short, (self.quantile - 1) * short)

    def _form(self, sympy: Any, error: Any) -> Any:
        quantile = sympy.Float(self.quantile)
        return sympy.Max(-quantile * error, (1 - quantile) * error)

    def tree(self) -> WeightedTree:
        weights = [self.quantile, 1.0, 1.0, self.quantile - 1, 1.0, 1.0]
        return WeightedTree(Expression.parse("max(sub(y, f), sub(y, f))"), weights)


def _tree(text: str, *, error: float, scale: float = 1.0) -> WeightedTree:
    """The tree of a text in which E stands for `error` · (f − y), K for the number `scale` and O for 0."""
    tokens = re.findall(r"\w+", text)
    shorthand = {"E": (error, 1.0, 1.0), "K": (scale,), "O": (0.0,)}
    weights = [weight for token in tokens[1:] for weight in shorthand.get(token, (1.0,))]
    written = text.replace("E", "sub(f, y)").replace("K", "1").replace("O", "1")
    return WeightedTree(Expression.parse(written), weights)
