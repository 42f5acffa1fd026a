"""Metrics against scikit-learn, torch and cases computed by hand; how they are asked for."""

import functools
import math
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
import torch.nn.functional as F
from torch import nn

import evomal
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.tasks import metric_display
from evomal.tasks.metrics import Metric, chosen_metric, missing_class, usual_metrics
from evomal.tasks.named_metrics import METRICS, largest_difference

LOG = Expression.parse("mul(y, log(f))")


def batch(classes, samples=200, seed=0):
    rng = torch.Generator().manual_seed(seed)
    # Rounded, so that scores tie.
    outputs = (torch.randn(samples, classes, generator=rng) * 4).round() / 2
    return outputs, torch.randint(max(2, classes), (samples,), generator=rng)


def labels(samples=200, count=4, seed=0):
    rng = torch.Generator().manual_seed(seed)
    outputs = (torch.randn(samples, count, generator=rng) * 4).round() / 2
    return outputs, (torch.rand(samples, count, generator=rng) < 0.3).float()


def measured(name, kind, outputs, targets, weights=None):
    return chosen_metric(name if weights is None else f"sample_weighted:{name}", kind)(
        outputs, targets, weights=weights
    )


WEIGHTS = torch.linspace(0.2, 5, 200)[torch.randperm(200, generator=torch.Generator().manual_seed(1))]


class Oracle:
    """The metrics of scikit-learn, with these sample weights or without any."""

    def __init__(self, weights):
        self._options = {} if weights is None else {"sample_weight": weights}

    def __getattr__(self, name):
        return functools.partial(getattr(sklearn.metrics, name), **self._options)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_classification_metrics_are_those_of_scikit_learn(classes, weights):
    oracle = Oracle(weights)
    outputs, targets = batch(classes)
    predicted = (outputs[:, 0] > 0).long() if classes == 1 else outputs.argmax(1)
    positive = outputs.double().sigmoid()
    p = torch.cat((1 - positive, positive), 1) if classes == 1 else outputs.double().softmax(1)
    scores = p[:, 1] if classes <= 2 else p
    expected = {
        "error_rate": 1 - oracle.accuracy_score(targets, predicted),
        "balanced_error": 1 - oracle.balanced_accuracy_score(targets, predicted),
        "nll": oracle.log_loss(targets, p),
        "log_loss": oracle.log_loss(targets, p),
        "brier": oracle.brier_score_loss(targets, scores),
        "accuracy": oracle.accuracy_score(targets, predicted),
        "macro_f1": oracle.f1_score(targets, predicted, average="macro"),
        "mean_iou": oracle.jaccard_score(targets, predicted, average="macro"),
        "f1:label=1": oracle.f1_score(targets == 1, predicted == 1),
        "precision:label=1": oracle.precision_score(targets == 1, predicted == 1),
        "recall:label=1": oracle.recall_score(targets == 1, predicted == 1),
        "auroc": oracle.roc_auc_score(targets, scores, multi_class="ovr"),
        "average_precision": oracle.average_precision_score(targets, scores, average="macro"),
    }
    for name, value in expected.items():
        assert measured(name, "classification", outputs, targets, weights) == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_multilabel_metrics_are_those_of_scikit_learn(weights):
    oracle = Oracle(weights)
    outputs, targets = labels()
    p, predicted = outputs.double().sigmoid(), (outputs > 0).float()
    each = range(targets.shape[1])
    expected = {
        "error_rate": oracle.hamming_loss(targets, predicted),
        "balanced_error": np.mean([1 - oracle.balanced_accuracy_score(targets[:, k], predicted[:, k]) for k in each]),
        "nll": np.mean([oracle.log_loss(targets[:, k], p[:, k]) for k in each]),
        "brier": np.mean([oracle.brier_score_loss(targets[:, k], p[:, k]) for k in each]),
        "macro_f1": oracle.f1_score(targets, predicted, average="macro"),
        "mean_iou": oracle.jaccard_score(targets, predicted, average="macro"),
        "recall:label=2": oracle.recall_score(targets[:, 2], predicted[:, 2]),
        "auroc": oracle.roc_auc_score(targets, p, average="macro"),
        "average_precision": oracle.average_precision_score(targets, p, average="macro"),
    }
    for name, value in expected.items():
        assert measured(name, "multilabel", outputs, targets, weights) == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("weights", [None, WEIGHTS[:50]], ids=["alike", "weighted"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_regression_metrics_are_those_of_scikit_learn(outputs, weights):
    oracle = Oracle(weights)
    rng = torch.Generator().manual_seed(0)
    f, y = torch.randn(50, outputs, generator=rng), torch.randn(50, outputs, generator=rng)
    expected = {
        "mse": oracle.mean_squared_error(y, f),
        "mae": oracle.mean_absolute_error(y, f),
        "r2": oracle.r2_score(y, f),
        "pinball:quantile=0.9": oracle.mean_pinball_loss(y, f, alpha=0.9),
        "pinball:quantile=0.25": oracle.mean_pinball_loss(y, f, alpha=0.25),
    }
    for name, value in expected.items():
        assert measured(name, "regression", f, y, weights) == pytest.approx(value, rel=1e-6), name
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


@pytest.mark.parametrize("name", [row.written for row in METRICS.values()])
def test_values_lie_within_their_bounds_and_reach_them(name):
    row = METRICS[name.partition(":")[0]]
    for kind in row.kinds:
        if kind == "classification":
            targets = torch.arange(300) % 3
            right = 1e4 * F.one_hot(targets, 3)
            wrong = 1e4 * F.one_hot((targets + 1) % 3, 3)
        else:
            targets = F.one_hot(torch.arange(300) % 2).float()
            right = 2e4 * targets - 1e4 if kind == "multilabel" else targets
            wrong = -right if kind == "multilabel" else targets - 1e4
        best, worst = (measured(name, kind, outputs, targets) for outputs in (right, wrong))
        least, largest = row.bounds
        if name == "brier" and kind == "multilabel":
            largest = 1.0
        assert best == pytest.approx(largest if row.higher_is_better else least, abs=1e-6)
        expected = least if row.higher_is_better else largest
        if math.isinf(expected):
            assert abs(worst) > 1e3
        elif name in ("auroc", "average_precision"):
            assert least <= worst <= 0.5  # other outputs would be the worst
        else:
            assert worst == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("error_rate", 1.0),
        ("worst_class:error_rate", 1.0),
        ("0.5*error_rate+2*auroc", 2.5),
        ("0.5*error_rate+0.5*nll", math.inf),
        ("r2", math.inf),
        ("0.5*0.7*error_rate+0.3*ece+0.5*brier", math.inf),
        ("rows*error_rate", math.inf),
        ("mean_rank", math.inf),
    ],
)
def test_differences_have_bounds_where_their_terms_have(name, expected):
    assert largest_difference(name) == pytest.approx(expected)


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


def test_a_whole_weight_is_a_number_of_samples():
    outputs, targets = batch(3)
    often = torch.arange(200) % 4
    many = outputs.repeat_interleave(often, 0), targets.repeat_interleave(often)
    for name in ("ece", "worst_class:sample_weighted:recall:label=1", "0.7*sample_weighted:nll+0.3*brier"):
        weighted = chosen_metric(name if "sample" in name else f"sample_weighted:{name}", "classification")
        if "brier" in name:
            expected = 0.7 * measured("nll", "classification", *many) + 0.3 * measured(
                "brier", "classification", outputs[often > 0], targets[often > 0]
            )
        else:
            expected = measured(name.replace("sample_weighted:", ""), "classification", *many)
        assert weighted(outputs, targets, weights=often.float()) == pytest.approx(expected)
    assert metric_display.shown_in_percent("sample_weighted:error_rate")


def test_a_function_that_takes_weights():
    outputs, targets = batch(3)

    def mass(outputs, targets, weights):
        assert weights.shape == targets.shape
        return weights.sum()

    metric = Metric(mass, higher_is_better=True, takes_weights=True)
    assert metric(outputs, targets) == 200
    assert metric(outputs, targets, weights=torch.arange(200.0) % 2 * 3) == 300


def weighted_task(metric, *, is_weighted=True, classes=3):
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % classes
    weights = 1 + np.arange(60) % 5 if is_weighted else None
    return evomal.Task.from_arrays(x, y, model=lambda: nn.Linear(4, classes), metric=metric, sample_weight=weights)


def test_a_training_is_judged_by_weights():
    task = weighted_task("sample_weighted:error_rate")
    score = evomal.train(task, "ce", steps=5, device="cpu", keep_model=True)
    wrong = (score.model(task.test.inputs).argmax(1) != task.test.targets).float()
    assert score.test == pytest.approx(((wrong * task.test.weights).sum() / task.test.weights.sum()).item())
    plain = evomal.train(task.judged_by("error_rate"), "ce", steps=5, device="cpu")
    assert plain.test == pytest.approx(wrong.mean().item()) != score.test
    settings = evomal.engine.EngineSettings(device="cpu", filter_steps=5)
    gains = [
        evomal.engine.Engine(own, seed=0, settings=settings).gains([LOG], [[-1.0, 1.0, 1.0]])
        for own in (task.judged_by("sample_weighted:nll"), task.judged_by("nll"))
    ]
    assert gains[0] != gains[1]


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        ("f1:label=7", "the label of the metric f1:label=7 must be less than the number of classes, 3, but is 7"),
        ("0.5*error_rate+0.5*worst_class:recall:label=3", "the label of the metric recall:label=3 must be less than"),
        (
            "sample_weighted:nll",
            "the metric sample_weighted:nll needs sample weights, but the validation split has non",
        ),
        ("worst_class:sample_weighted:nll", "the metric sample_weighted:nll needs sample weights, but class 0 of the"),
    ],
)
def test_what_a_metric_lacks_is_said_when_the_task_is_made(metric, sentence):
    with pytest.raises(InputError) as caught:
        weighted_task(metric, is_weighted=False)
    assert str(caught.value).startswith(sentence)


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
        ("sample_weighted:sample_weighted:mse", "sample_weighted: must directly precede the name of a metric but g"),
        ("sample_weighted:worst_class:mse", "sample_weighted: must directly precede the name of a metric but got"),
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
        ((median, 7), "a metric's name must be a string but got 7"),
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
