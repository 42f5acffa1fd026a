"""Trials of a final are judged on the task's part for it; all others are judged on the validation part."""

import dataclasses

import pytest
import torch

from evomal.engine import Engine, EngineSettings, Rung
from evomal.expression import Expression
from evomal.losses.loss import WeightedTree
from tests.engine.populations import regression

TREE = Expression.parse("abs(sub(y, f))")
LOSS = WeightedTree(TREE, [1.0] * TREE.edges)
RUNG = Rung(10, (1, 2), reference=None)


def with_final(task):
    """The task with its second twenty validation rows as the part for the final, whose targets are far away."""
    first, second = (task.validation.select(torch.arange(20) + start) for start in (0, 20))
    return dataclasses.replace(task, validation=first, final=dataclasses.replace(second, targets=second.targets + 50))


def costs(task, rung, mode):
    settings = EngineSettings(device="cpu", meta_steps=1, training_steps=10, population_mode=mode)
    (found,) = Engine(task, seed=0, settings=settings).try_rates([LOSS], [rung], [(1.0,)])
    return found.costs[1.0]


@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_only_the_final_sees_its_rows(mode):
    task, rung = with_final(regression()), RUNG
    without = dataclasses.replace(task, final=None)
    assert costs(task, rung, mode) == costs(without, rung, mode)
    final = dataclasses.replace(rung, is_final=True)
    assert min(costs(task, final, mode)) > 1000
    assert costs(without, final, mode) == costs(without, rung, mode)


def test_a_training_from_another_seed_is_one_of_a_final():
    task = with_final(regression())
    settings = EngineSettings(device="cpu", meta_steps=1, training_steps=10)
    engine = Engine(task, seed=0, settings=settings)
    (own,) = engine.evaluate([TREE], [LOSS.edge_weights])
    (final,) = engine.evaluate([TREE], [LOSS.edge_weights], seed=3000)
    assert own.value < 100 < final.value
