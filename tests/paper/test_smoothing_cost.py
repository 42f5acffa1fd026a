"""What is timed computes label smoothing; the times are ordered and complete."""

import pytest
import torch
import torch.nn.functional as F

from evomal.errors import InputError
from evomal.losses import SparseLabelSmoothingLoss
from evomal.paper.smoothing_cost import (
    WITH,
    WITHOUT,
    dense_of_log_probabilities,
    smoothing_cost,
    sparse_of_log_probabilities,
)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 6, generator=generator, dtype=torch.float64)
    return logits, torch.randint(6, (9,), generator=generator)


def test_without_log_softmax_the_losses_are_the_same(batch):
    logits, target = batch
    ready = logits.log_softmax(1)
    dense, sparse = dense_of_log_probabilities(ready, target, 0.3), sparse_of_log_probabilities(ready, target, 0.3)
    torch.testing.assert_close(dense, F.cross_entropy(logits, target, label_smoothing=0.3))
    torch.testing.assert_close(sparse, SparseLabelSmoothingLoss(0.3)(logits, target))


def test_every_loss_is_timed_at_every_number_of_classes():
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    cost = smoothing_cost([3, 20], device="cpu", rounds=4, seconds_per_round=1e-4, threads=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert cost.names(WITH) == ["label smoothing (torch)", "label smoothing (evomal)", "sparse label smoothing"]
    assert cost.names(WITHOUT) == ["label smoothing", "sparse label smoothing"]
    for part in (WITH, WITHOUT):
        for name in cost.names(part):
            assert [timing.classes for timing in cost.line(part, name)] == [3, 20]
    assert all(0 < timing.lower <= timing.median <= timing.upper < 10 for timing in cost.timings)
    assert f"1 thread, torch {torch.__version__}" in cost.hardware
    columns = cost.columns()
    assert {len(column) for column in columns.values()} == {10}
    assert columns["loss"][:2] == ["label smoothing (torch)", "label smoothing (evomal)"]
    assert set(columns["rounds"]) == {4}


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ([[3, 1]], {}, "classes must be at least 2 but got 1"),
        ([[]], {}, "classes must be at least one number but got none"),
        ([[3]], {"rounds": 0}, "rounds must be at least 1 but got 0"),
        ([[3]], {"threads": 0}, "threads must be at least 1 but got 0"),
        ([[3]], {"device": "abacus"}, "device must be auto, cpu, cuda, cuda:0, mps but got 'abacus'"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_timed(arguments, options, sentence):
    with pytest.raises(InputError) as refusal:
        smoothing_cost(*arguments, **options)
    assert str(refusal.value) == sentence
