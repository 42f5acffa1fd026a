"""Losses that are small networks, as ML³ learns them: what the meta-gradient needs of them, by plain torch."""

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from evomal.engine.forest.programs import Link, dense_targets, mean_scale
from evomal.losses.neural import layers_of, network_value


class NetworkLosses:
    """P networks of two hidden layers over the outputs `[P, B, K]` or `[B, K]`; weights are `[P, N]`, layer by layer.

    Every network costs what `NeuralLoss` of the same kind does, reduced by `mean`.
    """

    def __init__(self, *, kind: str, outputs: int, hidden: int) -> None:
        self._kind, self._outputs, self._hidden = kind, outputs, hidden
        self._link = Link.of(kind, outputs)

    def gradients(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """`[P]` losses, and `[P, B, K]` their gradients by the outputs."""
        dense = self._dense(targets, outputs)
        found = vmap(grad_and_value(lambda own, row: self._loss(own, dense, row)))
        gradients, losses = found(self._own(outputs, weights), weights)
        return losses, gradients

    def mixed_gradients(self, outputs: Tensor, targets: Tensor, tangents: Tensor, weights: Tensor) -> Tensor:
        """`[P, N]`: the gradient by the weights of Σ tangents · ∂loss/∂outputs."""
        dense = self._dense(targets, outputs)
        along = grad(lambda row, own, tangent: self._slope(own, dense, row, tangent))
        result: Tensor = vmap(along)(weights, self._own(outputs, weights), tangents)
        return result

    def curvatures(self, outputs: Tensor, targets: Tensor, tangents: Tensor, weights: Tensor) -> Tensor:
        """`[P, B, K]`: the second derivatives of each loss by the outputs, times the tangents."""
        dense = self._dense(targets, outputs)
        along = grad(lambda own, row, tangent: self._slope(own, dense, row, tangent))
        result: Tensor = vmap(along)(self._own(outputs, weights), weights, tangents)
        return result

    def _loss(self, outputs: Tensor, dense: Tensor, row: Tensor) -> Tensor:
        values = network_value(layers_of(row, self._hidden), self._link.predictions(outputs), dense)
        return values.sum() * mean_scale(self._kind, outputs)

    def _slope(self, outputs: Tensor, dense: Tensor, row: Tensor, tangent: Tensor) -> Tensor:
        gradient: Tensor = grad(self._loss)(outputs, dense, row)
        return torch.sum(gradient * tangent)

    def _dense(self, targets: Tensor, outputs: Tensor) -> Tensor:
        return dense_targets(targets, self._link, self._outputs, outputs.dtype)

    def _own(self, outputs: Tensor, weights: Tensor) -> Tensor:
        return outputs.expand(len(weights), *outputs.shape[-2:])
