"""What the passes of a model keep, and the memory of its steps."""

import pytest
import torch
from torch import nn

from evomal.engine import Engine, EngineSettings
from evomal.engine.functional_model import FunctionalModel
from evomal.engine.step_costs import ActivationBytes, activation_bytes
from evomal.expression import Expression
from tests.engine.populations import classification

CPU = torch.device("cpu")


def test_what_is_kept_and_recorded_is_counted_once_per_sample():
    plain = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    rows = torch.randn(1000, 4)[:4]  # part of a larger tensor, as batches are
    assert activation_bytes(FunctionalModel(plain, device=CPU), rows) == ActivationBytes(16 * 4, 0, 16 * 4)
    layers = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    model = FunctionalModel(layers, device=CPU)
    found = activation_bytes(model, torch.randn(4, 1, 2, 2))
    image, statistics = 2 * 2 * 2 * 4, 2 * 2 * 4 // 4
    # The convolution's outputs, those of the ReLU, and mean and deviation of the channels; the passes share these.
    assert found.kept == pytest.approx(2 * image + statistics)
    assert found.recorded == pytest.approx(2 * image + statistics)  # the outputs of convolution and batch norm
    assert model.module[0].recorder.tensors == []


def peak_bytes(run):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    changes = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        most = max(most, held)
    return most


def convolutional():
    blocks = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.ConvTranspose2d(1, 8, 12), *blocks, nn.Flatten(), Head())


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8 * 13 * 13, 3) / 40)

    def forward(self, x):
        return x @ self.weight


def test_the_memory_of_a_meta_step_is_predicted_within_a_quarter():
    tree = Expression.parse("abs(mul(y, log(f)))")
    settings = EngineSettings(device="cpu", population=1, meta_steps=1, training_steps=1)
    engine = Engine(classification(convolutional), seed=0, settings=settings)
    (data,), (plan,) = engine._data, engine.plans
    assert plan.mode == "looped"
    engine.optimise([tree], [[1.0] * tree.edges])
    with engine._context():
        measured = peak_bytes(engine._workspace.optimiser([tree])._optimisation.step)
    parameters = sum(value.nbytes for value in data.model.parameters.values())
    predicted = data.capabilities.bytes_per_sample.meta(parameters, parameters, data.batch_size) - parameters
    assert measured == pytest.approx(predicted, rel=0.25)
