"""The known losses that fit a task."""

import dataclasses

import numpy as np
import pytest
import torch

from evomal.engine import Engine, EngineSettings
from evomal.losses.catalogue import TASK_LOSSES, specified_loss
from evomal.methods.baseline import strong_rivals, train_rivals
from evomal.runs.executors.executors import LocalExecutor
from evomal.tasks.metrics import chosen_metric
from evomal.tasks.parts import Part
from evomal.tasks.task import Task
from tests.engine.populations import classification, regression


def multilabel():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    return Task.from_arrays(x, (x[:, :3] > 0).astype(int), model=lambda: torch.nn.Linear(4, 3), kind="multilabel")


def with_class_sizes(*sizes):
    task = classification()
    places = [(task.train.targets == place).nonzero().flatten()[:size] for place, size in enumerate(sizes)]
    rows = torch.cat(places)
    assert len(rows) == sum(sizes)
    return dataclasses.replace(task, train=Part(task.train.inputs[rows], task.train.targets[rows]))


TASKS = {
    "regression": regression,
    "multilabel": multilabel,
    "balanced": classification,
    "imbalanced": lambda: with_class_sizes(31, 12, 10),
}


@pytest.mark.parametrize("name", TASKS)
def test_every_rival_can_be_trained_and_the_baseline_is_first(name):
    task = TASKS[name]()
    names = strong_rivals(task)
    assert names[0] == TASK_LOSSES[task.kind]
    assert len({*names}) == len(names) >= 4
    settings = EngineSettings(device="cpu", training_steps=30, meta_steps=1)
    executor = LocalExecutor(Engine(task, seed=0, settings=settings))
    results = train_rivals(names, executor, task.kind)
    assert [result.sentence for result in results] == [""] * len(names)
    assert train_rivals(names[-1:], executor, task.kind) == results[-1:]


def test_options_of_a_rival_count():
    task = regression()
    executor = LocalExecutor(
        Engine(task, seed=0, settings=EngineSettings(device="cpu", training_steps=30, meta_steps=1))
    )
    loose, tight, same = train_rivals(["tukey", "tukey:c=0.5", "tukey:c=4.685"], executor, task.kind)
    assert loose == same != tight


@pytest.mark.parametrize(("sizes", "is_imbalanced"), [((30, 12, 10), False), ((31, 12, 10), True), ((3, 2, 0), False)])
def test_losses_for_unequal_classes_are_rivals_where_the_classes_are_unequal(sizes, is_imbalanced):
    names = strong_rivals(with_class_sizes(*sizes))
    assert ("balanced-softmax" in names) is ("class-weighted-ce" in names) is is_imbalanced


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("mae", ()),
        ("pinball:quantile=0.5", ()),
        ("pinball:quantile=0.9", ("quantile:quantile=0.9",)),
        ("0.5*pinball:quantile=0.1+0.5*pinball:quantile=0.9", ("quantile:quantile=0.1", "quantile:quantile=0.9")),
    ],
)
def test_the_loss_of_a_quantile_is_a_rival_where_the_metric_is_of_it(metric, expected):
    task = regression()
    names = strong_rivals(dataclasses.replace(task, metric=chosen_metric(metric, "regression")))
    assert names == strong_rivals(task) + expected
    assert [specified_loss(name, kind="regression").quantile for name in expected] == [
        float(one[-3:]) for one in expected
    ]


@pytest.mark.parametrize("name", TASKS)
def test_the_rivals_of_a_task_differ_from_each_other(name):
    task = TASKS[name]()
    outputs = 2 * torch.randn(16, task.outputs, generator=torch.Generator().manual_seed(0))
    targets = task.train.targets[:16].view(16, -1) if task.kind != "classification" else task.train.targets[-16:]
    losses = [specified_loss(spec, kind=task.kind) for spec in strong_rivals(task)]
    priors = [0.7, 0.2, 0.1]
    losses = [loss.with_priors(priors) if hasattr(loss, "with_priors") else loss for loss in losses]
    costs = [round(float(loss(outputs, targets)), 6) for loss in losses]
    assert len({*costs}) == len(costs)
