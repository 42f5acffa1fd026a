"""Times in turns."""

import time

import torch

from evomal.measuring import differentiated, hardware, in_turns, seconds


def test_runs_take_turns_and_each_round_is_timed():
    calls = []
    times = in_turns(
        [lambda: calls.append("a") or time.sleep(2e-3), lambda: calls.append("b") or time.sleep(5e-3)],
        rounds=3,
        seconds_a_round=1e-6,
    )
    assert calls == ["a"] * 3 + ["b"] * 3 + ["a", "b"] * 3
    assert [len(series) for series in times] == [3, 3]
    assert min(times[0]) >= 2e-3
    assert min(times[1]) >= 5e-3


def test_a_quick_run_is_repeated_within_a_round():
    calls = []
    in_turns([lambda: calls.append(1) or time.sleep(1e-3)], rounds=1, seconds_a_round=0.02)
    assert 3 + 5 < len(calls) <= 3 + 20


def test_seconds_are_of_one_call():
    assert 2e-3 <= seconds(lambda: time.sleep(2e-3), 5) < 9e-3


def test_forward_and_backward_leave_the_gradient_of_the_last_run():
    leaf = torch.tensor([2.0], requires_grad=True)
    run = differentiated(lambda: (leaf**2).sum(), leaf)
    run()
    run()
    assert leaf.grad.item() == 4


def test_hardware_names_the_device_alone_where_one_is_asked_for():
    processor = hardware("cpu")
    assert processor.endswith(f"torch {torch.__version__}")
    assert "thread" in processor
    assert hardware().startswith(processor.rpartition(", torch")[0])
