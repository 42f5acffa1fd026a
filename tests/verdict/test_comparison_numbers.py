"""The numbers of a comparison, seed by seed, are those from before trainings ran as stacks, one after the other."""

import pytest

import evomal

ONE_BY_ONE = {
    ("mse", "plain"): [0.7859392061, 0.6430023767, 0.7475588410, 0.8291747581, 0.7290235995],
    ("mae", "plain"): [1.3622094239, 0.6996238451, 0.7699785187, 0.8589284601, 0.8399302926],
    ("huber", "plain"): [1.3195072735, 0.6773639502, 0.7741165150, 0.8595889597, 0.8042775995],
    ("mae", "rescaled"): [0.7972117078, 0.6773593005, 0.8090010386, 0.8535734708, 0.7539909783],
    ("huber", "rescaled"): [0.7729199799, 0.6616270991, 0.7682436908, 0.8179460063, 0.7280723880],
}
"""Test errors of five seeds, by the code before trials were stacked. The last digits depend on the machine."""


def test_the_table_of_five_seeds_is_that_of_trainings_one_by_one():
    task = evomal.load_task("diabetes", "mlp:hidden=8")
    found = evomal.compare(task, losses=["mae", "huber"], seeds=5, final_steps=40, device="cpu")
    tested = {
        (entry.name, entry.variant): [score.test for loss in entry.losses for score in loss.scores]
        for entry in found.entries
    }
    assert tested == {key: pytest.approx(values, rel=1e-4) for key, values in ONE_BY_ONE.items()}
