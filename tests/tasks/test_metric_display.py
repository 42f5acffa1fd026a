"""How metrics and their values are shown to people."""

import math

from evomal.tasks.metric_display import (
    ShownMetric,
    is_metric_of,
    metric_label,
    metric_number,
    metric_scale,
    metric_text,
    named_value,
    recorded_direction,
    shown_in_percent,
)
from evomal.tasks.named_metrics import METRICS


def test_the_registry_knows_direction_and_unit():
    higher = {name for name, row in METRICS.items() if row.higher_is_better}
    assert higher == {
        "accuracy", "macro_f1", "mean_iou", "f1", "precision", "recall", "auroc", "average_precision", "r2",
    }  # fmt: skip
    shares = {"error_rate", "balanced_error", "accuracy", "ece"}
    assert {name for name, row in METRICS.items() if row.percent} == shares
    assert (recorded_direction("auroc"), recorded_direction("pinball:quantile=0.9")) == (True, False)
    assert recorded_direction("mine") is None
    assert shown_in_percent("ece")
    assert not shown_in_percent("auroc")
    assert not shown_in_percent("mine")


def test_combinations_of_named_metrics_are_shown_as_their_members_are():
    assert shown_in_percent("0.7*error_rate+0.3*ece")
    assert shown_in_percent("worst_class:error_rate")
    assert not shown_in_percent("0.7*error_rate+0.3*nll")
    assert not shown_in_percent("0.7*error_rate+0.3*mine")
    assert metric_text(0.12345, "worst_group:error_rate") == "12.35 %"
    assert (recorded_direction("0.5*auroc+0.5*macro_f1"), recorded_direction("0.5*auroc+0.5*nll")) == (True, False)
    assert is_metric_of("0.5*auroc+0.5*nll", "multilabel")
    assert not is_metric_of("worst_class:auroc", "regression")


def test_values_are_shown_in_one_way():
    assert (metric_label("error_rate"), metric_label("macro_f1")) == ("error rate (%)", "macro f1")
    assert (metric_label("m" * 99, 9), metric_scale("ece"), metric_scale("mse")) == ("m" * 8 + "…", 100.0, 1.0)
    assert (metric_number(0.10567, "error_rate"), metric_number(0.10567, "mse")) == ("10.57", "0.1057")
    assert metric_number(0.10567, "mse", digits=2) == "0.11"
    assert (metric_text(0.12345, "error_rate"), metric_text(0.12345, "mse")) == ("12.35 %", "0.1235")
    assert metric_text(0.12345, "error_rate", 0.00567) == "12.35 ± 0.57 %"
    assert metric_text(1234.5, "mse", 0.0567) == "1234 ± 0.057"


def test_a_value_in_a_sentence_has_its_metric_and_unit():
    assert named_value(0.10567, "error_rate") == "error rate 10.57 %"
    assert named_value(0.10567, "mse") == "mse 0.1057"


def test_costs_are_shown_as_values_of_the_metric():
    auroc, error_rate = ShownMetric("auroc", True), ShownMetric("error_rate")
    assert (auroc.value(-0.5), error_rate.value(0.5)) == (0.5, 0.5)
    assert (auroc.text(-0.98765, math.inf), error_rate.text(0.5, 0.01)) == ("0.9877", "50.00 ± 1.00 %")
    assert [metric.text(cost) for metric, cost in ((auroc, math.inf), (error_rate, math.nan))] == ["diverged"] * 2
