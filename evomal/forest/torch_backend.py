"""A forest by plain torch operations, tree by tree: the reference for the compiled backends."""

from collections.abc import Iterator

import torch
from torch import Tensor

from evomal.expression.operators import CONSTANTS, EXTRA_TERMINALS, OPERATORS, PREDICTION, TARGET, TOKENS, arity
from evomal.forest.codes import Link
from evomal.forest.programs import Programs
from evomal.forest.programs import softplus as softplus_of
from evomal.forest.terminals import Values, terminal_values


def gradients(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link, *, softplus: bool
) -> tuple[Tensor, Tensor]:
    """Losses [P, B] of the samples, summed over the outputs, and the gradient [P, B, K] of their sum."""
    variable = outputs.detach().expand(programs.count, *targets.shape[-2:]).clone().requires_grad_()
    with torch.enable_grad():
        losses = torch.stack(list(_losses(programs, weights.detach(), variable, targets, link, softplus)))
    return losses.detach(), _gradient(losses.sum(), variable)


def mixed(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, tangents: Tensor, link: Link, *,
    softplus: bool,
) -> Tensor:  # fmt: skip
    """[P, N]: the gradient by the weights of Σ tangents · ∂(sum of the losses)/∂outputs."""
    variable = outputs.detach().expand(programs.count, *targets.shape[-2:]).clone().requires_grad_()
    factors = weights.detach().clone().requires_grad_()
    with torch.enable_grad():
        losses = torch.stack(list(_losses(programs, factors, variable, targets, link, softplus)))
        gradient = _gradient(losses.sum(), variable, create_graph=True)
        return _gradient((tangents.detach() * gradient).sum(), factors)


def curvatures(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, tangents: Tensor, link: Link, *,
    softplus: bool,
) -> Tensor:  # fmt: skip
    """[P, B, K]: the gradient by the outputs of Σ tangents · ∂(sum of the losses)/∂outputs."""
    variable = outputs.detach().expand(programs.count, *targets.shape[-2:]).clone().requires_grad_()
    with torch.enable_grad():
        losses = torch.stack(list(_losses(programs, weights.detach(), variable, targets, link, softplus)))
        gradient = _gradient(losses.sum(), variable, create_graph=True)
        return _gradient((tangents.detach() * gradient).sum(), variable)


def descended(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link, *,
    softplus: bool, steps: int, lr: float, scale: float,
) -> Tensor:  # fmt: skip
    """[P, B, K]: the outputs after `steps` steps of Adam on scale · the sum of the losses."""
    variable = outputs.detach().expand(programs.count, *targets.shape[-2:]).clone().requires_grad_()
    optimizer = torch.optim.Adam([variable], lr=lr)
    for _ in range(steps):
        _, gradient = gradients(programs, weights, variable, targets, link, softplus=softplus)
        variable.grad = scale * gradient
        optimizer.step()
    return variable.detach()


def _losses(
    programs: Programs, weights: Tensor, outputs: Tensor, targets: Tensor, link: Link, softplus: bool
) -> Iterator[Tensor]:
    """Each tree's losses of the samples."""
    groups = targets.detach() if targets.dim() == 3 else targets.detach().unsqueeze(0)
    for place, (nodes, size, factors, own) in enumerate(
        zip(programs.nodes.tolist(), programs.sizes.tolist(), weights, outputs, strict=True)
    ):
        target = groups[place * len(groups) // programs.count]
        tokens = {TOKENS[code] for code, *_ in nodes[:size]}
        values = terminal_values(
            own, link, [token for token in EXTRA_TERMINALS if token in tokens],
            priors=programs.priors, progress=programs.progress,
        )  # fmt: skip
        value = _root(nodes[:size], factors.unbind(), values, target)
        yield (softplus_of(value) if softplus else value).sum(1)


def _root(nodes: list[list[int]], weights: tuple[Tensor, ...], terminals: Values, target: Tensor) -> Tensor:
    """The root's value; every other node's is multiplied by its weight."""
    values: dict[int, Tensor] = {}
    for position in range(len(nodes) - 1, -1, -1):
        code, *arguments = nodes[position]
        token = TOKENS[code]
        if token in OPERATORS:
            given = (values.pop(argument) for argument in arguments[: arity(token)])
            value: Tensor = OPERATORS[token].value(torch, *given)
        elif token in CONSTANTS:
            value = torch.full_like(terminals[PREDICTION], CONSTANTS[token])
        else:
            value = target if token == TARGET else terminals[token]
        values[position] = value * weights[position] if position else value
    return values[0]


def _gradient(total: Tensor, variable: Tensor, *, create_graph: bool = False) -> Tensor:
    """∂total/∂variable, zero where the total does not depend on it."""
    if not total.requires_grad:
        return torch.zeros_like(variable)
    (gradient,) = torch.autograd.grad(total, variable, create_graph=create_graph, materialize_grads=True)
    return gradient
