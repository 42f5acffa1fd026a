"""What a caller names or brings is checked before anything is computed with it."""

from types import SimpleNamespace

import pytest
import torch

from evomal.engine.choices import check_targets
from evomal.errors import InputError
from evomal.tasks.task import Part


def with_targets(kind, train, validation):
    """As much of a task as has targets: the kernels must not rely on who made it."""
    parts = [Part(torch.zeros(len(targets), 1), targets) for targets in (train, validation)]
    return SimpleNamespace(kind=kind, train=parts[0], validation=parts[1])


def test_kernels_take_no_probabilities_as_targets():
    bits, soft = torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([[0.0, 0.7]])
    check_targets(with_targets("multilabel", bits, bits))
    check_targets(with_targets("classification", torch.tensor([2, 0]), torch.tensor([1])))
    check_targets(with_targets("regression", soft, soft))
    for parts, place in (((soft, bits), "training"), ((bits, soft), "validation")):
        with pytest.raises(InputError, match=f"targets must be 0 or 1, but one of the {place} targets is 0.7$"):
            check_targets(with_targets("multilabel", *parts))
