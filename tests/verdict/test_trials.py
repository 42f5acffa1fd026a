"""Trials of comparisons: trained by the task's recipe, which belongs to the description of their log."""

import functools

import pytest
import torch

import evomal
from evomal.errors import InputError
from evomal.settings import SearchSettings
from evomal.tasks.recipe import Recipe
from evomal.verdict.trials import log_description
from tests.engine.populations import regression


def adamw(decay=0.1):
    return functools.partial(torch.optim.AdamW, weight_decay=decay)


TRANSFORMER = {"schedule": "cosine", "warmup": 0.1, "clip": 1.0, "lr": 0.02, "batch_size": 32, "steps": 20}


def test_a_comparison_trains_by_the_recipe(tmp_path):
    task = regression(recipe=Recipe(optimizer=adamw(), **TRANSFORMER))
    options = {"seeds": 2, "rescale": False, "device": "cpu", "preset": "paper", "losses": ["mae"]}
    found = evomal.compare(task, folder=tmp_path, **options)
    scores = [score.test for loss in found.entry("mse", "plain").losses for score in loss.scores]
    words = "test mse after 20 steps (AdamW, cosine schedule, warm-up of 10 %, gradients\nclipped at 1), 2 seeds"
    assert str(found).startswith(words)
    expected = [evomal.train(task, "mse", seed=seed, device="cpu").test for seed in found.seeds]
    assert scores == pytest.approx(expected, rel=1e-5)
    changed = regression(recipe=Recipe(optimizer=adamw(0.2), **TRANSFORMER))
    with pytest.raises(InputError, match="optimizer"):
        evomal.compare(changed, folder=tmp_path, **options)
    for other in ({"batch_size": 16}, {"weight_decay": 0.01}, {"momentum": 0.5}):
        changed = regression(recipe=Recipe(optimizer=adamw(), **{**TRANSFORMER, **other}))
        with pytest.raises(InputError, match=f"final_recipe.{next(iter(other))} was"):
            evomal.compare(changed, folder=tmp_path, **options)


def test_groups_of_a_metric_belong_to_the_description_of_a_log():
    def description(groups):
        task = regression().judged_by(evomal.metrics.worst_group("mse", groups=groups))
        return log_description(task, SearchSettings(device="cpu"))

    task = regression()
    groups = {name: [0, 1] * (len(getattr(task, name)) // 2) for name in ("validation", "test")}
    others = {**groups, "test": sorted(groups["test"])}
    assert description(groups) == description(groups)
    assert description(groups) != description(others)
