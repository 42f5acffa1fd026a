"""A number of threads for a while, and the one before it after."""

import pytest
import torch

from evomal.runs import RunStore
from evomal.runs.run_loop import search
from evomal.threads import kernel_threads, thread_count
from tests.engine.populations import regression

SHORT = {"population": 3, "generations": 1, "meta_steps": 1, "training_steps": 2, "filter_steps": 2, "device": "cpu"}


def test_torch_and_kernels_get_so_many_threads_until_the_end():
    before = torch.get_num_threads()
    with thread_count(before + 2):
        assert torch.get_num_threads() == before + 2
        assert kernel_threads()._max_workers == before + 2
    assert torch.get_num_threads() == before
    assert kernel_threads()._max_workers == before
    with thread_count(None):
        assert torch.get_num_threads() == before


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
