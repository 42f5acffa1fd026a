"""A number of threads for a while, and the one before it after."""

import functools
import os
from typing import ClassVar

import pytest
import torch
from torch import nn

from evomal.engine import Engine, EngineSettings, Trial, train
from evomal.errors import InputError
from evomal.losses import HuberLoss
from evomal.runs import RunStore
from evomal.runs.run_loop import search
from evomal.threads import hardware, kernel_threads, suitable_threads, thread_count
from tests.engine.populations import regression
from tests.protocols import ONE_TRAINING

SHORT = {
    **ONE_TRAINING,
    "population": 3,
    "generations": 1,
    "meta_steps": 1,
    "training_steps": 2,
    "filter_steps": 2,
    "device": "cpu",
}


def test_torch_and_kernels_get_so_many_threads_until_the_end():
    before = torch.get_num_threads()
    with thread_count(before + 2):
        assert torch.get_num_threads() == before + 2
        assert kernel_threads()._max_workers == before + 2
    assert torch.get_num_threads() == before
    assert kernel_threads()._max_workers == before
    with thread_count(None):
        assert torch.get_num_threads() == before


def test_kernels_follow_torch_s_own_setting():
    before = torch.get_num_threads()
    try:
        for count in (before + 1, before + 2):
            torch.set_num_threads(count)
            assert kernel_threads()._max_workers == count
        assert kernel_threads() is kernel_threads()
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_makes_threads_of_its_own():
    pool = kernel_threads()
    child = os.fork()
    if child == 0:  # nothing but the question: torch's own threads do not survive a fork either
        os._exit(kernel_threads() is pool)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_threads_before_come_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="lost"), thread_count(before + 1):
        raise ValueError("lost")
    assert torch.get_num_threads() == before


def test_a_search_computes_and_records_with_its_threads(tmp_path):
    before = torch.get_num_threads()
    seen = []
    search(
        regression(), folder=tmp_path, threads=before + 1, callback=lambda _: seen.append(torch.get_num_threads()),
        **SHORT,
    )  # fmt: skip
    assert seen == [before + 1]
    assert torch.get_num_threads() == before
    with RunStore.read(tmp_path) as store:
        assert store.settings["threads"] == before + 1


@pytest.mark.parametrize(
    ("multiply_adds", "device", "most", "threads"),
    [
        (0, "cpu", 16, 1),
        (3 * 100 * 18_000, "cpu", 16, 1),  # an MLP for Diabetes
        (25 * 3 * 100 * 118_000, "cpu", 16, 16),  # 25 MLPs for MNIST in one stack
        (2**26 - 1, "cpu", 2, 1),
        (2**26, "cpu", 2, 2),
        (2**40, "cpu", 1, 1),
        (2**40, "cuda", 16, 1),
        (2**40, "mps", 8, 1),
    ],
)
def test_threads_follow_from_the_work_of_a_step_and_the_device(multiply_adds, device, most, threads):
    assert suitable_threads(multiply_adds, device=device, most=most) == threads


def test_a_small_search_takes_one_thread_and_says_so(tmp_path):
    with thread_count(3):
        search(regression(), folder=tmp_path, **SHORT)
        assert torch.get_num_threads() == 3
    with RunStore.read(tmp_path) as store:
        assert store.settings["threads"] == 1


def test_a_search_is_resumed_with_the_threads_of_its_record(tmp_path):
    search(regression(), folder=tmp_path, threads=2, max_evaluations=1, **SHORT)
    with thread_count(2):
        search(regression(), folder=tmp_path, **SHORT)
    with RunStore.read(tmp_path) as store:
        assert (store.settings["threads"], len(store.forced)) == (2, 0)
        before = store.dump()
    with thread_count(1), pytest.raises(InputError, match="threads was 2 but is 1"):
        search(regression(), folder=tmp_path, **SHORT)
    with RunStore.read(tmp_path) as store:
        assert store.dump() == before


class Watching(nn.MSELoss):
    """Remembers the number of threads it was computed with."""

    seen: ClassVar[set[int]] = set()

    def forward(self, output, target):
        self.seen.add(torch.get_num_threads())
        return super().forward(output, target)


@pytest.mark.parametrize(("width", "threads"), [(16, 1), (2048, 3)])
def test_a_training_takes_suitable_threads_while_it_runs(width, threads):
    model = functools.partial(wide, width)
    Watching.seen.clear()
    with thread_count(3):
        train(regression(model), Watching(), steps=1, curve_points=1, device="cpu")
        assert torch.get_num_threads() == 3
    assert Watching.seen == {threads}


def wide(width):
    return nn.Sequential(nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 1))


def test_trials_have_the_same_bits_for_any_number_of_threads():
    trials = [Trial(HuberLoss(), lr, seed) for lr in (0.01, 0.1) for seed in range(20)]
    scores = []
    for threads in (1, 3):
        settings = EngineSettings(
            device="cpu", meta_steps=1, population=1, training_steps=20, threads=threads, population_mode="stacked"
        )
        scores.append(Engine(regression(functools.partial(wide, 64)), seed=0, settings=settings).run_trials(trials))
    assert [[score.validation for score in row] for row in scores[0]] == [
        [score.validation for score in row] for row in scores[1]
    ]


def test_hardware_names_the_device_alone_where_one_is_asked_for():
    processor = hardware("cpu")
    assert processor.endswith(f"torch {torch.__version__}")
    assert "thread" in processor
    assert hardware().startswith(processor.rpartition(", torch")[0])
