"""Times in turns."""

from types import SimpleNamespace

import pytest
import torch

from evomal.paper.smoothing_cost import differentiated, in_turns, seconds


@pytest.fixture
def waiting(monkeypatch):
    """Lets time pass on a clock of the test's own, so that nothing depends on the machine."""
    now = [100.0]
    monkeypatch.setattr("evomal.paper.smoothing_cost.time", SimpleNamespace(perf_counter=lambda: now[0]))

    def wait(duration):
        now[0] += duration

    return wait


def test_runs_take_turns_and_each_round_is_timed(waiting):
    calls = []
    times = in_turns(
        [lambda: calls.append("a") or waiting(2.0), lambda: calls.append("b") or waiting(5.0)],
        rounds=3,
        seconds_per_round=1e-6,
    )
    assert calls == ["a"] * 3 + ["b"] * 3 + ["a", "b"] * 3
    assert times == [[2.0] * 3, [5.0] * 3]


def test_a_quick_run_is_repeated_within_a_round(waiting):
    calls = []
    (times,) = in_turns([lambda: calls.append(1) or waiting(0.25)], rounds=2, seconds_per_round=5.0)
    assert len(calls) == 3 + 2 * 20
    assert times == [0.25, 0.25]


def test_seconds_are_of_one_call(waiting):
    assert seconds(lambda: waiting(2.0), 5) == 2.0


def test_forward_and_backward_leave_the_gradient_of_the_last_run():
    leaf = torch.tensor([2.0], requires_grad=True)
    run = differentiated(lambda: (leaf**2).sum(), leaf)
    run()
    run()
    assert leaf.grad.item() == 4
