"""Losses that are modules, evomal's own or a user's, as losses of a batch of rows."""

import copy
import dataclasses
from typing import TypeVar

import torch
from torch import Tensor, nn

from evomal.engine.rows import Rows
from evomal.errors import InputError
from evomal.losses import Loss
from evomal.tasks.labels import IGNORED

Module = TypeVar("Module", bound=nn.Module)


class RowLoss:
    """A loss module as a function of outputs `[rows, K]` and their rows.

    evomal's own losses are computed row by row, and their mean is weighted by the rows' weights. Any other module is
    called as torch's losses are: with outputs `(N, C, d1, …)`, and with its `ignore_index`, or -100, as the target of
    rows that do not count. Where rows have other weights than 0 and 1, it must be able to do without its mean.

    A batch in which no row counts has the loss 0 and no gradient, whatever the loss: a mean over nothing would be NaN.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.of_each_row = _without_mean(module)
        """One of evomal's own losses without its reduction, if that is the mean over rows, else None."""
        self._of_each_element = self.of_each_row or _without_any_mean(module)

    def __call__(self, outputs: Tensor, rows: Rows) -> Tensor:
        value: Tensor
        if rows.weights is None and (isinstance(self.module, Loss) or not rows.positions):
            value = self.module(outputs, rows.targets)
        elif self.of_each_row is not None or not rows.is_masked_only:
            targets, weights = rows.targets.unsqueeze(0), rows.weights
            weights = None if weights is None else weights.unsqueeze(0)
            batch = dataclasses.replace(rows, targets=targets, weights=weights)
            value = self.weighted_means(outputs.unsqueeze(0), batch)[0]
        else:
            ignored = getattr(self.module, "ignore_index", IGNORED)
            if rows.weights is None:
                return self._value(outputs, rows, ignored)
            # If nothing counts, the loss is that of ordinary outputs, none of them ignored, and is then replaced by 0:
            # a gradient of NaN would stay one.
            is_counted = (rows.weights > 0).any()
            counted = dataclasses.replace(rows, weights=torch.where(is_counted, rows.weights, 1))
            value = self._value(torch.where(is_counted, outputs, 0), counted, ignored)
            value = torch.where(is_counted, value, 0)
        return value

    def _value(self, outputs: Tensor, rows: Rows, ignored: int) -> Tensor:
        """Returns what the module gives for outputs and targets as torch's losses take them."""
        value: Tensor = self.module(*_as_in_torch(outputs, rows, ignored=ignored))
        return value

    def weighted_means(self, outputs: Tensor, rows: Rows) -> Tensor:
        """Returns Σ w·l / Σ w for each of the batches `[S, rows, K]`, whose rows are `[S, rows]`."""
        twin, weights, targets = self._of_each_element, rows.weights, rows.targets
        assert weights is not None
        if twin is None:
            raise InputError(
                f"the loss {type(self.module).__name__} must have reduction='mean', and with reduction='none' return a "
                "loss for each row, as the task has sample weights or class weights"
            )
        # Rows that do not count have ordinary outputs, as their derivatives may be infinite.
        outputs = torch.where(weights.unsqueeze(-1) > 0, outputs, 0)
        costs = twin(outputs.flatten(0, 1), targets.flatten(0, 1))
        if costs.numel() < weights.numel():
            raise InputError(
                f"the loss {type(self.module).__name__} with reduction='none' must return a loss for each of "
                f"{weights[0].numel()} rows but returned shape {tuple(costs.shape)}"
            )
        costs = costs.view(*weights.shape, -1).mean(-1)
        shares = weights
        if not targets.is_floating_point():  # as in torch, by the weights of the targets that are not ignored
            own, ignored = getattr(twin, "weight", None), getattr(twin, "ignore_index", IGNORED)
            shares = weights * (targets != ignored) * (own[targets] if isinstance(own, Tensor) else 1)
        means: Tensor = (costs * weights).sum(1) / shares.sum(1).clamp(min=torch.finfo(weights.dtype).tiny)
        return means


def _as_in_torch(outputs: Tensor, rows: Rows, *, ignored: int) -> tuple[Tensor, Tensor]:
    """Returns outputs and targets as torch's losses take them: `(N, C, d1, …)`, and a class number for ignored rows."""
    targets, shape = rows.targets, (-1, *rows.positions)
    if targets.is_floating_point():  # values have no weights that are 0 and 1 only
        return outputs.view(shape), targets.view(shape)
    if rows.weights is not None:
        targets = torch.where(rows.weights > 0, targets, ignored)
    return outputs.view(*shape, outputs.shape[-1]).movedim(-1, 1), targets.view(shape)


def _without_mean(module: nn.Module) -> Loss | None:
    """Returns one of evomal's losses without its reduction, if that is the mean over the rows of a batch, else None."""
    if not isinstance(module, Loss) or module.reduction != "mean":
        return None
    if module.kind != "regression" and module.ignore_index >= 0:
        return None  # a mean divides by the number of samples that are not ignored
    if module.kind == "multilabel" and module.weight is not None:
        return None
    return _unreduced(module)


def _without_any_mean(module: nn.Module) -> nn.Module | None:
    """Returns a module of a user's own without its reduction, if it says that it is the mean."""
    return _unreduced(module) if getattr(module, "reduction", None) == "mean" else None


def _unreduced(module: Module) -> Module:
    twin = copy.copy(module)
    twin.reduction = "none"  # type: ignore[assignment]
    return twin
