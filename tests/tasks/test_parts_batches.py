"""Batches: full, even, the same for the same seed, in any order of asking."""

import torch

from evomal.tasks.parts import Batches


def test_every_row_is_used_equally_often():
    batches = Batches(10, 4, seed=0, purpose="training")
    seen = torch.cat([batches[step] for step in range(5)])
    assert seen.bincount().tolist() == [2] * 10
    assert all(len(batches[step]) == 4 for step in range(50))


def test_a_batch_is_the_same_in_any_order():
    first = Batches(100, 7, seed=3, purpose="training")
    in_order = [first[step] for step in range(60)]
    again = Batches(100, 7, seed=3, purpose="training")
    for step in (59, 0, 30, 14, 15):
        assert torch.equal(again[step], in_order[step])


def test_seed_and_purpose_matter():
    reference = Batches(100, 50, seed=0, purpose="training")[0]
    assert not torch.equal(reference, Batches(100, 50, seed=1, purpose="training")[0])
    assert not torch.equal(reference, Batches(100, 50, seed=0, purpose="validation")[0])


def test_few_rows_make_small_batches():
    assert sorted(Batches(3, 128, seed=0, purpose="training")[5].tolist()) == [0, 1, 2]
