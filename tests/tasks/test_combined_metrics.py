"""Weighted sums of metrics, and the worst value over groups of rows, by hand and in a training."""

import math

import numpy as np
import pytest
import torch
import torchmetrics

import evomal
from evomal.engine.task_data import task_content
from evomal.errors import InputError
from evomal.tasks.metrics import Metric, chosen_metric, weighted, worst_group
from tests.tasks.test_metrics import batch, measured

OUTPUTS = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
TARGETS = torch.tensor([0, 1, 1, 1])
BY_PART = {"validation": ["a", "b", "b", "a"], "test": [0, 0, 0, 1]}


def hits(outputs, targets):
    return (outputs.argmax(1) == targets).double().mean()


def on(metric, kind="classification", **options):
    return chosen_metric(metric, kind)(OUTPUTS, TARGETS, **options)


def test_a_sum_of_metrics_with_one_direction_has_it():
    costs = weighted({"error_rate": 0.5, "nll": 2})
    assert (costs.name, costs.higher_is_better) == ("0.5*error_rate+2*nll", False)
    assert on(costs) == pytest.approx(0.5 * 0.25 + 2 * on("nll"))
    gains = weighted({"auroc": 1, Metric(hits, higher_is_better=True): 0.5})
    assert (gains.name, gains.higher_is_better) == ("1*auroc+0.5*hits", True)
    assert on(gains) == pytest.approx(on("auroc") + 0.5 * 0.75)


def test_a_sum_of_metrics_with_different_directions_is_one_of_costs():
    mixed = weighted({"auroc": 1, "nll": 0.5})
    assert not mixed.higher_is_better
    assert on(mixed) == pytest.approx(-on("auroc") + 0.5 * on("nll"))


def test_texts_are_sums():
    assert chosen_metric("0.7*error_rate + 3e-1*ece", "classification").name == "0.7*error_rate+0.3*ece"
    assert on("1e+0*error_rate+nll") == pytest.approx(0.25 + on("nll"))
    assert on("0.5*worst_class:error_rate+0.5*error_rate") == pytest.approx((1 / 3 + 0.25) / 2)
    assert chosen_metric("mse+pinball:quantile=0.9", "regression").name == "1*mse+1*pinball:quantile=0.9"


def test_the_worst_group_counts():
    metric = worst_group("error_rate", groups=BY_PART)
    assert metric.name == "worst_group:error_rate"
    assert on(metric, part="validation") == 0.5
    assert on(metric, part="test") == pytest.approx(1 / 3)
    gain = worst_group(Metric(hits, higher_is_better=True), groups=BY_PART)
    assert on(gain, part="validation") == 0.5
    assert on("worst_class:error_rate") == pytest.approx(1 / 3)


def test_groups_are_of_samples_whose_positions_are_rows():
    metric = chosen_metric(worst_group("error_rate", groups={"validation": [0, 1], "test": [0, 1]}), "classification")
    assert metric(OUTPUTS, TARGETS, part="test") == 0.5
    weights = torch.tensor([1.0, 0.0, 1.0, 1.0])
    assert metric(OUTPUTS, TARGETS, part="test", weights=weights) == 0.0
    assert metric(OUTPUTS, TARGETS, part="test", weights=torch.tensor([0.0, 0.0, 1.0, 1.0])) == 0.0


@pytest.mark.parametrize("values", [(math.nan, 1.0), (1.0, math.nan)])
def test_a_group_without_a_number_is_never_passed_over(values):
    given = iter(values)
    metric = worst_group(Metric(lambda outputs, targets: next(given), "own", higher_is_better=True), groups=BY_PART)
    assert math.isnan(on(metric, part="validation"))


def arrays():
    outputs, targets = batch(3, samples=120)
    return outputs.numpy() + np.eye(3)[targets] * 3, targets.numpy()


def made(metric, **options):
    x, y = arrays()
    return evomal.Task.from_arrays(x, y, model=lambda: torch.nn.Linear(3, 3), metric=metric, **options)


def test_groups_of_arrays_follow_their_rows_into_the_parts():
    _, y = arrays()
    task = made(worst_group("error_rate", groups=[f"g{label}" for label in y]), standardise=False)
    assert not task.exchangeable
    score = evomal.train(task, "ce", steps=5, device="cpu", keep_model=True)
    with torch.no_grad():
        for part, value in ((task.validation, score.validation), (task.test, score.test)):
            expected = measured("worst_class:error_rate", "classification", score.model(part.inputs), part.targets)
            assert value == pytest.approx(expected)
    again = made(worst_group("error_rate", groups=(y == 0).astype(int)))
    assert task_content(task)["metric_options"] != task_content(again)["metric_options"]


def test_a_search_is_judged_by_combinations():
    tiny = {"population": 4, "generations": 1, "meta_steps": 1, "training_steps": 5, "filter_steps": 5}
    metric = "0.5*worst_class:error_rate+0.5*nll"
    result = evomal.search(made(None), method="taylorglo", preset="paper", device="cpu", metric=metric, **tiny)
    assert result.metric == metric


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: weighted({}), "metrics must map metrics to their weights but got {}"),
        (lambda: weighted({"nll": -1}), "the weight of nll must be a finite number of more than 0 but got -1"),
        (lambda: weighted({hits: 1}), "the metric hits must come with its direction"),
        (lambda: worst_group("nll", groups="fold"), "groups must be one per row, given by part, or 'class' but got"),
        (lambda: worst_group("nll", groups={"test": [0]}), "groups must be given for validation and test but got test"),
        (lambda: worst_group("nll", groups=[[0, 1]]), "groups must have one number or text per row but got"),
        (
            lambda: worst_group("nll", groups=torch.zeros(4, 3, requires_grad=True)),
            "groups must have one number or text per row but got",
        ),
        (
            lambda: worst_group("nll", groups=torch.zeros(4, device="meta")),
            "groups must have one number or text per row but got",
        ),
        (lambda: worst_group("nll+ece", groups="class"), "worst_group takes a metric that is not made of others but"),
        (
            lambda: made(worst_group("nll", groups=BY_PART)),
            "the groups of validation rows must be as many as there are rows, 24, but got 4",
        ),
        (lambda: made(worst_group("nll", groups=[0, 1])), "groups must have one entry for each of"),
        (lambda: made(worst_group("nll", groups=[0] * 999)), "groups must have one entry for each of"),
        (
            lambda: made(None).judged_by(worst_group("nll", groups=[0, 1])),
            "the groups of a metric must be known by part",
        ),
        (lambda: made("worst_class:auroc"), "the metric auroc needs every class in class 0 of the validation split"),
        (lambda: weighted({"nll": 1})(OUTPUTS, TARGETS), "the metric nll must belong to a task before it is measured"),
    ],
)  # fmt: skip
def test_refusals(make, sentence):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value).startswith(sentence)


class Mean(torch.nn.Linear):
    """The mean over positions, as two logits."""

    def __init__(self):
        super().__init__(3, 2)

    def forward(self, inputs):
        return super().forward(inputs.mean(1))


def test_groups_need_rows_that_are_read_once():
    def batches(seed):
        lengths = (2, 3, 4)  # texts of different lengths, of which a batch has one
        return [(torch.ones(4, length, 3), torch.arange(4) % 2) for length in lengths]

    metric = worst_group("error_rate", groups={"validation": [0] * 12, "test": [0] * 12})
    with pytest.raises(InputError, match="a metric with groups of rows needs validation data that are read once"):
        evomal.Task.from_loaders(batches, batches, batches, model=Mean, metric=metric)


def test_the_worst_class_is_for_classes():
    x, _ = arrays()
    with pytest.raises(InputError, match="the worst class is known for classification only"):
        evomal.Task.from_arrays(
            x, x[:, 0], model=lambda: torch.nn.Linear(3, 1), kind="regression", metric="worst_class:mse"
        )


def test_positions_that_are_ignored_count_in_no_metric():
    rng = np.random.default_rng(0)
    tokens, tags = rng.integers(0, 9, (40, 5)), rng.integers(0, 3, (40, 5))
    tags[rng.random((40, 5)) < 0.3] = -100
    groups = np.arange(40) % 3

    def scored(metric):
        task = evomal.Task.from_arrays(
            tokens, tags, model=lambda: torch.nn.Embedding(9, 3), metric=metric, validation=0.3, name="tags"
        )
        return task, evomal.train(task, "ce", steps=4, device="cpu", keep_model=True)

    task, score = scored("accuracy")
    with torch.no_grad():
        right = score.model(task.test.inputs).argmax(-1) == task.test.targets
    counted = task.test.targets != -100
    assert score.test == pytest.approx(right[counted].double().mean().item())
    theirs = torchmetrics.classification.MulticlassAccuracy(3, average="micro")
    assert scored(theirs)[1].test == pytest.approx(score.test)
    task, worst = scored(worst_group("accuracy", groups=groups))
    own = task.metric.function.groups["test"].numbers
    shares = [right[own == group][counted[own == group]].double().mean().item() for group in own.unique()]
    assert worst.test == pytest.approx(min(shares))
    assert len(shares) > 1
