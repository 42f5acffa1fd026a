"""Regression losses under the contract of this package: what a learned loss is measured against."""

from abc import abstractmethod
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from evomal.checks import finite_number
from evomal.expression import Expression
from evomal.losses.loss import HandMadeLoss, Source, WeightedTree


class RegressionLoss(HandMadeLoss):
    """A function of the difference between output and target."""

    kinds = ("regression",)

    def __init__(self, **contract: Any) -> None:
        super().__init__(**{"kind": "regression", **contract})

    @abstractmethod
    def _form(self, error: Any) -> Any:
        """The loss as a SymPy expression in f − y."""

    def sympy(self) -> Any:
        """Returns the loss as a SymPy expression in f and y."""
        from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL

        return self._form(PREDICTION_SYMBOL - TARGET_SYMBOL)

    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        raise AssertionError("kinds admits regression only")

    of_probabilities = of_classes

    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        raise AssertionError("kinds admits regression only")


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

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output, target, reduction="none")

    def _form(self, error: Any) -> Any:
        return error**2

    def tree(self) -> WeightedTree:
        return WeightedTree(Expression.parse("square(sub(f, y))"), None)

    def source(self, xp: str) -> Source:
        return Source("outputs", ["return (f - y) ** 2"])


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

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(output, target, reduction="none")

    def _form(self, error: Any) -> Any:
        return abs(error)

    def source(self, xp: str) -> Source:
        return Source("outputs", [f"return {xp}.abs(f - y)"])


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

    def __init__(self, delta: float = 1.0, **contract: Any) -> None:
        super().__init__(**contract)
        self.delta = finite_number("delta", delta, above=0)

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(output, target, reduction="none", delta=self.delta)

    def _form(self, error: Any) -> Any:
        import sympy

        size, delta = abs(error), sympy.Float(self.delta)
        return sympy.Piecewise((size**2 / 2, size <= delta), (delta * (size - delta / 2), True))

    def source(self, xp: str) -> Source:
        d = self.delta
        quadratic, linear = "error**2 / 2", f"{d} * (error - {d} / 2)"
        return Source(
            "outputs", [f"error = {xp}.abs(f - y)", f"return {xp}.where(error <= {d}, {quadratic}, {linear})"]
        )
