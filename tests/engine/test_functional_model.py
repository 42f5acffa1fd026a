"""A model as a function of its parameters: what is cast once, and how parameters lie in memory."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from evomal.engine.functional_model import FunctionalModel
from evomal.engine.meta_gradient import forward_mode_jvp

CPU = torch.device("cpu")
IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A convolution that runs once, one that runs twice, and a head whose weight may be used outside of it."""

    def __init__(self, *, normalises_head=False):
        super().__init__()
        self.once, self.twice = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.normalises_head = normalises_head

    def forward(self, x):
        x = self.twice(self.twice(self.norm(self.once(x)))).mean((2, 3))
        if self.normalises_head:
            x = x * self.head.weight.float().norm()
        return self.head(x)


def model_of(module, precision="bfloat16", **options):
    torch.manual_seed(0)
    model = FunctionalModel(module, device=CPU, precision=precision, **options)
    model.flat.copy_(model.flattened(module))
    return model


def cast_names(model):
    cast = model.cast(model.parameters)
    return {name for name, value in cast.items() if value.dtype == torch.bfloat16}


def test_weights_of_layers_that_run_once_are_cast_once():
    model = model_of(Net())
    assert cast_names(model) == set()
    expected = model(model.parameters, IMAGES)
    model.cast_once(IMAGES)
    assert cast_names(model) == {"once.weight", "once.bias", "head.weight", "head.bias"}
    assert torch.equal(model(model.cast(model.parameters), IMAGES), expected)


def test_only_autocast_casts():
    model = model_of(Net(), "float32")
    model.cast_once(IMAGES)
    assert cast_names(model) == set()


def test_a_model_that_uses_weights_outside_of_their_layers_is_left_to_autocast():
    model = model_of(Net(normalises_head=True))
    model.cast_once(IMAGES)
    assert cast_names(model) == set()


@pytest.mark.parametrize("cast", [False, True])
def test_copies_are_cast_or_not_and_have_memory_of_their_own(cast):
    model = model_of(Net())
    model.cast_once(IMAGES)
    found = model.copied(model.parameters, cast=cast)
    for name, value in (model.cast(model.parameters) if cast else model.parameters).items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)
        assert found[name].untyped_storage().nbytes() == value.numel() * value.element_size()


class Allocated(TorchDispatchMode):
    """Counts the numbers in tensors that are filled with zeros."""

    zeros = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if "zero" in function.__name__:
            self.zeros += found.untyped_storage().nbytes() // found.element_size()
        return found


def test_a_push_forward_does_not_store_all_parameters_once_for_each():
    module = nn.Sequential(*[nn.Conv2d(3, 3, 3, padding=1) for _ in range(20)], nn.Flatten(), nn.Linear(192, 2))
    model = model_of(module, "float32")
    start = model.copied(model.parameters, cast=True)
    direction = {name: torch.ones_like(value) for name, value in start.items()}
    with Allocated() as allocated:
        forward_mode_jvp(model, start, IMAGES)(direction)
    assert allocated.zeros <= model.size
