"""What a caller names or brings is checked before anything is computed with it."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import evomal
from evomal.engine import Engine, EngineSettings, Trial, train
from evomal.engine.resolve import check_targets, class_priors, resolve_loss
from evomal.errors import InputError
from evomal.losses import BalancedSoftmaxLoss, ExpressionLoss, HuberLoss, named_loss, save_loss
from evomal.tasks.parts import Part
from evomal.units import Units
from tests.engine.populations import classification, regression


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


LOSS = ExpressionLoss("square(aq(sub(y, f), y))", [1.5, 1.0, 0.9, 1.1, 1.0], kind="regression")
FAR_OFF = LOSS.in_units(Units(150.0, 80.0))
"""Without its units the same; with them another on targets around 0."""


def in_raw_units(task):
    """The same task as someone makes it by hand, with raw targets and nothing said of units."""
    parts = {
        name: Part(part.inputs, task.to_raw(part.targets))
        for name, part in (("train", task.train), ("validation", task.validation), ("test", task.test))
    }
    return dataclasses.replace(task, units=None, **parts)


def test_a_task_that_standardises_uses_a_loss_without_its_units(tmp_path):
    task = regression()
    assert task.units is not None
    save_loss(FAR_OFF, tmp_path / "loss.json")
    expected = train(task, LOSS, steps=20, device="cpu")
    for given in (FAR_OFF, tmp_path / "loss.json"):
        assert resolve_loss(given, task).units is None
        assert train(task, given, steps=20, device="cpu") == expected
    assert FAR_OFF.units == Units(150.0, 80.0)
    engine = Engine(task, seed=0, settings=EngineSettings(device="cpu", training_steps=20, meta_steps=1))
    assert engine.evaluate_losses([FAR_OFF]) == engine.evaluate_losses([LOSS])
    stacked = EngineSettings(device="cpu", training_steps=20, meta_steps=1, population_mode="stacked")
    engine = Engine(task, seed=0, settings=stacked)
    first, second = engine.run_trials([Trial(loss, 0.05, 0) for loss in (FAR_OFF, LOSS)], test=True)
    assert first == second


def test_on_raw_targets_a_loss_is_used_with_its_units():
    task = regression()
    raw = in_raw_units(task)
    loss = LOSS.in_units(task.units)
    assert resolve_loss(loss, raw) is loss

    class ByHand(nn.Module):
        def forward(self, output, target):
            return LOSS(task.units.standardised(output), task.units.standardised(target))

    assert train(raw, loss, steps=20, device="cpu").test == train(raw, ByHand(), steps=20, device="cpu").test
    assert train(raw, LOSS, steps=20, device="cpu").test != train(raw, loss, steps=20, device="cpu").test
    assert resolve_loss("huber", raw).units is None
    assert resolve_loss(HuberLoss(), task).units is None


def imbalanced():
    """A task whose last class has no row to train on."""
    task = classification()
    few = (task.train.targets == 0) | ((task.train.targets == 1) & (torch.arange(len(task.train.targets)) % 3 == 0))
    return dataclasses.replace(task, train=Part(task.train.inputs[few], task.train.targets[few]))


def test_class_priors_are_the_shares_in_the_training_part():
    task = imbalanced()
    targets = task.train.targets.tolist()
    counts = [targets.count(0), targets.count(1), 1]
    assert targets.count(2) == 0
    assert class_priors(task).tolist() == pytest.approx([count / sum(counts) for count in counts], rel=1e-12)


@pytest.mark.parametrize("name", ["class-weighted-ce", "balanced-softmax", "balanced-softmax:tau=0.5"])
def test_a_loss_without_priors_takes_those_of_the_task(name, tmp_path):
    task = imbalanced()
    priors = tuple(class_priors(task).tolist())
    bare = named_loss(name.partition(":")[0], **({"tau": 0.5} if ":" in name else {}))
    save_loss(bare, tmp_path / "loss.json")
    ready = bare.with_priors(priors)
    expected = train(task, ready, steps=30, device="cpu")
    for given in (name, bare, tmp_path / "loss.json", ready):
        assert resolve_loss(given, task).priors == priors
        assert train(task, given, steps=30, device="cpu") == expected
    assert bare.priors is None
    assert train(task, "ce", steps=30, device="cpu").metrics != expected.metrics
    engine = Engine(task, seed=0, settings=EngineSettings(device="cpu", training_steps=20, meta_steps=1))
    assert engine.evaluate_losses([bare]) == engine.evaluate_losses([ready])


def test_priors_of_its_own_are_kept_on_a_task():
    loss = BalancedSoftmaxLoss(priors=[0.2, 0.3, 0.5])
    assert resolve_loss(loss, imbalanced()).priors == (0.2, 0.3, 0.5)


def test_a_model_may_have_more_outputs_than_the_task_has_classes():
    task = dataclasses.replace(imbalanced(), model=lambda: nn.Linear(4, 7))
    engine = Engine(task, seed=0, settings=EngineSettings(device="cpu", training_steps=20, meta_steps=1))
    names = ("ce", "class-weighted-ce", "balanced-softmax")
    fitnesses = engine.evaluate_losses([named_loss(name) for name in names])
    assert [fitness.sentence for fitness in fitnesses] == [""] * 3
    assert train(task, "balanced-softmax", steps=5, device="cpu").test >= 0


def test_trials_of_one_loss_share_what_is_made_of_it_for_the_task(monkeypatch):
    made = []
    monkeypatch.setattr(BalancedSoftmaxLoss, "_take_priors", _counted(BalancedSoftmaxLoss._take_priors, made))
    task, loss = imbalanced(), BalancedSoftmaxLoss()
    made.clear()
    settings = EngineSettings(device="cpu", training_steps=20, meta_steps=1, population_mode="stacked")
    trials = [Trial(loss, lr, 0) for lr in (0.05, 0.1, 0.05)]
    first, second, third = Engine(task, seed=0, settings=settings).run_trials(trials, test=True)
    assert len(made) == 1
    assert first == third
    assert first != second


def _counted(method, calls):
    def call(*arguments):
        calls.append(arguments)
        return method(*arguments)

    return call


class Raw(nn.Module):
    """A network whose outputs are in raw units."""

    def __init__(self, network, units):
        super().__init__()
        self.network, self.units = network, units

    def forward(self, inputs):
        return self.units.raw(self.network(inputs))


def test_training_on_raw_diabetes_is_training_on_the_standardised_task(tmp_path):
    task = evomal.load_task("diabetes", model="mlp:hidden=16")
    assert task.units.mean == pytest.approx(152.1, abs=8)
    assert task.units.scale == pytest.approx(77.0, abs=8)
    save_loss(LOSS.in_units(task.units), tmp_path / "best.json")
    inputs, targets = task.train.inputs.double(), task.train.targets.double()
    raw_targets = task.to_raw(targets)
    assert set(raw_targets.round().reshape(-1).tolist()) <= set(evomal.tasks.datasets.load("diabetes").targets.tolist())
    outcomes = []
    for loss, wanted, is_raw in (
        (evomal.load_loss(tmp_path / "best.json"), raw_targets, True),
        (LOSS, targets, False),
    ):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1)).double()
        model = Raw(network, task.units) if is_raw else network
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(100):
            optimizer.zero_grad()
            loss(model(inputs), wanted).backward()
            optimizer.step()
        outcomes.append(torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()]))
        explained = 1 - (network(inputs) - targets).square().mean() / targets.square().mean()
        assert explained > 0.5
    torch.testing.assert_close(*outcomes, rtol=1e-9, atol=1e-9)
