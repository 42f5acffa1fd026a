"""Initial weights of meta steps: drawn once where there is room, together where they are many, always the same."""

import threading

import pytest
import torch

import evomal
from evomal.engine import EngineSettings, task_data
from evomal.engine.resolve import initial_model
from evomal.engine.task_data import TaskData
from evomal.tasks.models.base import BuiltInModel

STEPS, SEED = 7, 3
CPU = torch.device("cpu")


@pytest.fixture
def data():
    task = evomal.load_task("diabetes", "mlp:hidden=5")
    return TaskData(task, task.recipe, EngineSettings(device="cpu", meta_steps=STEPS), seed=SEED, device=CPU)


@pytest.fixture
def redrawn(monkeypatch):
    """The threads in which a model has drawn its weights, one for each time."""
    reset, threads = BuiltInModel.reset, []

    def counted(model, generator):
        threads.append(threading.get_ident())
        reset(model, generator)

    monkeypatch.setattr(BuiltInModel, "reset", counted)
    return threads


def expected(data, step):
    return data.model.flattened(initial_model(data.task, SEED, "meta step", step))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("room", "in_all"), [(STEPS, STEPS), (2, 4), (0, 3), (0, 0)])
def test_weights_are_the_same_wherever_they_are_kept_and_however_they_are_drawn(
    data, monkeypatch, redrawn, together, room, in_all
):
    monkeypatch.setattr(task_data, "_DRAWN_TOGETHER", 0 if together else 10**9)
    monkeypatch.setattr(task_data, "processors", lambda: 3)
    weights = data.initial_weights
    weights._room, weights._room_in_all = room, in_all
    wanted = [expected(data, step) for step in range(STEPS)]
    del redrawn[:]
    for _ in range(2):
        for step in range(STEPS):
            assert torch.equal(weights.at(step), wanted[step])
    assert sorted(weights._kept) == list(range(in_all))
    assert len(redrawn) == STEPS + STEPS - in_all, "what is kept is drawn once, the rest in each pass"
    assert weights.share_drawn_again(STEPS) == (STEPS - in_all) / STEPS
    assert (set(redrawn) != {threading.get_ident()}) == together


def test_what_is_not_to_be_kept_is_not(data):
    found = data.initial_weights.at(2, keep=False)
    assert torch.equal(found, expected(data, 2))
    assert not data.initial_weights._kept


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_what_a_gpu_has_no_room_for_stays_in_the_memory_of_the_machine():
    task = evomal.load_task("diabetes", "mlp:hidden=5")
    device = torch.device("cuda")
    data = TaskData(task, task.recipe, EngineSettings(meta_steps=STEPS), seed=SEED, device=device)
    data.initial_weights._room = 2
    for _ in range(2):
        for step in range(STEPS):
            found = data.initial_weights.at(step)
            assert found.device.type == "cuda"
            assert torch.equal(found.cpu(), expected(data, step))
    assert [flat.device.type for _, flat in sorted(data.initial_weights._kept.items())] == ["cuda"] * 2 + ["cpu"] * 5
