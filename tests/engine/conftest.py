"""Fixtures of the tests of the engine."""

from types import SimpleNamespace

import pytest
import torch

from evomal.engine import device_memory


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 16 GiB; its `fraction` is what torch may take of it."""
    allowed = SimpleNamespace(fraction=1.0)
    monkeypatch.setattr(device_memory, "_processes", 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=16 * 2**30))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: allowed.fraction)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda fraction, device: setattr(allowed, "fraction", fraction)
    )
    return allowed
