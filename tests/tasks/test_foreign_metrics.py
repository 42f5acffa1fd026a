"""Metrics of torchmetrics, as objects and as functions, give what evomal's own give."""

import functools
import pickle

import pytest
import torch
import torchmetrics
import torchmetrics.functional

import evomal
from evomal.engine.task_data import task_content
from evomal.errors import InputError
from evomal.tasks.metrics import Metric, chosen_metric
from tests.tasks.test_metrics import batch, labels, measured

CASES = [
    ("classification", batch(4), torchmetrics.classification.MulticlassF1Score(4, average="macro"), "macro_f1"),
    ("classification", batch(4), torchmetrics.AUROC(task="multiclass", num_classes=4), "auroc"),
    ("classification", batch(1), torchmetrics.classification.BinaryAUROC(), "auroc"),
    ("classification", batch(4), torchmetrics.JaccardIndex(task="multiclass", num_classes=4), "mean_iou"),
    ("multilabel", labels(), torchmetrics.classification.MultilabelF1Score(4), "macro_f1"),
    ("regression", (torch.arange(6.0)[:, None], torch.ones(6, 1)), torchmetrics.MeanAbsoluteError(), "mae"),
    ("regression", (torch.arange(6.0)[:, None], torch.ones(6, 1)), torchmetrics.MeanSquaredError(), "mse"),
]


@pytest.mark.parametrize(("kind", "data", "theirs", "ours"), CASES)
def test_objects(kind, data, theirs, ours):
    metric = chosen_metric(theirs, kind)
    assert metric.name == type(theirs).__name__
    assert metric.higher_is_better is chosen_metric(ours, kind).higher_is_better
    for _ in range(2):  # nothing is left of the first call
        assert metric(*data) == pytest.approx(measured(ours, kind, *data), abs=1e-4)  # theirs are float32
    assert theirs.update_count == 0  # the caller's own is left alone
    assert pickle.loads(pickle.dumps(metric))(*data) == metric(*data)


def test_correlation_takes_one_column():
    outputs, targets = torch.randn(9, 1), torch.randn(9, 1)
    metric = chosen_metric(Metric(torchmetrics.PearsonCorrCoef(), higher_is_better=True), "regression")
    assert metric(outputs, targets) == pytest.approx(
        torch.corrcoef(torch.cat((outputs, targets), 1).T)[0, 1].item(), abs=1e-5
    )


def test_functions():
    found = functools.partial(torchmetrics.functional.classification.multilabel_f1_score, num_labels=4)
    with pytest.raises(InputError, match="the metric multilabel_f1_score must come with its direction"):
        chosen_metric(found, "multilabel")
    metric = Metric(found, higher_is_better=True)
    assert metric.name == "multilabel_f1_score"
    assert metric(*labels()) == pytest.approx(measured("macro_f1", "multilabel", *labels()))


def test_a_direction_that_is_not_known_is_asked_for():
    theirs = torchmetrics.ConfusionMatrix(task="binary")
    with pytest.raises(InputError, match="the metric BinaryConfusionMatrix must come with its direction"):
        chosen_metric(theirs, "classification")
    with pytest.raises(InputError, match="BinaryConfusionMatrix must return one number but returned a tensor"):
        Metric(theirs, higher_is_better=True)(*batch(1))
    count = torchmetrics.classification.BinaryStatScores()
    assert count.higher_is_better is None


def test_a_task_is_searched_by_one_and_its_options_are_recorded():
    inputs = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    made = functools.partial(torchmetrics.classification.MulticlassFBetaScore, num_classes=2)

    def task(beta):
        return evomal.Task.from_arrays(
            inputs.numpy(), (inputs[:, 0] > 0).long().numpy(), model=lambda: torch.nn.Linear(3, 2), metric=made(beta)
        )

    score = evomal.train(task(0.5), "ce", steps=20, lr=0.5, device="cpu")
    assert 0.5 < score.validation <= 1
    options = [task_content(task(beta))["metric_options"] for beta in (0.5, 2.0)]
    assert [one["beta"] for one in options] == [0.5, 2.0]
    assert "metric_options" not in task_content(task(0.5).judged_by("error_rate"))
