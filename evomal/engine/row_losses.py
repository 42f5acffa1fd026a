"""Losses as trials use them: on rows with weights, of one model or of a stack, expressions by a forest's kernels."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from evomal.engine.resolve import class_priors, copied, loss_for_task
from evomal.engine.rows import Rows
from evomal.engine.scores import TrialLoss
from evomal.errors import InputError
from evomal.expression.operators import PROGRESS
from evomal.forest import FILLER, Forest
from evomal.forest.programs import is_extended as has_extensions
from evomal.forest.terminals import uses_priors
from evomal.losses import ExpressionLoss, Loss
from evomal.losses.loss import WeightedTree
from evomal.tasks.labels import IGNORED
from evomal.tasks.task import Task
from evomal.text import plural

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
        is_mean = getattr(module, "reduction", None) == "mean"
        self._of_each_element = self.of_each_row or (_unreduced(module) if is_mean else None)

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
        # The outputs of rows without weight are replaced by 0, as their derivatives may be infinite.
        outputs = torch.where(weights.unsqueeze(-1) > 0, outputs, 0)
        costs = twin(outputs.flatten(0, 1), targets.flatten(0, 1))
        if costs.numel() < weights.numel():
            raise InputError(
                f"the loss {type(self.module).__name__} with reduction='none' must return a loss for each of "
                f"{plural(weights[0].numel(), 'row')} but returned shape {tuple(costs.shape)}"
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


def _unreduced(module: Module) -> Module:
    twin = copy.copy(module)
    twin.reduction = "none"  # type: ignore[assignment]
    return twin


class StackLosses:
    """The losses of a stack, one per place: expressions by the kernels of a forest, others by autograd."""

    def __init__(self, forest: Forest, *, dtype: torch.dtype) -> None:
        self._forest, self._modules = forest, ModuleLosses(forest.programs.device)
        self._weights = torch.ones(forest.count, forest.width, dtype=dtype, device=forest.programs.device)
        self._has_trees = True
        self._moving: list[ExpressionLoss] = []
        self.is_moving = False
        """Whether any of the losses depends on the progress of the training."""

    def load(self, losses: Sequence[TrialLoss | None]) -> None:
        """Load a loss into each place, None into unused ones. Expressions are copied to where the last ones were."""
        self._modules.load(losses)
        self._has_trees = any(isinstance(loss, WeightedTree) for loss in losses)
        trees = [loss if isinstance(loss, WeightedTree) else WeightedTree(FILLER, None) for loss in losses]
        self._forest.replace([tree.expression for tree in trees])
        packed = self._forest.programs.packed([tree.edge_weights for tree in trees], dtype=self._weights.dtype)
        self._weights.copy_(packed)
        self._moving = [loss for loss in losses if isinstance(loss, ExpressionLoss) and loss.is_moving]
        self.is_moving = bool(self._moving) or any(PROGRESS in tree.expression.tokens for tree in trees)

    def set_progress(self, progress: float) -> None:
        """Set the share of the training that is done, in the memory that a captured step reads."""
        self._forest.set_progress(progress)
        for loss in self._moving:
            loss.progress = progress

    def gradients(self, outputs: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Returns losses `[P]` and their gradients `[P, B, K]`, from outputs `[P, B, K]` and rows `[G, B]`."""
        targets = rows.targets
        if self._has_trees:
            dense = self._forest.dense_targets(targets.flatten(0, 1), outputs.dtype)
            found = self._forest.gradients(outputs, dense.view(*targets.shape[:2], -1), self._weights, rows.weights)
        else:
            found = outputs.new_zeros(len(outputs)), torch.zeros_like(outputs)
        self._modules.write_gradients(outputs, rows, *found)
        return found


class ModuleLosses:
    """The losses of a stack that are modules, by autograd; places that share one of evomal's losses are one batch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._batches: list[tuple[RowLoss, Tensor]] = []
        """Each module with its places, several if they are one batch."""

    def load(self, losses: Sequence[TrialLoss | None]) -> None:
        """Load the modules among these losses, one loss per place."""
        places: dict[int, tuple[nn.Module, list[int]]] = {}
        for place, loss in enumerate(losses):
            if isinstance(loss, nn.Module):
                places.setdefault(id(loss), (loss, []))[1].append(place)
        self._batches = []
        for module, own in places.values():
            row_loss = RowLoss(module)
            parts = [own] if row_loss.of_each_row is not None else [[place] for place in own]
            for part in parts:
                self._batches.append((row_loss, torch.tensor(part, device=self._device)))

    def write_gradients(self, outputs: Tensor, rows: Rows, losses: Tensor, gradients: Tensor) -> None:
        """Put the losses and gradients of the modules into their places."""
        per_group = len(outputs) // len(rows.targets)
        for loss, places in self._batches:
            own = dataclasses.replace(
                rows,
                targets=rows.targets.index_select(0, places // per_group),
                weights=None if rows.weights is None else rows.weights.index_select(0, places // per_group),
            )
            with torch.enable_grad():
                free = outputs.index_select(0, places).requires_grad_()
                if loss.of_each_row is not None and own.weights is not None:
                    values = loss.weighted_means(free, own)
                    (found,) = torch.autograd.grad(values.sum(), free)
                elif loss.of_each_row is not None:
                    twin, target = loss.of_each_row, own.targets
                    costs = twin(free.flatten(0, 1), target.flatten(0, 1)).view(len(places), -1)
                    # The gradient of the sum is each sample's own; the mean over a batch divides it afterwards.
                    (found,) = torch.autograd.grad(costs.sum(), free)
                    if twin.weight is None or target.is_floating_point():
                        values, found = costs.detach().mean(1), found / costs.shape[1]
                    else:  # as in torch, by the weights of the targets
                        weights = twin.weight[target].flatten(1).sum(1).to(found.dtype)
                        values, found = costs.detach().sum(1) / weights, found / weights[:, None, None]
                else:
                    first = None if own.weights is None else own.weights[0]
                    value = loss(free[0], dataclasses.replace(own, targets=own.targets[0], weights=first))
                    (found,) = torch.autograd.grad(value, free)
                    values = value.unsqueeze(0)
            losses.index_copy_(0, places, values.detach().to(losses.dtype))
            gradients.index_copy_(0, places, found)


def prepared_loss(
    loss: TrialLoss, task: Task, device: torch.device, activation: str, *, is_extended: bool = False
) -> TrialLoss:
    """Returns the loss for use on the task and the device: as a tree where it is one, else a copy.

    `is_extended`: whether the tree may use the extended space.
    """
    if isinstance(loss, WeightedTree):
        return loss
    module = loss_for_task(loss, task)
    tree = tree_of(module, activation, is_extended=is_extended)
    if tree is not None and uses_priors(tree.expression) and module.priors != tuple(class_priors(task).tolist()):
        tree = None  # the forest has the priors of the task
    return tree or copied(module).to(device)


def tree_of(loss: nn.Module, activation: str = "identity", *, is_extended: bool = False) -> WeightedTree | None:
    """Returns the loss as an expression with the same values, or None if it is not one, or has options of its own.

    `activation`: what a forest will apply to the expression; a loss with another one cannot be computed by it.
    `is_extended`: whether the forest takes other tokens than the paper's.
    """
    if not isinstance(loss, Loss) or loss.weight is not None or loss.reduction != "mean":
        return None
    if loss.ignore_index != -100 or loss.units is not None:  # an expression has neither
        return None
    found = loss.tree()
    if found is not None and not is_extended and has_extensions(found.expression):
        return None
    return found if found is not None and found.activation == activation else None


class _ForestLoss(torch.autograd.Function):
    """The loss, with the gradient that the forest's kernel computes along with it."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, rows: Rows, forest: Forest, weights: Tensor) -> Tensor:
        losses, gradients = forest.gradients(outputs, rows.targets, weights, rows.weights)
        ctx.save_for_backward(gradients[0])
        return losses[0]

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return above[0] * gradient, None, None, None


class LoadedLoss:
    """A trial's loss times its factor: a module, or an expression computed by the forest's kernels.

    Another expression and another factor can be loaded into the same memory, which a captured step reads.
    """

    def __init__(self, forest: Forest, *, dtype: torch.dtype) -> None:
        self._forest = forest
        self._module: RowLoss | None = None
        self.is_moving = False
        """Whether the loss depends on the progress of the training."""
        device = forest.programs.device
        self._weights = torch.ones(1, forest.width, dtype=dtype, device=device)
        self._factor = torch.ones((), dtype=dtype, device=device)

    def load(self, loss: TrialLoss, factor: float) -> None:
        """Replace loss and factor."""
        self._factor.fill_(factor)
        if isinstance(loss, WeightedTree):
            self._module, self.is_moving = None, PROGRESS in loss.expression.tokens
            self._forest.replace([loss.expression])
            self._weights.copy_(self._forest.programs.packed([loss.edge_weights], dtype=self._weights.dtype))
        else:
            self._module, self.is_moving = RowLoss(loss), isinstance(loss, ExpressionLoss) and loss.is_moving

    def set_progress(self, progress: float) -> None:
        """Set the share of the training that is done, in the memory that a captured step reads."""
        self._forest.set_progress(progress)
        if self._module is not None and isinstance(self._module.module, ExpressionLoss):
            self._module.module.progress = progress

    def __call__(self, outputs: Tensor, rows: Rows) -> Tensor:
        if self._module is not None:
            value = self._module(outputs, rows)
        else:
            value = _ForestLoss.apply(outputs, rows, self._forest, self._weights)  # type: ignore[no-untyped-call]
        return value * self._factor
