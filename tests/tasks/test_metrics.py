"""Metrics against scikit-learn, torch and cases computed by hand."""

import pytest
import sklearn.metrics
import torch
import torch.nn.functional as F

from evomal.errors import InputError
from evomal.tasks.metrics import CLASSIFICATION_METRICS, REGRESSION_METRICS, Metric, chosen_metric


def batch(classes, samples=200, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(samples, classes, generator=rng) * 2, torch.randint(max(2, classes), (samples,), generator=rng)


@pytest.mark.parametrize("classes", [1, 2, 7])
def test_classification_metrics(classes):
    outputs, targets = batch(classes)
    predicted = (outputs[:, 0] > 0).long() if classes == 1 else outputs.argmax(1)
    found = {name: metric(outputs, targets) for name, metric in CLASSIFICATION_METRICS.items()}
    assert found["error_rate"] == pytest.approx(1 - sklearn.metrics.accuracy_score(targets, predicted))
    assert found["macro_f1"] == pytest.approx(sklearn.metrics.f1_score(targets, predicted, average="macro"))
    expected = (
        F.binary_cross_entropy_with_logits(outputs[:, 0], targets.float())
        if classes == 1
        else F.cross_entropy(outputs, targets)
    )
    assert found["nll"] == pytest.approx(expected.item(), rel=1e-6)


def test_calibration_by_hand():
    # Confidence 0.75 four times, right twice; confidence 0.95 twice, right twice.
    p = torch.tensor([[0.75, 0.25]] * 4 + [[0.05, 0.95]] * 2, dtype=torch.float64)
    targets = torch.tensor([0, 0, 1, 1, 1, 1])
    expected = 4 / 6 * abs(0.75 - 0.5) + 2 / 6 * abs(0.95 - 1)
    assert CLASSIFICATION_METRICS["ece"](p.log(), targets) == pytest.approx(expected)
    certain = torch.tensor([[100.0, -100.0]] * 3)
    assert CLASSIFICATION_METRICS["ece"](certain, torch.tensor([0, 0, 0])) == pytest.approx(0, abs=1e-12)
    assert CLASSIFICATION_METRICS["ece"](certain, torch.tensor([1, 1, 1])) == pytest.approx(1)


@pytest.mark.parametrize("outputs", [1, 3])
def test_regression_metrics(outputs):
    rng = torch.Generator().manual_seed(0)
    f, y = torch.randn(50, outputs, generator=rng), torch.randn(50, outputs, generator=rng)
    assert REGRESSION_METRICS["mse"](f, y) == pytest.approx(sklearn.metrics.mean_squared_error(y, f), rel=1e-6)
    assert REGRESSION_METRICS["mae"](f, y) == pytest.approx(sklearn.metrics.mean_absolute_error(y, f), rel=1e-6)
    assert REGRESSION_METRICS["r2"](f, y) == pytest.approx(sklearn.metrics.r2_score(y, f), rel=1e-6)
    assert REGRESSION_METRICS["r2"](f, torch.ones_like(f)) == 0


def test_what_is_not_finite_shows():
    assert REGRESSION_METRICS["mse"](torch.tensor([[torch.nan]]), torch.zeros(1, 1)) != 0
    assert CLASSIFICATION_METRICS["nll"](torch.tensor([[torch.inf, 0.0]]), torch.tensor([1])) != 0


def test_choosing():
    assert chosen_metric(None, "classification").name == "error_rate"
    assert chosen_metric(None, "regression").name == "mse"
    assert chosen_metric("r2", "regression").cost(0.25) == -0.25
    assert chosen_metric("mae", "regression").cost(0.25) == 0.25

    def median(outputs, targets):
        return (outputs - targets).abs().median()

    own = chosen_metric(median, "regression")
    assert (own.name, own(torch.tensor([3.0]), torch.tensor([1.0]))) == ("median", 2.0)
    metric = Metric("mine", median, lower_is_better=False)
    assert chosen_metric(metric, "regression") is metric
    with pytest.raises(InputError, match="metric must be one of mse, mae, r2 for regression but got 'error_rate'"):
        chosen_metric("error_rate", "regression")
    with pytest.raises(InputError, match="a name or a function of outputs and targets but got 3"):
        chosen_metric(3, "regression")
