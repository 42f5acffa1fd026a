"""The charts of a run, as the report and the live page show them."""

from dataclasses import replace

import pytest

from evomal.report.run_charts import rung_charts
from evomal.runs import load_run
from evomal.runs.views import RunView
from tests.figures.records import record, row


@pytest.mark.parametrize("address", [None, "/runs/a"])
def test_each_rung_is_drawn_against_the_next(tmp_path, address):
    costs = [(0.1, 0.4), (0.2, 0.3), (0.3,), (0.4, 0.5)]
    rows = [
        replace(row(0, index, own[-1], weights=(1.0, 1.0, 1.0)), rungs=tuple((1.0, cost) for cost in own))
        for index, own in enumerate(costs)
    ]
    run = load_run(record(tmp_path, rows, metric="mse"))
    (chart,) = rung_charts(RunView.of(run), run, address)
    assert chart.title == "Rung 1 to 2"
    assert [text for _, _, text in chart.legend] == ["rose (1)", "fell (1)", "same place (1)"]
    assert chart.note.startswith("Rank correlation 0.33.")
    assert "mse on rung 1" in chart.svg
    assert "mse on rung 2" in chart.svg
    assert "place 1 on rung 1, 2 on rung 2: " in chart.svg
    assert ("/runs/a/candidates/0/3" in chart.svg) == (address is not None)
