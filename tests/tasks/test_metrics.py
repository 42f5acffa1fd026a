"""Metrics against scikit-learn, torch and cases computed by hand; how they are asked for."""

import doctest
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
import torch.nn.functional as F

import evomal
from evomal.errors import InputError
from evomal.tasks import loading, metrics
from evomal.tasks.metrics import Metric, chosen_metric, missing_class, usual_metrics
from evomal.tasks.named_metrics import METRICS


def batch(classes, samples=200, seed=0):
    rng = torch.Generator().manual_seed(seed)
    # Rounded, so that scores tie.
    outputs = (torch.randn(samples, classes, generator=rng) * 4).round() / 2
    return outputs, torch.randint(max(2, classes), (samples,), generator=rng)


def labels(samples=200, count=4, seed=0):
    rng = torch.Generator().manual_seed(seed)
    outputs = (torch.randn(samples, count, generator=rng) * 4).round() / 2
    return outputs, (torch.rand(samples, count, generator=rng) < 0.3).float()


def measured(name, kind, outputs, targets):
    return chosen_metric(name, kind)(outputs, targets)


@pytest.mark.parametrize("classes", [1, 2, 7])
def test_classification_metrics_are_those_of_scikit_learn(classes):
    outputs, targets = batch(classes)
    predicted = (outputs[:, 0] > 0).long() if classes == 1 else outputs.argmax(1)
    positive = outputs.double().sigmoid()
    p = torch.cat((1 - positive, positive), 1) if classes == 1 else outputs.double().softmax(1)
    scores = p[:, 1] if classes <= 2 else p
    expected = {
        "error_rate": 1 - sklearn.metrics.accuracy_score(targets, predicted),
        "balanced_error": 1 - sklearn.metrics.balanced_accuracy_score(targets, predicted),
        "nll": sklearn.metrics.log_loss(targets, p),
        "log_loss": sklearn.metrics.log_loss(targets, p),
        "brier": sklearn.metrics.brier_score_loss(targets, scores),
        "accuracy": sklearn.metrics.accuracy_score(targets, predicted),
        "macro_f1": sklearn.metrics.f1_score(targets, predicted, average="macro"),
        "mean_iou": sklearn.metrics.jaccard_score(targets, predicted, average="macro"),
        "f1:label=1": sklearn.metrics.f1_score(targets == 1, predicted == 1),
        "precision:label=1": sklearn.metrics.precision_score(targets == 1, predicted == 1),
        "recall:label=1": sklearn.metrics.recall_score(targets == 1, predicted == 1),
        "auroc": sklearn.metrics.roc_auc_score(targets, scores, multi_class="ovr"),
        "average_precision": sklearn.metrics.average_precision_score(targets, scores, average="macro"),
    }
    for name, value in expected.items():
        assert measured(name, "classification", outputs, targets) == pytest.approx(value, rel=1e-9), name


def test_multilabel_metrics_are_those_of_scikit_learn():
    outputs, targets = labels()
    p, predicted = outputs.double().sigmoid(), (outputs > 0).float()
    each = range(targets.shape[1])
    expected = {
        "error_rate": sklearn.metrics.hamming_loss(targets, predicted),
        "balanced_error": np.mean(
            [1 - sklearn.metrics.balanced_accuracy_score(targets[:, k], predicted[:, k]) for k in each]
        ),
        "nll": np.mean([sklearn.metrics.log_loss(targets[:, k], p[:, k]) for k in each]),
        "brier": np.mean([sklearn.metrics.brier_score_loss(targets[:, k], p[:, k]) for k in each]),
        "macro_f1": sklearn.metrics.f1_score(targets, predicted, average="macro"),
        "mean_iou": sklearn.metrics.jaccard_score(targets, predicted, average="macro"),
        "recall:label=2": sklearn.metrics.recall_score(targets[:, 2], predicted[:, 2]),
        "auroc": sklearn.metrics.roc_auc_score(targets, p, average="macro"),
        "average_precision": sklearn.metrics.average_precision_score(targets, p, average="macro"),
    }
    for name, value in expected.items():
        assert measured(name, "multilabel", outputs, targets) == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("outputs", [1, 3])
def test_regression_metrics_are_those_of_scikit_learn(outputs):
    rng = torch.Generator().manual_seed(0)
    f, y = torch.randn(50, outputs, generator=rng), torch.randn(50, outputs, generator=rng)
    expected = {
        "mse": sklearn.metrics.mean_squared_error(y, f),
        "mae": sklearn.metrics.mean_absolute_error(y, f),
        "r2": sklearn.metrics.r2_score(y, f),
        "pinball:quantile=0.9": sklearn.metrics.mean_pinball_loss(y, f, alpha=0.9),
        "pinball:quantile=0.25": sklearn.metrics.mean_pinball_loss(y, f, alpha=0.25),
    }
    for name, value in expected.items():
        assert measured(name, "regression", f, y) == pytest.approx(value, rel=1e-6), name
    assert measured("r2", "regression", f, torch.ones_like(f)) == 0


def test_calibration_by_hand():
    # Confidence 0.75 four times, right twice; confidence 0.95 twice, right twice.
    p = torch.tensor([[0.75, 0.25]] * 4 + [[0.05, 0.95]] * 2, dtype=torch.float64)
    targets = torch.tensor([0, 0, 1, 1, 1, 1])
    expected = 4 / 6 * abs(0.75 - 0.5) + 2 / 6 * abs(0.95 - 1)
    assert measured("ece", "classification", p.log(), targets) == pytest.approx(expected)
    certain = torch.tensor([[100.0, -100.0]] * 3)
    assert measured("ece", "classification", certain, torch.tensor([0, 0, 0])) == pytest.approx(0, abs=1e-12)
    assert measured("ece", "classification", certain, torch.tensor([1, 1, 1])) == pytest.approx(1)


def test_what_is_not_finite_shows():
    assert measured("mse", "regression", torch.tensor([[torch.nan]]), torch.zeros(1, 1)) != 0
    assert measured("nll", "classification", torch.tensor([[torch.inf, 0.0]]), torch.tensor([1])) != 0


@pytest.mark.parametrize("name", [row.written for row in METRICS.values()])
def test_no_metric_broadcasts(name):
    row = METRICS[name.partition(":")[0]]
    for kind in row.kinds:
        if kind == "classification":
            outputs, targets, sentence = (
                torch.zeros(6, 3),
                torch.zeros(6, 1).long(),
                "a metric of classes needs outputs",
            )
        else:
            outputs, targets = torch.zeros(6, 1), torch.zeros(6)
            sentence = r"outputs must have the targets' shape \(6,\) but have shape \(6, 1\)"
        with pytest.raises(InputError, match=sentence):
            measured(name, kind, outputs, targets)


def test_one_class_alone_is_a_sentence():
    for name in ("auroc", "average_precision"):
        sentence = f"^{name} needs targets of at least two classes but all 4 are of one$"
        with pytest.raises(InputError, match=sentence):
            measured(name, "classification", torch.randn(4, 2), torch.zeros(4).long())
    assert missing_class(torch.tensor([0, 2, 2]), 3, "classification") == "class 1 has no sample there"
    assert missing_class(torch.tensor([0, 1]), 2, "classification") == ""
    assert missing_class(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), 2, "multilabel") == "label 0 is always present there"
    assert missing_class(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), 2, "multilabel") == "label 1 is never present there"


def test_every_training_reports_what_can_be_measured():
    outputs, targets = batch(3)
    every = usual_metrics("classification", outputs, targets)
    assert list(every) == [
        "error_rate", "balanced_error", "nll", "brier", "ece", "macro_f1", "auroc", "average_precision",
    ]  # fmt: skip
    few = usual_metrics("classification", outputs, targets.clamp(max=1))
    assert set(every) - set(few) == {"auroc", "average_precision"}
    assert list(usual_metrics("regression", torch.zeros(2, 1), torch.ones(2, 1))) == ["mse", "mae", "r2"]


def test_choosing_by_name():
    assert chosen_metric(None, "classification").name == "error_rate"
    assert chosen_metric(None, "multilabel").name == "error_rate"
    assert chosen_metric(None, "regression").name == "mse"
    assert chosen_metric("r2", "regression").cost(0.25) == -0.25
    assert chosen_metric("mae", "regression").cost(0.25) == 0.25
    pinball = chosen_metric("pinball:quantile=0.90", "regression")
    assert (pinball.name, pinball.higher_is_better) == ("pinball:quantile=0.9", False)
    assert chosen_metric("f1:label=2", "classification").name == "f1:label=2"
    with pytest.raises(InputError, match="f1: label must be at least 0 but got -1"):
        chosen_metric("f1:label=-1", "classification")
    with pytest.raises(InputError, match="label must be less than the number of classes or labels, 3, but got 3"):
        measured("f1:label=3", "classification", *batch(3))


def test_rows_of_weight_zero_are_left_out():
    outputs, targets = batch(3)
    weights = torch.arange(200.0) % 3
    metric = chosen_metric("error_rate", "classification")
    assert metric(outputs, targets, weights=weights) == metric(outputs[weights > 0], targets[weights > 0])
    assert metric(outputs, targets, weights=weights) != metric(outputs, targets)
    assert metric(outputs, targets, weights=weights + 1) == metric(outputs, targets)
    few = usual_metrics("classification", outputs, targets, weights=weights)
    assert few["error_rate"] == metric(outputs, targets, weights=weights)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("error_rate", "metric must be one of mse, mae, r2, pinball:quantile=0.9 for regression but got 'error_rate'"),
        ("pinball", "the metric pinball needs its quantile, as in pinball:quantile=0.9, but got 'pinball'"),
        ("pinball:alpha=0.5", "pinball has no option 'alpha': its options are quantile"),
        (
            "pinball:quantile=1.5",
            "pinball: quantile must be a finite number of more than 0 and less than 1 but got 1.5",
        ),
        ("pinball:quantile=high", "pinball: quantile must be a number but got 'high'"),
        ("mse:quantile=0.9", "mse has no option 'quantile': it has none"),
        (3, "metric must be a name or an evomal.Metric but got 3"),
        ("mse+mae+mse", "the metric mse is given twice in 'mse+mae+mse'"),
        ("high*mse+mae", "the weight of mse must be a number but got 'high'"),
        ("0*mse+mae", "the weight of mse must be a finite number of more than 0 but got 0.0"),
        (
            "0.5*mse+0.5*auroc",
            "metric must be one of mse, mae, r2, pinball:quantile=0.9 for regression but got 'auroc'",
        ),
        ("0.5*mse+0.5*mine", "metric must be one of error_rate,"),
    ],
)
def test_metrics_that_are_not_there(name, sentence):
    with pytest.raises(InputError) as caught:
        chosen_metric(name, "regression")
    assert str(caught.value).startswith(sentence)


def median(outputs, targets):
    return (outputs - targets).abs().median()


class Metered:
    """Called, reset and described as torchmetrics' classes are."""

    higher_is_better = True

    def __init__(self):
        self.seen, self.resets = [], 0

    def __call__(self, preds, target):
        self.seen.append((tuple(preds.shape), tuple(target.shape)))
        return torch.tensor(0.75)

    def reset(self):
        self.resets += 1


def test_a_function_must_come_with_its_direction():
    with pytest.raises(InputError) as caught:
        chosen_metric(median, "regression")
    assert str(caught.value) == (
        "the metric median must come with its direction: "
        "evomal.Metric(median, higher_is_better=True) or higher_is_better=False"
    )
    undecided = Metered()
    undecided.higher_is_better = None  # as some of torchmetrics have it
    with pytest.raises(InputError, match="the metric Metered must come with its direction"):
        chosen_metric(undecided, "regression")
    own = evomal.Metric(median, higher_is_better=False)
    assert chosen_metric(own, "regression") is own
    assert (own.name, own.cost(2.0), own(torch.tensor([3.0]), torch.tensor([1.0]))) == ("median", 2.0, 2.0)
    assert evomal.Metric(median, "mine", higher_is_better=True).cost(2.0) == -2.0


def test_objects_as_torchmetrics_has_them():
    metered = Metered()
    metric = chosen_metric(metered, "classification")
    assert (metric.name, metric.higher_is_better) == ("Metered", True)
    assert metric(torch.zeros(5, 1), torch.zeros(5).long()) == 0.75
    assert metric(torch.zeros(5, 3), torch.zeros(5).long()) == 0.75
    assert metered.seen == [((5,), (5,)), ((5, 3), (5,))]
    assert metered.resets == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((3,), "a metric must be a function of outputs and targets but got 3"),
        ((median, 7), "a metric's name must be a text but got 7"),
    ],
)
def test_bad_metrics(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        Metric(*arguments, higher_is_better=True)
    with pytest.raises(InputError, match="higher_is_better must be True or False but got 'yes'"):
        Metric(median, higher_is_better="yes")
    with pytest.raises(
        InputError, match=r"the metric rows \(.*\) must return one number but returned a tensor of shape \(4, 2\)"
    ):
        Metric(lambda outputs, _: outputs, "rows", higher_is_better=True)(torch.zeros(4, 2), torch.zeros(4))


def test_nll_is_cross_entropy():
    outputs, targets = batch(5)
    assert measured("nll", "classification", outputs, targets) == pytest.approx(
        F.cross_entropy(outputs, targets).item()
    )


def test_the_documentation_lists_every_metric():
    text = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    for row in METRICS.values():
        better = ("higher" if row.higher_is_better else "lower") + (", shown in percent" if row.percent else "")
        assert f"| `{row.written}` | {', '.join(row.kinds)} | {better} | {row.purpose} |" in text


@pytest.mark.parametrize("module", [loading, metrics])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module) == (0, {loading: 1, metrics: 8}[module])
