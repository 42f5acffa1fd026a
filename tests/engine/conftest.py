"""Fixtures of the tests of the engine."""

from types import SimpleNamespace

import pytest
import torch
from torch.cuda._utils import _get_device_index

from evomal.engine import device_memory


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 16 GiB; its `fraction` is what torch may take of it."""
    allowed = SimpleNamespace(fraction=1.0)
    monkeypatch.setattr(device_memory, "_processes", 1)
    monkeypatch.setattr(device_memory, "_before_sharing", {})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=16 * 2**30))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    def fraction(device):
        assert _get_device_index(device) == 0  # as torch's function does, which takes no device without a number
        return allowed.fraction

    def set_fraction(value, device):
        assert _get_device_index(device) == 0
        allowed.fraction = value

    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", fraction)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", set_fraction)
    return allowed
