"""What leads on validation come to on test, by hand for a few searches."""

import math

import pytest
from scipy import stats

from evomal.campaigns.leads_page import leads_page
from evomal.campaigns.record import (
    CampaignResult,
    ComparedRow,
    ComparisonCell,
    MeasuredTask,
    Provenance,
    SearchCell,
    TrainedLoss,
)

MADE = Provenance(commit="abc", hardware="a machine", seconds=1.0)
SEEDS = (1000, 1001)


def measured(title, searches, *, rival=(1.0, 1.0), validation=400, seeds=SEEDS):
    """A task whose searches have a lead, half its interval over seeds and over rows, and test costs."""
    cells = tuple(
        SearchCell(
            method="evomal", preset="quick", seed=seed, made=MADE, formula="x", recommended="learned", rival="mae",
            lead=lead, half_on_other_rows=wide,
        )
        for seed, (lead, wide, _) in enumerate(searches)
    )  # fmt: skip
    own = tuple(TrainedLoss(formula="x", lr=0.1, test=test) for _, _, test in searches)
    rows = tuple(
        ComparedRow(name=name, variant="tuned", losses=losses)
        for name, losses in (("mse", (TrainedLoss(test=(2.0,) * len(seeds)),)), ("mae", (TrainedLoss(test=rival),)))
    )
    compared = ComparisonCell(
        made=MADE, steps=10, seeds=seeds, tune_lr=3, baseline="mse",
        rows=(*rows, ComparedRow(name="evomal", variant="tuned", losses=own)),
    )  # fmt: skip
    counts = {"training": 1000, "validation": validation, "test": 4 * validation}
    return MeasuredTask(
        name=title, title=title, task=title, metric="mse", rows=counts, searches=cells, comparison=compared
    )


def rows_of(*tasks):
    """The cells of each table row of the page, by their first cell."""
    result = CampaignResult(name="one", title="One", command="x", tasks=tasks)
    lines = leads_page({"one": result})
    found = {}
    for line in lines:
        if line.startswith("|") and not line.startswith("|--"):
            first, *others = (cell.strip() for cell in line.strip("|").split("|"))
            found.setdefault(first, others)
    return lines, found


def test_each_rule_gains_what_its_recommendations_are_worth_on_test():
    better = ((0.2, 0.1), 0.15, (0.8, 0.6))  # sure with other rows, too; 30 % better on test
    unsure = ((0.2, 0.1), 0.30, (0.9, 0.9))  # sure with these rows only; 10 % better
    worse = ((0.1, 0.2), 0.30, (1.2, 1.2))  # above zero only; 20 % worse
    behind = ((-0.1, 0.2), 0.3, (1.4, 1.4))  # below zero; 40 % worse
    lines, found = rows_of(measured("a", [better, unsure, worse, behind]), measured("b", [unsure, unsure]))
    assert "- n: 6 searches on 2 tasks" in lines

    def interval(*gains):
        mean, half = sum(gains) / 2, float(stats.t.ppf(0.975, 1)) * abs(gains[0] - gains[1]) / 2
        signed = [
            f"{'−' if one < -0.05 else '+' * (one > 0.05)}{abs(one):.1f}" for one in (mean, mean - half, mean + half)
        ]
        return f"{signed[0]} ({signed[1]} to {signed[2]})"

    assert found["always"][:4] == ["6", "4 (67 %)", interval(-5, 10), "−5.0"]
    assert found["the lead is above zero"][:4] == ["5", "4 (80 %)", interval(5, 10), "+5.0"]
    rule = found["its interval over seeds is above zero (the rule)"]
    assert rule == ["4", "4 (100 %)", interval(10, 10), "+10.0", ""]
    rows = found["its interval over seeds and rows is above zero"]
    assert rows == ["1", "1 (100 %)", interval(7.5, 0), "0.0", interval(-2.5, -10)]
    assert found["a"] == ["quick", "400", "4", "+15.0", "15.0", "30.0", "−5.0", "2", "2"]


def test_a_search_that_several_campaigns_compared_counts_once_with_the_most_seeds():
    search = ((0.2, 0.1), None)
    few = measured("a", [(*search, (0.8, 0.8))])
    many = measured("a", [(*search, (0.6, 0.6, 0.6))], rival=(1.0,) * 3, seeds=(*SEEDS, 1002))
    for tasks in ((few, many), (many, few)):
        lines, found = rows_of(*tasks)
        assert "- n: 1 search on 1 task" in lines
        assert found["a"][6] == "+40.0"


def test_what_diverged_or_led_nothing_is_left_out():
    diverged = ((0.2, 0.1), None, (0.8, None))
    unmeasured = (None, None, (0.8, 0.8))
    lines, _ = rows_of(measured("a", [diverged, unmeasured]))
    assert "- n: 0 searches on 0 tasks" in lines


def test_unrecorded_intervals_over_rows_are_reckoned_from_the_test_rows():
    """Two blocks give a standard error of half their distance, and four times as many test rows half the error."""
    task = measured("a", [((0.2, 0.05), None, (0.8, 0.8))])
    mse, mae, own = task.comparison.rows
    without = ((0.75, 0.85), (0.75, 0.85))
    rows = (
        mse,
        mae.model_copy(update={"losses": (mae.losses[0].model_copy(update={"left_out": ((1.0, 1.0),) * 2}),)}),
        own.model_copy(update={"losses": (own.losses[0].model_copy(update={"left_out": without}),)}),
    )
    _, found = rows_of(task.model_copy(update={"comparison": task.comparison.model_copy(update={"rows": rows})}))
    half = math.hypot(0.05, stats.t.ppf(0.975, 1) * 0.05 * 2)
    assert float(found["a"][5]) == pytest.approx(100 * half, abs=0.05)


def test_tasks_with_rows_for_the_final_have_a_table_of_their_own():
    lines, _ = rows_of(measured("a", [((0.2, 0.1), None, (0.8, 0.8))], validation=2000))
    assert "**At least 2,000 validation rows** (1 search)" in lines
    assert not any(line.startswith("**Fewer than") for line in lines)
