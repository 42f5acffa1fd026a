"""A record shows that the code of a user's model or metric was changed."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import evomal
from evomal.engine.task_data import task_content
from evomal.errors import InputError
from evomal.tasks.metrics import Metric
from tests.engine.populations import classification, regression


class Own(nn.Module):
    """A model whose forward pass the user may change, with the same layers."""

    def __init__(self, last):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self._last = last

    def forward(self, x):
        return self._last(self.layer(x))


def task(*, last=torch.relu, metric=None, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, 4))
    return evomal.Task.from_arrays(x, x[:, 0], model=lambda: Own(last), kind="regression", metric=metric, name="own")


def own_metric(reduction):
    return Metric(
        lambda outputs, targets: getattr((outputs - targets) ** 2, reduction)(), "mine", higher_is_better=False
    )


def test_a_change_of_the_forward_pass_shows():
    first, again, other = (task_content(task(last=last)) for last in (torch.relu, torch.relu, torch.tanh))
    assert first == again
    assert {name for name in first if first[name] != other[name]} == {"model_outputs"}


@pytest.mark.parametrize(
    "combine", [lambda metric: metric, lambda metric: evomal.metrics.weighted({"mae": 0.5, metric: 0.5})]
)
def test_a_change_of_the_metric_shows(combine):
    first, again, other = (task_content(task(metric=combine(own_metric(one)))) for one in ("mean", "mean", "sum"))
    assert first == again
    assert {name for name in first if first[name] != other[name]} == {"metric_value"}


@pytest.mark.parametrize("make", [regression, classification])
def test_nothing_is_said_of_known_layers_and_metrics(make):
    content = task_content(make())
    assert "model_outputs" not in content
    assert "metric_value" not in content
    combined = dataclasses.replace(task(), metric=evomal.Task.from_arrays(
        np.zeros((9, 4)) + np.arange(9)[:, None], np.arange(9.0), model=lambda: nn.Linear(4, 1), kind="regression",
        metric="0.5*mse+0.5*mae",
    ).metric)  # fmt: skip
    assert "metric_value" not in task_content(combined)


def test_what_raises_on_few_rows_is_left_out():
    def raising(outputs, targets):
        raise ValueError("too few rows")

    content = task_content(task(metric=Metric(raising, "mine", higher_is_better=False)))
    assert "model_outputs" in content
    assert "metric_value" not in content


def test_a_model_that_draws_random_numbers_is_the_same_each_time():
    def noisy(outputs):
        return outputs + torch.randn_like(outputs)

    state = torch.get_rng_state()
    assert task_content(task(last=noisy)) == task_content(task(last=noisy))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_comparison_is_not_continued_with_another_metric(tmp_path):
    options = {"losses": ["mae"], "seeds": 2, "folder": tmp_path / "c", "rescale": False, "final_steps": 20}
    evomal.compare(task(metric=own_metric("mean")), **options)
    with pytest.raises(InputError, match="metric_value"):
        evomal.compare(task(metric=own_metric("sum")), **{**options, "seeds": 3})
