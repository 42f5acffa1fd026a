"""Steps as graphs equal steps one by one, and what cannot be captured goes on without."""

import numpy as np
import pytest
import torch

from evomal.engine import train
from evomal.engine.cuda_graphs import GraphedStep
from evomal.tasks.metrics import chosen_metric
from evomal.tasks.models import make_model
from evomal.tasks.parts import Augmentation, Part
from evomal.tasks.task import Task

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def take(step, times):
    for _ in range(times):
        step()


def test_on_a_cpu_it_is_merely_called():
    total = torch.zeros(())
    step = GraphedStep(lambda: total.add_(1), device=torch.device("cpu"))
    for _ in range(7):
        step()
    assert total == 7
    assert not step.captured
    assert step.refusal


@needs_cuda
def test_every_call_counts_once():
    device = torch.device("cuda")
    total = torch.zeros((), device=device)
    step = GraphedStep(lambda: total.add_(1), device=device)
    for _ in range(10):
        step()
    assert total.item() == 10
    assert step.captured


@needs_cuda
def test_a_step_that_waits_for_the_device_stays_eager():
    device = torch.device("cuda")
    total = torch.zeros((), device=device)
    seen = []
    step = GraphedStep(lambda: seen.append(total.add_(1).item()), device=device)
    with pytest.warns(UserWarning, match="CUDA graphs are not used"):
        take(step, 10)
    assert seen == list(range(1, 11))
    assert "waits for the device" in step.refusal


@needs_cuda
def test_a_step_that_cannot_be_captured_stays_eager():
    device = torch.device("cuda")
    total, calls = torch.zeros((), device=device), []

    def step_that_turns():
        calls.append(0)
        total.add_(1)
        if len(calls) > 3:
            torch.cuda.synchronize()

    step = GraphedStep(step_that_turns, device=device)
    with pytest.warns(UserWarning, match="CUDA graphs are not used"):
        take(step, 10)
    assert total.item() == 10
    assert "cannot be captured" in step.refusal
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


@needs_cuda
def test_a_lack_of_memory_at_the_capture_is_raised_where_less_would_do():
    device = torch.device("cuda")
    total, calls = torch.zeros((), device=device), []

    def growing():
        calls.append(0)
        total.add_(1)
        if len(calls) > 3:
            torch.empty(2**50, device=device)

    step = GraphedStep(growing, device=device, raises_memory_errors=True)
    with pytest.raises(torch.OutOfMemoryError):
        take(step, 10)
    assert not step.refusal
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert total.add_(1).item() == 4


@needs_cuda
def test_graphs_that_nobody_needs_any_more_do_not_end_a_capture():
    device = torch.device("cuda")

    def counting():
        total = torch.zeros((), device=device)
        step = GraphedStep(lambda: (total.add_(1), [[] for _ in range(2000)])[0], device=device)
        step.myself = step  # a cycle, which only the collector can free
        for _ in range(6):
            step()
        assert step.captured
        return total.item()

    assert [counting() for _ in range(20)] == [6] * 20


@needs_cuda
def test_after_forgetting_python_is_asked_again():
    device = torch.device("cuda")
    total, amount = torch.zeros((), device=device), [1]
    step = GraphedStep(lambda: total.add_(amount[0]), device=device)
    for _ in range(5):
        step()
    amount[0] = 10
    step()
    assert total.item() == 6
    step.forget()
    step()
    assert total.item() == 16


def images():
    rng = np.random.default_rng(0)

    def part(rows):
        labels = rng.integers(10, size=rows)
        pixels = rng.normal(size=(rows, 3, 32, 32)) + labels[:, None, None, None] / 5
        return Part(torch.tensor(pixels, dtype=torch.float32), torch.tensor(labels))

    return Task(
        kind="classification",
        train=part(512),
        validation=part(100),
        test=part(100),
        model=lambda: make_model("allcnnc", (3, 32, 32), 10),
        metric=chosen_metric(None, "classification"),
        outputs=10,
        augmentation=Augmentation(4, flip=True),
    )


@needs_cuda
@pytest.mark.parametrize(
    "recipe",
    [
        {"milestones": (20, 40)},
        {"milestones": (20, 40), "optimizer": "adam"},
        {"schedule": "cosine", "warmup": 0.1, "clip": 0.5},
        {"schedule": "one-cycle", "optimizer": "adamw:beta2=0.9"},
        {"schedule": "linear", "optimizer": torch.optim.SGD},
        {"schedule": "linear", "optimizer": torch.optim.AdamW, "clip": 0.5},
        {"schedule": "cosine", "optimizer": "rmsprop"},
    ],
    ids=str,
)
def test_training_equals_eager_training(recipe):
    task = Task.from_arrays(
        np.random.default_rng(0).normal(size=(400, 8)),
        np.random.default_rng(1).normal(size=400),
        kind="regression",
        model=lambda: torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)),
    )
    settings = {"steps": 60, "lr": 0.01, "device": "cuda", **recipe}
    eager = train(task, "mse", graphs=False, **settings)
    graphed = train(task, "mse", **settings)
    assert graphed.test == pytest.approx(eager.test, rel=1e-5)
    assert [point.training_loss for point in graphed.curve] == pytest.approx(
        [point.training_loss for point in eager.curve], rel=1e-5
    )


@needs_cuda
def test_dropout_and_augmentation_draw_anew_at_each_replay_and_the_same_for_a_seed():
    task = images()
    before = torch.cuda.get_rng_state()
    first, again, other = (train(task, "ce", seed=seed, steps=40, device="cuda") for seed in (0, 0, 1))
    assert torch.equal(before, torch.cuda.get_rng_state())
    assert first.curve[0].training_loss == pytest.approx(again.curve[0].training_loss, rel=1e-3)
    assert first.curve[0].training_loss != other.curve[0].training_loss
    frozen = torch.zeros(64, device="cuda")
    drawn = []
    generator = torch.Generator("cuda").manual_seed(0)
    step = GraphedStep(
        lambda: frozen.copy_(torch.rand(64, device="cuda", generator=generator)),
        device=torch.device("cuda"),
        generators=(generator,),
    )
    for _ in range(8):
        step()
        drawn.append(frozen.clone())
    eager = torch.Generator("cuda").manual_seed(0)
    assert all(torch.equal(draw, torch.rand(64, device="cuda", generator=eager)) for draw in drawn)


@needs_cuda
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_precisions_and_layouts_train(precision):
    score = train(images(), "ce", steps=60, device="cuda", precision=precision, channels_last=precision != "float32")
    assert score.curve[-1].training_loss < score.curve[0].training_loss
