"""Every loss that tests of conformance are run with: the catalogue, and each kind of learned loss.

A loss of the catalogue is here by being listed there. A new class of learned losses must be added to `_LEARNED`, which
a test notices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from evomal.losses import CATALOGUE, ExpressionLoss, Loss, NeuralLoss, TaylorLoss, starting_layers
from evomal.losses.priors import PriorLoss

CLASSES = 4
PRIORS = (0.1, 0.2, 0.3, 0.4)
_LAYERS = starting_layers(generator=torch.Generator().manual_seed(0))

_LEARNED: dict[str, tuple[Callable[..., Loss], Sequence[str]]] = {
    "expression": (lambda kind: ExpressionLoss("abs(log(mul(y, f)))", [0.9, 1.1, 1.2, 0.8], kind=kind), ("all",)),
    "smooth expression": (lambda kind: ExpressionLoss("square(sub(y, f))", kind=kind, activation="softplus"), ("all",)),
    "extended expression": (lambda kind: ExpressionLoss("mul(y, sub(margin, logp))", kind=kind), ("classification",)),
    "expression with t": (lambda kind: ExpressionLoss("mul(y, add(t, log(f)))", kind=kind), ("all",)),
    "expression with priors": (
        lambda kind: ExpressionLoss("mul(y, sub(prior, log(f)))", kind=kind, priors=PRIORS), ("classification",)
    ),
    "taylor": (lambda kind: TaylorLoss([0.1, -0.2, 0.3, 0.1, 0.2, -1.0, 0.3, 0.1], kind=kind), ("all",)),
    "neural": (lambda kind: NeuralLoss(_LAYERS, kind=kind), ("all",)),
}  # fmt: skip


def every_loss() -> dict[str, Loss]:
    """One loss of each name and kind of task."""
    found: dict[str, Loss] = {}
    for name, made in CATALOGUE.items():
        for kind in made.kinds:
            loss: Loss = made(kind=kind)
            if isinstance(loss, PriorLoss):
                loss = loss.with_priors(PRIORS)
            found[f"{name}, {kind}"] = loss
    for name, (make, kinds) in _LEARNED.items():
        for kind in ("classification", "multilabel", "regression") if "all" in kinds else kinds:
            found[f"{name}, {kind}"] = make(kind)
    return found


LOSSES = every_loss()


def batch(loss: Loss, samples: int = 6, classes: int = CLASSES, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Outputs and targets that the loss takes."""
    rng = torch.Generator().manual_seed(seed)
    if loss.kind == "regression":
        return torch.randn(samples, generator=rng), torch.randn(samples, generator=rng)
    output = torch.randn(samples, classes, generator=rng)
    if loss.kind == "multilabel":
        return output, torch.randint(2, (samples, classes), generator=rng).float()
    return output, torch.randint(classes, (samples,), generator=rng)


def value_and_gradient(function: Callable[..., Any], output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient by the output."""
    output = output.detach().clone().requires_grad_()
    value = function(output, target)
    (gradient,) = torch.autograd.grad(value, output)
    return value.detach(), gradient
