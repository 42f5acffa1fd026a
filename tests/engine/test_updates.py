"""Stacked optimizers: the kernels beside operations of torch, and clipping beside torch's own."""

import torch
from torch.nn.utils import clip_grad_norm_

from evomal.engine.updates import clip_members
from tests.processes import check_in_interpreter

INTERPRETED = """
import torch
from evomal.engine.updates import StackedAdam, StackedSGD

PLAIN = {"weight_decay": 0.1, "momentum": 0.5, "nesterov": True, "betas": (0.8, 0.9), "eps": 1e-3}
for kind, decoupled in ((StackedSGD, False), (StackedAdam, False), (StackedAdam, True)):
    stacks = [torch.linspace(-1, 1, 42).view(3, 7, 2).requires_grad_() for _ in range(2)]
    reference, fused = (kind([stack], {**PLAIN, "decoupled_weight_decay": decoupled}) for stack in stacks)
    for optimizer in (reference, fused):
        optimizer.rates.copy_(torch.tensor([0.1, 0.2, 0.3]))
        optimizer.multiply_decay([1.0, 0.0, 5.0])
    fused._is_fused = True
    for step in range(3):
        for stack, optimizer in zip(stacks, (reference, fused)):
            stack.grad = torch.linspace(2, -1, 42).view(3, 7, 2) * (step + 1)
            optimizer.step()
    torch.testing.assert_close(stacks[1], stacks[0])
    assert not torch.equal(stacks[0].detach(), torch.linspace(-1, 1, 42).view(3, 7, 2))
"""


def test_the_kernels_in_the_interpreter_with_options_of_their_own():
    check_in_interpreter(INTERPRETED)


def test_the_gradient_of_each_member_is_clipped_by_its_own_norm():
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(3, *shape, generator=generator) for shape in ((4, 2), (2,), ())]
    gradients = [
        gradient * torch.tensor([0.01, 1.0, 100.0]).view(-1, *[1] * (gradient.dim() - 1)) for gradient in gradients
    ]
    expected = []
    for member in range(3):
        parameters = [torch.nn.Parameter(gradient[member].clone()) for gradient in gradients]
        for parameter in parameters:
            parameter.grad = parameter.detach().clone()
        clip_grad_norm_(parameters, 1.0)
        expected.append([parameter.grad for parameter in parameters])
    clip_members(gradients, 1.0)
    for member, wanted in enumerate(expected):
        torch.testing.assert_close([gradient[member] for gradient in gradients], wanted)
