"""Batches in one piece of memory: the same tensors come out, in memory of their own."""

import pickle

import pytest
import torch

from evomal.tasks.inputs import tensors
from evomal.tasks.parts import PackedPart, Part

TARGETS = torch.tensor([0, 1, 2])


@pytest.mark.parametrize(
    "part",
    [
        Part(torch.randn(3, 2, 5), TARGETS),
        Part((torch.arange(9).view(3, 3), torch.tensor([[True], [False], [True]])), TARGETS, torch.rand(3)),
        Part({"ids": torch.zeros(3, 0), "image": torch.ones(3, 2, dtype=torch.uint8)}, torch.randn(3, 1)),
        Part(torch.randn(4, 3).T, TARGETS),
    ],
    ids=["tensor", "tuple", "dictionary", "transposed"],
)
def test_a_batch_is_unpacked_as_it_was(part):
    packed = PackedPart.of(part)
    found = pickle.loads(pickle.dumps(packed)).copied(torch.device("cpu"))
    assert type(found.inputs) is type(part.inputs)
    for own, other in zip(tensors(found.inputs), tensors(part.inputs), strict=True):
        assert own.dtype == other.dtype
        assert torch.equal(own, other)
    assert torch.equal(found.targets, part.targets)
    assert (found.weights is None) == (part.weights is None)
    assert part.weights is None or torch.equal(found.weights, part.weights)
    found = packed.copied(torch.device("cpu"))
    found.targets.zero_()
    assert torch.equal(packed.copied(torch.device("cpu")).targets, part.targets)
