"""The callback for Lightning by itself, without Lightning: what it logs of a call of its loss."""

import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from evomal import Units
from evomal.losses import FocalLoss, HuberLoss

TRAINER = SimpleNamespace(logger=None)
OUTPUT, TARGET = torch.tensor([5.0, 3.0, 1.0]), torch.tensor([6.0, -1.0, 2.0])


class Module:
    """Keeps what is logged."""

    def __init__(self):
        self.logged = {}

    def log(self, name, value, **options):
        self.logged[name] = value.item()


@pytest.fixture
def make(monkeypatch):
    """The class of the callback, derived from a stand-in for that of Lightning."""
    monkeypatch.setitem(sys.modules, "lightning.pytorch", SimpleNamespace(Callback=object))
    monkeypatch.delitem(sys.modules, "evomal.integrations.lightning", raising=False)
    from evomal.integrations.lightning import LossCallback

    yield LossCallback
    del sys.modules["evomal.integrations.lightning"]


def logged(callback, *arguments, **named):
    module = Module()
    callback.setup(TRAINER, module, "fit")
    callback.loss(*arguments, **named)
    callback.on_train_batch_end(TRAINER, module)
    callback.teardown(TRAINER, module, "fit")
    return module.logged


def test_regression_is_logged_in_the_units_of_the_loss(make):
    found = logged(make(HuberLoss(delta=1.0).in_units(Units(3, 2))), OUTPUT, TARGET)
    output, target = (OUTPUT - 3) / 2, (TARGET - 3) / 2
    assert found["train/mse"] == pytest.approx(F.mse_loss(output, target).item())
    assert found["train/learned loss"] == pytest.approx(F.huber_loss(output, target).item())


def test_the_loss_may_be_called_by_keywords(make):
    callback, target = make(FocalLoss()), torch.tensor([0, 3, 1])
    output = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    expected = logged(callback, output, target)
    assert expected["train/ce"] == pytest.approx(F.cross_entropy(output, target).item())
    assert logged(callback, output, target=target) == expected
    assert logged(callback, target=target, output=output) == expected
    assert not callback.loss._forward_hooks
