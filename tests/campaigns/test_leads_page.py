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


def measured(title, searches, *, rival=(1.0, 1.0), final_on="rows of the search", seeds=SEEDS, formula=""):
    """A task whose searches have a lead, half its interval over seeds and over rows, and test costs."""
    cells = tuple(
        SearchCell(
            method="evomal", preset="quick", seed=seed, made=MADE, formula=formula or title, recommended="learned",
            rival="mae", lead=lead, half_on_other_rows=wide, final_on=final_on,
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
    counts = {"training": 1000, "validation": 400, "test": 1600}
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
    assert any(line.startswith("- n: 6 searches on 2 sets of data") for line in lines)

    def interval(*gains):
        mean, half = sum(gains) / 2, float(stats.t.ppf(0.975, 1)) * abs(gains[0] - gains[1]) / 2
        signed = [
            f"{'−' if one < -0.05 else '+' * (one > 0.05)}{abs(one):.1f}" for one in (mean, mean - half, mean + half)
        ]
        return f"{signed[0]} ({signed[1]} to {signed[2]})"

    assert found["every search"] == ["6", "4 of 6 (67 %)", "", interval(-5, 10), "−5.0"]
    above = found["the lead is above zero"]
    assert above == ["5", "4 of 5 (80 %)", "0 of 1 (0 %)", interval(5, 10), "+5.0"]
    rule = found["its interval over seeds is above zero: the rule"]
    assert rule == ["4", "4 of 4 (100 %)", "0 of 2 (0 %)", interval(10, 10), "+10.0"]
    rows = found["its interval over seeds and rows is, too"]
    assert rows == ["1", "1 of 1 (100 %)", "3 of 5 (60 %)", interval(7.5, 0), "0.0"]
    own = ["quick", "400", "rows of the search", "4", "+15.0", "± 15.0", "± 30.0", "−5.0", "2", "2"]
    assert found["a"] == own


def test_a_search_that_several_campaigns_compared_counts_once_with_the_most_seeds():
    search = ((0.2, 0.1), None)
    few = measured("a", [(*search, (0.8, 0.8))], formula="x")
    title = "the same under another title"
    many = measured(title, [(*search, (0.6, 0.6, 0.6))], rival=(1.0,) * 3, seeds=(0, 1, 2), formula="x")
    for tasks in ((few, many), (many, few)):
        lines, found = rows_of(*tasks)
        assert any(line.startswith("- n: 1 search on 1 set of data") for line in lines)
        assert found[title][7] == "+40.0"
        assert "a" not in found


def test_what_diverged_or_led_nothing_is_left_out():
    diverged = ((0.2, 0.1), None, (0.8, None))
    unmeasured = (None, None, (0.8, 0.8))
    lines, _ = rows_of(measured("a", [diverged, unmeasured]))
    assert any(line.startswith("- n: 0 searches on 0 sets of data") for line in lines)


@pytest.mark.parametrize(("final_on", "factor"), [("rows of the search", 2), ("own rows", math.sqrt(8))])
def test_unrecorded_intervals_over_rows_are_reckoned_from_the_test_rows(final_on, factor):
    """Two blocks give a standard error of half their distance; four times as many test rows have half the error."""
    _, found = rows_of(with_blocks(measured("a", [((0.2, 0.05), None, (0.8, 0.8))], final_on=final_on)))
    half = math.hypot(0.05, stats.t.ppf(0.975, 1) * 0.05 * factor)
    assert float(found["a"][6].removeprefix("± ")) == pytest.approx(100 * half, abs=0.05)


def test_splits_drawn_anew_vary_as_other_rows_would():
    lines, found = rows_of(with_blocks(measured("a", [((0.2, 0.05), None, (0.8, 0.8))], final_on="new splits")))
    assert found["a"][6] == ""
    assert found["its interval over seeds and rows is, too"][0] == "1"
    assert "**Finals with splits drawn anew for every training** (1 search on 1 set of data)" in lines
    assert not any(line.startswith("**Finals on") for line in lines)


def with_blocks(task):
    """The task with test costs of its learned loss without either half of the rows."""
    mse, mae, own = task.comparison.rows
    without = ((0.75, 0.85), (0.75, 0.85))
    rows = (
        mse,
        mae.model_copy(update={"losses": (mae.losses[0].model_copy(update={"left_out": ((1.0, 1.0),) * 2}),)}),
        own.model_copy(update={"losses": (own.losses[0].model_copy(update={"left_out": without}),)}),
    )
    return task.model_copy(update={"comparison": task.comparison.model_copy(update={"rows": rows})})
