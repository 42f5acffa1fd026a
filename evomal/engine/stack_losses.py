"""The losses of a stack of models: expressions by the kernels of a forest, other losses by autograd."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from evomal.engine.row_losses import RowLoss
from evomal.engine.rows import Rows
from evomal.expression.operators import PROGRESS
from evomal.forest import FILLER, Forest
from evomal.losses import ExpressionLoss
from evomal.losses.loss import WeightedTree

AnyTrialLoss = nn.Module | WeightedTree


class StackLosses:
    """The losses of a stack, one per place: expressions by the kernels of a forest, others by autograd."""

    def __init__(self, forest: Forest, *, dtype: torch.dtype) -> None:
        self._forest, self._modules = forest, ModuleLosses(forest.programs.device)
        self._weights = torch.ones(forest.count, forest.width, dtype=dtype, device=forest.programs.device)
        self._has_trees = True
        self._moving: list[ExpressionLoss] = []
        self.is_moving = False
        """Whether any of the losses depends on the progress of the training."""

    def load(self, losses: Sequence[AnyTrialLoss | None]) -> None:
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
    """The losses of a stack that are modules, by autograd; places that share one of evomal's own are one batch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._batches: list[tuple[RowLoss, Tensor]] = []
        """Each module with its places, several if they are one batch."""

    def load(self, losses: Sequence[AnyTrialLoss | None]) -> None:
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
